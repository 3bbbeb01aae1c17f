// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// The disk and volume groups against Windows itself, on virtual disks. Windows'
// own commands, which go another way than the daemon, say what is there.
func TestNativeStorage(t *testing.T) {
	notOnWine(t, "it has no virtual disks, no mount points and no storage management")
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Mkdir(kubelet, 0o700); err != nil {
		t.Fatal(err)
	}
	s := install(t, "-node=windows", "-kubelet-path="+kubelet)
	s.start()
	for _, sectorSize := range []uint32{512, 4096} {
		t.Run(fmt.Sprintf("life of a volume, sectors of %d bytes", sectorSize), func(t *testing.T) {
			nativeVolume(t, filepath.Join(kubelet, fmt.Sprint(sectorSize)), sectorSize)
		})
	}
	t.Run("layout", nativeLayout)
	t.Run("identity", nativeIdentity)
	t.Run("foreign partition table", nativeForeignTable)
	t.Run("detached while mounted", func(t *testing.T) { nativeDetach(t, filepath.Join(kubelet, "detached")) })
}

// nativeVolume stages, grows and unstages a volume at path.
func nativeVolume(t *testing.T, path string, sectorSize uint32) {
	disks, volumes, files := newest(t, "disk"), newest(t, "volume"), newest(t, "filesystem")
	d := newVirtualDisk(t, gib, sectorSize)
	disk := fields{"disk_number": d.number}

	disks.call("Rescan", nil)
	if got := disks.call("GetDiskStats", disk).get("total_bytes").Int(); got != gib {
		t.Errorf("the disk has %d bytes, want 1 GiB", got)
	}
	for _, online := range []bool{true, false, true} {
		disks.call("SetDiskState", fields{"disk_number": d.number, "is_online": online})
		if got := disks.call("GetDiskState", disk).get("is_online").Bool(); got != online {
			t.Errorf("GetDiskState says online: %t, want %t", got, online)
		}
		if got := getDisk(t, d.number).IsOffline; got == online {
			t.Errorf("Get-Disk says offline: %t after SetDiskState to online: %t", got, online)
		}
	}

	var id string
	for range 2 { // the second time it is partitioned already
		disks.call("PartitionDisk", disk)
		ids := volumes.call("ListVolumesOnDisk", disk).texts("volume_ids")
		if len(ids) != 1 || id != "" && ids[0] != id {
			t.Fatalf("the disk has the volumes %q, want one that stays", ids)
		}
		id = ids[0]
	}
	volume := fields{"volume_id": id}
	if volumes.call("IsVolumeFormatted", volume).get("formatted").Bool() {
		t.Error("a raw volume counts as formatted")
	}
	volumes.call("FormatVolume", volume)
	if !volumes.call("IsVolumeFormatted", volume).get("formatted").Bool() {
		t.Error("the volume isn't formatted after FormatVolume")
	}
	volumes.fail(codes.FailedPrecondition, "FormatVolume", volume)

	at := fields{"volume_id": id, "target_path": path}
	for range 2 { // the second time it is mounted there already
		volumes.call("MountVolume", at)
	}
	plant(t, path+`\data`)
	if !files.call("IsSymlink", fields{"path": path}).get("is_symlink").Bool() {
		t.Error("a mount point doesn't count as a link")
	}
	for method, request := range map[string]fields{
		"GetVolumeIDFromTargetPath":        {"target_path": path},
		"GetClosestVolumeIDFromTargetPath": {"target_path": path + `\data`},
	} {
		if got := volumes.call(method, request).get("volume_id").String(); got != id {
			t.Errorf("%s: %s, want %s", method, got, id)
		}
	}
	if got := volumes.call("GetDiskNumberFromVolumeID", volume).get("disk_number").String(); got != decimal(d.number) {
		t.Errorf("the volume lies on disk %s, want %d", got, d.number)
	}
	volumes.call("WriteVolumeCache", volume)

	volumes.call("ResizeVolume", fields{"volume_id": id, "size_bytes": int64(0)}) // nothing to grow
	before := volumes.call("GetVolumeStats", volume).get("total_bytes").Int()
	d.grow(2 * gib)
	disks.call("Rescan", nil)
	if got := disks.call("GetDiskStats", disk).get("total_bytes").Int(); got != 2*gib {
		t.Errorf("the grown disk has %d bytes, want 2 GiB", got)
	}
	volumes.call("ResizeVolume", fields{"volume_id": id, "size_bytes": int64(0)})
	if got := volumes.call("GetVolumeStats", volume).get("total_bytes").Int(); got < before+gib-64<<20 {
		t.Errorf("the volume grew from %d to %d bytes with a disk that grew by 1 GiB", before, got)
	}
	wantThere(t, path+`\data`)

	for range 2 { // the second time it isn't mounted any more
		volumes.call("UnmountVolume", at)
		wantGone(t, path+`\data`)
		wantThere(t, path)
	}
	volumes.call("MountVolume", at)
	files.call("Rmdir", fields{"path": path, "force": true}) // the mount point, not what is behind it
	wantGone(t, path)
	volumes.call("MountVolume", at)
	wantThere(t, path+`\data`)
	volumes.call("UnmountVolume", at)
}

// The daemon lays out a disk as Windows' storage management does, to the byte. On
// smaller disks that one lets the last partition end elsewhere.
func nativeLayout(t *testing.T) {
	for _, sectorSize := range []uint32{512, 4096} {
		ours, theirs := newVirtualDisk(t, 16*gib, sectorSize), newVirtualDisk(t, 16*gib, sectorSize)
		newest(t, "disk").call("PartitionDisk", fields{"disk_number": ours.number})
		powershell(t, nil, "Initialize-Disk -Number %d -PartitionStyle GPT", theirs.number)
		powershell(t, nil, "New-Partition -DiskNumber %d -UseMaximumSize", theirs.number)
		if diff := cmp.Diff(getPartitions(t, theirs.number), getPartitions(t, ours.number)); diff != "" {
			t.Errorf("partitions with sectors of %d bytes (-Windows +daemon):\n%s", sectorSize, diff)
		}
	}
}

// What the daemon says of all disks is what Windows' storage management says.
func nativeIdentity(t *testing.T) {
	newVirtualDisk(t, gib, 512)
	disks := newest(t, "disk")
	ids, locations := disks.call("ListDiskIDs", nil), disks.call("ListDiskLocations", nil)
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

		location := locations.ofDisk("disk_locations", d.Number)
		t.Logf("disk %d: location %q, Windows says %q", d.Number, location, d.Location)
		if parts := strings.Split(d.Location, " : "); len(parts) >= 5 {
			for key, name := range map[string]string{"Adapter": "Adapter", "Bus": "Bus", "Target": "Target", "LUN": "LUNID"} {
				for _, part := range parts {
					if number, ok := strings.CutPrefix(part, key+" "); ok && location[name] != number {
						t.Errorf("disk %d has %s %q, Windows says %s", d.Number, name, location[name], number)
					}
				}
			}
		}
	}
}

// A disk that somebody has given an MBR with a partition counts as partitioned.
func nativeForeignTable(t *testing.T) {
	d := newVirtualDisk(t, gib, 512)
	powershell(t, nil, "Initialize-Disk -Number %d -PartitionStyle MBR", d.number)
	powershell(t, nil, "New-Partition -DiskNumber %d -Size 100MB", d.number)
	before := getPartitions(t, d.number)
	newest(t, "disk").call("PartitionDisk", fields{"disk_number": d.number})
	if diff := cmp.Diff(before, getPartitions(t, d.number)); diff != "" {
		t.Errorf("PartitionDisk changed the partitions:\n%s", diff)
	}
}

// The pods of a disk that was taken away have to end.
func nativeDetach(t *testing.T, path string) {
	disks, volumes := newest(t, "disk"), newest(t, "volume")
	d := newVirtualDisk(t, gib, 512)
	disks.call("PartitionDisk", fields{"disk_number": d.number})
	id := volumes.call("ListVolumesOnDisk", fields{"disk_number": d.number}).texts("volume_ids")[0]
	volumes.call("FormatVolume", fields{"volume_id": id})
	at := fields{"volume_id": id, "target_path": path}
	volumes.call("MountVolume", at)
	d.detach()
	disks.call("Rescan", nil)
	if got := disks.call("ListDiskIDs", nil).ofDisk("diskIDs", d.number); len(got) != 0 {
		t.Errorf("the detached disk has the ids %q", got)
	}
	if newest(t, "filesystem").call("IsSymlink", fields{"path": path}).get("is_symlink").Bool() {
		t.Error("a mount point of a volume that is gone counts as a link that leads somewhere")
	}
	for range 2 {
		volumes.call("UnmountVolume", at)
	}
	wantThere(t, path)
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
	powershell(t, &disks, "Get-Disk | Select-Object Number,Size,IsOffline,SerialNumber,Location,UniqueId")
	return disks
}

func getDisk(t *testing.T, number uint32) windowsDisk {
	t.Helper()
	var disks []windowsDisk
	powershell(t, &disks, "Get-Disk -Number %d | Select-Object Number,Size,IsOffline", number)
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
	powershell(t, &partitions, "Get-Partition -DiskNumber %d | Sort-Object Offset | Select-Object PartitionNumber,Offset,Size,GptType", disk)
	return partitions
}

// powershell runs a pipeline and decodes the list of what comes out into v, unless
// that is nil. It also runs in a cleanup.
func powershell(t *testing.T, v any, format string, args ...any) {
	t.Helper()
	pipeline := fmt.Sprintf(format, args...)
	script := fmt.Sprintf("$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'; Update-HostStorageCache; "+
		"ConvertTo-Json -Compress -InputObject @(%s)", pipeline)
	out, err := exec.Command("powershell.exe", "-NoProfile", "-NonInteractive", "-Command", script).Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			out = exit.Stderr
		}
		t.Fatalf("%s: %v\n%s", pipeline, err, out)
	}
	if v == nil {
		return
	}
	if err := json.Unmarshal(out, v); err != nil {
		t.Fatalf("%s printed %q: %v", pipeline, out, err)
	}
}
