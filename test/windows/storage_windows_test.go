// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"
	"google.golang.org/grpc/codes"

	"github.com/csi-proxy/csi-proxy/internal/lab/virtdisk"
)

// The disk and volume groups against Windows itself, on virtual disks. Windows'
// own commands, which go another way than the daemon, say what is there.
func TestNativeStorage(t *testing.T) {
	kubelet := startOnStorage(t)
	for _, sectorSize := range []uint32{512, 4096} {
		t.Run(fmt.Sprint(sectorSize), func(t *testing.T) {
			nativeVolume(t, filepath.Join(kubelet, fmt.Sprint(sectorSize)), sectorSize)
		})
	}
	t.Run("foreign partition table", nativeForeignTable)
	t.Run("detached while mounted", func(t *testing.T) { nativeDetach(t, filepath.Join(kubelet, "detached")) })
}

// startOnStorage starts the daemon on this Windows and returns its kubelet directory.
func startOnStorage(t *testing.T) (kubelet string) {
	t.Helper()
	notOnWine(t, "it has no virtual disks, no mount points and no storage management")
	kubelet = kubeletDirectory(t)
	install(t, "-kubelet-path="+kubelet).start()
	return kubelet
}

// newVirtualDisk attaches a new disk of this Windows for the time of the test.
func newVirtualDisk(t testing.TB, size uint64, sectorSize uint32) *virtdisk.Disk {
	t.Helper()
	d, err := virtdisk.New(filepath.Join(t.TempDir(), "disk.vhdx"), size, sectorSize)
	must(t, err)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// nativeVolume stages, grows and unstages a volume at path.
func nativeVolume(t *testing.T, path string, sectorSize uint32) {
	d := newVirtualDisk(t, gib, sectorSize)
	disk := func() fields { return fields{"disk_number": d.Number} }
	var id string
	var volume, at fields
	s := steps{t: t}

	s.run("size", func(t *testing.T) {
		disks := newest(t, "disk")
		disks.call("Rescan", nil)
		if got := disks.call("GetDiskStats", disk()).get("total_bytes").Int(); got != gib {
			t.Errorf("the disk has %d bytes, want 1 GiB", got)
		}
	})
	s.run("state", func(t *testing.T) {
		disks := newest(t, "disk")
		for _, online := range []bool{true, false, true} {
			disks.call("SetDiskState", fields{"disk_number": d.Number, "is_online": online})
			if got := disks.call("GetDiskState", disk()).get("is_online").Bool(); got != online {
				t.Errorf("GetDiskState says online: %t, want %t", got, online)
			}
			if got := getDisk(t, d.Number).IsOffline; got == online {
				t.Errorf("Get-Disk says offline: %t after SetDiskState to online: %t", got, online)
			}
		}
	})
	s.run("partition", func(t *testing.T) {
		for range 2 { // the second time it is partitioned already
			newest(t, "disk").call("PartitionDisk", disk())
			ids := newest(t, "volume").call("ListVolumesOnDisk", disk()).texts("volume_ids")
			if len(ids) != 1 || id != "" && ids[0] != id {
				t.Fatalf("the disk has the volumes %q, want one that stays", ids)
			}
			id = ids[0]
		}
		volume, at = fields{"volume_id": id}, fields{"volume_id": id, "target_path": path}
	})
	s.run("raw", func(t *testing.T) {
		if newest(t, "volume").call("IsVolumeFormatted", volume).get("formatted").Bool() {
			t.Error("a raw volume counts as formatted")
		}
	})
	s.run("format", func(t *testing.T) {
		volumes := newest(t, "volume")
		volumes.call("FormatVolume", volume)
		if !volumes.call("IsVolumeFormatted", volume).get("formatted").Bool() {
			t.Error("the volume isn't formatted after FormatVolume")
		}
		volumes.fail(codes.FailedPrecondition, "FormatVolume", volume)
	})
	s.run("mount", func(t *testing.T) {
		for range 2 { // the second time it is mounted there already
			newest(t, "volume").call("MountVolume", at)
		}
		plant(t, path+`\data`)
		if !newest(t, "filesystem").call("IsSymlink", fields{"path": path}).get("is_symlink").Bool() {
			t.Error("a mount point doesn't count as a link")
		}
	})
	s.run("find", func(t *testing.T) {
		volumes := newest(t, "volume")
		for method, request := range map[string]fields{
			"GetVolumeIDFromTargetPath":        {"target_path": path},
			"GetClosestVolumeIDFromTargetPath": {"target_path": path + `\data`},
		} {
			if got := volumes.call(method, request).get("volume_id").String(); got != id {
				t.Errorf("%s: %s, want %s", method, got, id)
			}
		}
		if got := volumes.call("GetDiskNumberFromVolumeID", volume).get("disk_number").String(); got != decimal(d.Number) {
			t.Errorf("the volume lies on disk %s, want %d", got, d.Number)
		}
	})
	s.run("flush", func(t *testing.T) { newest(t, "volume").call("WriteVolumeCache", volume) })
	s.run("grow", func(t *testing.T) {
		disks, volumes := newest(t, "disk"), newest(t, "volume")
		volumes.call("ResizeVolume", fields{"volume_id": id, "size_bytes": int64(0)}) // nothing to grow
		before := volumes.call("GetVolumeStats", volume).get("total_bytes").Int()
		way, err := d.Grow(2 * gib)
		if err != nil { // which says nothing of the daemon
			t.Skipf("no way to grow a disk: %v", err)
		}
		t.Logf("the disk grew by %s", way)
		disks.call("Rescan", nil)
		if got := disks.call("GetDiskStats", disk()).get("total_bytes").Int(); got != 2*gib {
			t.Errorf("the grown disk has %d bytes, want 2 GiB", got)
		}
		volumes.call("ResizeVolume", fields{"volume_id": id, "size_bytes": int64(0)})
		if got := volumes.call("GetVolumeStats", volume).get("total_bytes").Int(); got < before+gib-64<<20 {
			t.Errorf("the volume grew from %d to %d bytes with a disk that grew by 1 GiB", before, got)
		}
		wantThere(t, path+`\data`)
	})
	s.run("unmount", func(t *testing.T) {
		for range 2 { // the second time it isn't mounted any more
			newest(t, "volume").call("UnmountVolume", at)
			wantGone(t, path+`\data`)
			wantNoReparsePoint(t, path)
		}
	})
	s.run("remove", func(t *testing.T) {
		volumes := newest(t, "volume")
		volumes.call("MountVolume", at)
		// the mount point, not what is behind it
		newest(t, "filesystem").call("Rmdir", fields{"path": path, "force": true})
		wantGone(t, path)
		volumes.call("MountVolume", at)
		wantThere(t, path+`\data`)
		volumes.call("UnmountVolume", at)
	})
}

// wantNoReparsePoint asserts that at a path is a directory that leads nowhere.
func wantNoReparsePoint(t *testing.T, path string) {
	t.Helper()
	path16, err := windows.UTF16PtrFromString(path)
	must(t, err)
	const directory, link = windows.FILE_ATTRIBUTE_DIRECTORY, windows.FILE_ATTRIBUTE_REPARSE_POINT
	attributes, err := windows.GetFileAttributes(path16)
	if err != nil || attributes&(directory|link) != directory {
		t.Errorf("%s has the attributes %#x (%v), want a directory that is no mount point", path, attributes, err)
	}
}

// formatted partitions and formats a disk and returns the id of its volume.
func formatted(t *testing.T, number uint32) (id string) {
	t.Helper()
	disk := fields{"disk_number": number}
	newest(t, "disk").call("PartitionDisk", disk)
	volumes := newest(t, "volume")
	ids := volumes.call("ListVolumesOnDisk", disk).texts("volume_ids")
	if len(ids) != 1 {
		t.Fatalf("the disk has the volumes %q, want one", ids)
	}
	volumes.call("FormatVolume", fields{"volume_id": ids[0]})
	return ids[0]
}

// A mount point may lie deeper than the 260 characters of old programs.
func TestGuessLongMountPoint(t *testing.T) {
	path := startOnStorage(t)
	for len(path) < 300 {
		path += `\` + strings.Repeat("long", 20)
	}
	at := fields{"volume_id": formatted(t, newVirtualDisk(t, gib, 512).Number), "target_path": path}
	volumes := newest(t, "volume")
	for range 2 {
		volumes.call("MountVolume", at)
	}
	plant(t, path+`\data`)
	if got := volumes.call("GetVolumeIDFromTargetPath",
		fields{"target_path": path}).get("volume_id").String(); got != at["volume_id"] {
		t.Errorf("at the long path is %s, want %s", got, at["volume_id"])
	}
	for range 2 {
		volumes.call("UnmountVolume", at)
		wantGone(t, path+`\data`)
	}
}

// The daemon lays out a disk as Windows' storage management does, to the byte. On
// disks of less than 16 GiB Windows does it otherwise: published tests record a
// partition that ends 33 sectors before the end of a disk of 1 GiB.
func TestGuessLayout(t *testing.T) {
	startOnStorage(t)
	for _, sectorSize := range []uint32{512, 4096} {
		t.Run(fmt.Sprint(sectorSize), func(t *testing.T) {
			ours, theirs := newVirtualDisk(t, 16*gib, sectorSize), newVirtualDisk(t, 16*gib, sectorSize)
			newest(t, "disk").call("PartitionDisk", fields{"disk_number": ours.Number})
			initialize(t, theirs, "GPT")
			powershell(t, nil, "New-Partition -DiskNumber %d -UseMaximumSize", theirs.Number)
			if diff := cmp.Diff(getPartitions(t, theirs.Number), getPartitions(t, ours.Number)); diff != "" {
				t.Errorf("partitions with sectors of %d bytes (-Windows +daemon):\n%s", sectorSize, diff)
			}
		})
	}
}

// initialize gives a disk a partition table with Windows' own commands.
func initialize(t *testing.T, d *virtdisk.Disk, style string) {
	t.Helper()
	powershell(t, nil, "Update-HostStorageCache; Get-Disk -Number %d | Where-Object IsOffline | "+
		"Set-Disk -IsOffline $false", d.Number)
	powershell(t, nil, "Initialize-Disk -Number %d -PartitionStyle %s", d.Number, style)
}

// What the daemon says of all disks is what Windows' storage management says.
func TestGuessIdentity(t *testing.T) {
	startOnStorage(t)
	newVirtualDisk(t, gib, 512)
	ids := newest(t, "disk").call("ListDiskIDs", nil)
	for _, d := range getDisks(t) {
		id := ids.ofDisk("diskIDs", d.Number)
		if len(id) == 0 && d.Size > 0 {
			t.Errorf("ListDiskIDs lacks disk %d: it has %q", d.Number, ids.m)
		}
		if want := strings.Trim(d.SerialNumber, " "); id["serial_number"] != want {
			t.Errorf("disk %d has the serial number %q, Windows says %q", d.Number, id["serial_number"], want)
		}
		// Windows prefers other identifiers of page 83 than drivers compare, so
		// this is for the record.
		t.Logf("disk %d: page 83 %q, UniqueId %q", d.Number, id["page83"], d.UniqueID)
	}
}

// The disks that Windows runs from have no location by design, so it takes another one to compare.
func TestGuessLocation(t *testing.T) {
	startOnStorage(t)
	compared := 0
	locations := newest(t, "disk").call("ListDiskLocations", nil)
	for _, d := range getDisks(t) {
		location := locations.ofDisk("disk_locations", d.Number)
		t.Logf("disk %d: location %q, Windows says %q", d.Number, location, d.Location)
		parts := strings.Split(d.Location, " : ")
		if len(parts) < 5 || len(location) == 0 {
			continue
		}
		compared++
		for key, name := range map[string]string{"Adapter": "Adapter", "Bus": "Bus", "Target": "Target", "LUN": "LUNID"} {
			for _, part := range parts {
				if number, ok := strings.CutPrefix(part, key+" "); ok && location[name] != number {
					t.Errorf("disk %d has %s %q, Windows says %s", d.Number, name, location[name], number)
				}
			}
		}
	}
	if compared == 0 {
		t.Skip("there is no disk with a location that Windows doesn't run from")
	}
}

// A file that is attached as a disk has no location, as a container's scratch space.
func TestGuessLocationOfFile(t *testing.T) {
	startOnStorage(t)
	d := newVirtualDisk(t, gib, 512)
	if location := newest(t, "disk").call("ListDiskLocations", nil).ofDisk("disk_locations", d.Number); len(location) > 0 {
		t.Errorf("it has the location %q", location)
	}
}

// A disk that somebody has given an MBR with a partition counts as partitioned.
func nativeForeignTable(t *testing.T) {
	d := newVirtualDisk(t, gib, 512)
	initialize(t, d, "MBR")
	powershell(t, nil, "New-Partition -DiskNumber %d -Size 100MB", d.Number)
	before := getPartitions(t, d.Number)
	newest(t, "disk").call("PartitionDisk", fields{"disk_number": d.Number})
	if diff := cmp.Diff(before, getPartitions(t, d.Number)); diff != "" {
		t.Errorf("PartitionDisk changed the partitions:\n%s", diff)
	}
}

// The pods of a disk that was taken away have to end.
func nativeDetach(t *testing.T, path string) {
	disks, volumes := newest(t, "disk"), newest(t, "volume")
	d := newVirtualDisk(t, gib, 512)
	id := formatted(t, d.Number)
	at := fields{"volume_id": id, "target_path": path}
	volumes.call("MountVolume", at)
	must(t, d.Detach())
	disks.call("Rescan", nil)
	if !eventually(func() bool { return len(disks.call("ListDiskIDs", nil).ofDisk("diskIDs", d.Number)) == 0 }) {
		t.Error("the detached disk has ids")
	}
	if newest(t, "filesystem").call("IsSymlink", fields{"path": path}).get("is_symlink").Bool() {
		t.Error("a mount point of a volume that is gone counts as a link that leads somewhere")
	}
	for range 2 {
		volumes.call("UnmountVolume", at)
	}
	wantNoReparsePoint(t, path)
}

// windowsDisk is what Get-Disk says.
type windowsDisk struct {
	Number                 uint32
	Size                   int64
	IsOffline              bool
	SerialNumber, Location string
	UniqueID               string `json:"UniqueId"`
}

func getDisks(t *testing.T) []windowsDisk {
	t.Helper()
	var disks []windowsDisk
	powershell(t, &disks, "Update-HostStorageCache; Get-Disk | Select-Object "+
		"Number,Size,IsOffline,SerialNumber,Location,UniqueId")
	return disks
}

func getDisk(t *testing.T, number uint32) windowsDisk {
	t.Helper()
	var disks []windowsDisk
	powershell(t, &disks, "Update-HostStorageCache; Get-Disk -Number %d | Select-Object Number,Size,IsOffline", number)
	if len(disks) != 1 {
		t.Fatalf("Get-Disk knows %d disks %d", len(disks), number)
	}
	return disks[0]
}

// partition is what Get-Partition says.
type partition struct {
	PartitionNumber int
	Offset, Size    int64
	GptType         string
}

func getPartitions(t *testing.T, disk uint32) []partition {
	t.Helper()
	var partitions []partition
	powershell(t, &partitions, "Update-HostStorageCache; Get-Partition -DiskNumber %d | Sort-Object Offset | "+
		"Select-Object PartitionNumber,Offset,Size,GptType", disk)
	return partitions
}
