// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// TestVolumeArrival: the volume of a new partition comes after the call, with a
// notice.
func TestVolumeArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openNode(t, Config{Delays: Delays{VolumeArrival: time.Second}})
		n := attach(t, s, DiskSpec{})
		createGPT(t, s, n)
		arrived, stop, err := s.NotifyArrivals(t.Context(), win.InterfaceClassVolume)
		must(t, err)
		defer stop()
		must(t, setLayout(s, t, n, data(mib, gib)))
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if v := s.VolumesOfDisk(n); len(v) != 0 {
			t.Errorf("after almost a second there is %q", v)
		}
		start := time.Now()
		<-arrived
		if waited := time.Since(start); waited != 1 {
			t.Errorf("it took %v longer", waited)
		}
		if v := s.VolumesOfDisk(n); len(v) != 1 {
			t.Errorf("after the notice there is %q", v)
		}
		must(t, s.Close())
	})
}

// TestVolumeArrivalTooLate: a partition that is gone before its volume is there
// leaves no volume.
func TestVolumeArrivalTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openNode(t, Config{Delays: Delays{VolumeArrival: time.Second}})
		n := attach(t, s, DiskSpec{})
		createGPT(t, s, n)
		must(t, setLayout(s, t, n, data(mib, gib)))
		must(t, setLayout(s, t, n))
		s.Settle()
		if v := s.VolumesOfDisk(n); len(v) != 0 {
			t.Errorf("volumes %q of no partition", v)
		}
		must(t, setLayout(s, t, n, data(mib, gib)))
		must(t, s.Reboot()) // brings it at once
		s.Settle()
		if v := s.VolumesOfDisk(n); len(v) != 1 {
			t.Errorf("volumes %q of one partition", v)
		}
		must(t, setLayout(s, t, n, data(2*gib, gib)))
		must(t, s.Close()) // doesn't wait for arrivals
	})
}

func TestDiskArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openNode(t, Config{Delays: Delays{DiskArrival: time.Second}})
		arrived, stop, err := s.NotifyArrivals(t.Context(), win.InterfaceClassDisk)
		must(t, err)
		a, b := attach(t, s, DiskSpec{Serial: "a"}), attach(t, s, DiskSpec{})
		if a != 1 || b != 2 {
			t.Errorf("numbers %d and %d", a, b)
		}
		_, err = s.OpenDevice(t.Context(), drivePath(a), win.AccessNone)
		wantErr(t, "open a disk that is on its way", err, winerr.ErrorFileNotFound)
		must(t, s.DetachDisk(b))
		<-arrived // the removal
		<-arrived
		if state := s.Disks()[1].State; state != disks.Present {
			t.Errorf("after the notice it is %s", state)
		}
		closeHandle(t, openDevice(t, s, drivePath(a), win.AccessNone))
		s.Settle()
		if state := s.Disks()[2].State; state != disks.Detached {
			t.Errorf("the disk that was pulled on its way is %s", state)
		}
		stop()
		must(t, s.DetachDisk(a))
		select {
		case <-arrived:
			t.Error("a notice after the end of the registration")
		default:
		}
		must(t, s.Close())
	})
}

// TestVolumeIdentity: a volume has its name as long as its partition exists.
func TestVolumeIdentity(t *testing.T) {
	s := newNode(t, Delays{})
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", []byte("content")))
	check := func(what string, n csiproxy.DiskNumber) {
		t.Helper()
		s.Settle()
		if v := s.VolumesOfDisk(n); !slices.Equal(v, []string{name}) {
			t.Errorf("%s: volumes %q, want %q", what, v, name)
		}
		wantText(t, s, name+"file", "content")
	}
	set := func(a win.DiskAttributes) {
		t.Helper()
		must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskOffline, Attributes: a}))
	}
	set(win.DiskOffline)
	if v := s.VolumesOfDisk(n); len(v) != 0 {
		t.Errorf("an offline disk has the volumes %q", v)
	}
	wantErr(t, "read from an offline disk", errorOf(s.ReadFile(name+"file")), winerr.ErrorPathNotFound)
	wantErr(t, "information on an offline disk", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorPathNotFound)
	set(0)
	check("online again", n)
	must(t, s.Reboot())
	check("after a restart", n)
	serial := s.Disks()[1].Spec.Serial
	must(t, s.DetachDisk(n))
	n = attach(t, s, DiskSpec{Serial: serial})
	check("attached again", n)

	part := layoutOf(t, s, n).Partitions[0]
	must(t, setLayout(s, t, n))
	if v := s.VolumesOfDisk(n); len(v) != 0 {
		t.Errorf("without the partition: %q", v)
	}
	must(t, setLayout(s, t, n, part))
	check("partitioned as before", n)
	part.Attributes |= win.GPTAttributeHidden
	must(t, setLayout(s, t, n, part))
	if v := s.VolumesOfDisk(n); len(v) != 0 {
		t.Errorf("a hidden partition has the volumes %q", v)
	}
}

func TestVolumeControls(t *testing.T) {
	s := newNode(t, Delays{})
	n, name := newVolume(t, s, true)
	number, err := win.DecodeDeviceNumber(mustControl(t, s, device1(name), win.IoctlStorageGetDeviceNumber, nil))
	must(t, err)
	if want := (win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: n, PartitionNumber: 1}); number != want {
		t.Errorf("device number %+v, want %+v", number, want)
	}
	extents, err := win.DecodeDiskExtents(mustControl(t, s, device1(name), win.IoctlVolumeGetVolumeDiskExtents, nil))
	must(t, err)
	if diff := cmp.Diff([]win.DiskExtent{{DiskNumber: n, StartingOffset: 16 * mib, Length: 4 * gib}},
		extents); diff != "" {
		t.Errorf("extents (-want +got):\n%s", diff)
	}
	if size, err := win.DecodeInt64(mustControl(t, s, device1(name), win.IoctlDiskGetLengthInfo, nil)); err != nil ||
		size != 4*gib {
		t.Errorf("length %d, %v", size, err)
	}
	for _, tc := range []struct {
		name   string
		access win.Access
		code   win.IoctlCode
		out    int
		want   winerr.Errno
	}{
		{"extents", win.AccessNone, win.IoctlVolumeGetVolumeDiskExtents, 32, 0},
		{"extents, count only", win.AccessNone, win.IoctlVolumeGetVolumeDiskExtents, 31, winerr.ErrorMoreData},
		{"extents, short", win.AccessNone, win.IoctlVolumeGetVolumeDiskExtents, 7, winerr.ErrorInsufficientBuffer},
		{"NTFS data", win.AccessNone, win.FsctlGetNtfsVolumeData, 96, 0},
		{"NTFS data, short", win.AccessNone, win.FsctlGetNtfsVolumeData, 95, winerr.ErrorInsufficientBuffer},
		{"ReFS data of NTFS", win.AccessNone, win.FsctlGetRefsVolumeData, 152, winerr.ErrorInvalidFunction},
		{"online, no access", win.AccessNone, win.IoctlVolumeOnline, 0, winerr.ErrorAccessDenied},
		{"offline, no access", win.AccessNone, win.IoctlVolumeOffline, 0, winerr.ErrorAccessDenied},
		{"control of a disk", readWrite, win.IoctlDiskGetDriveLayoutEx, 4096, winerr.ErrorInvalidFunction},
	} {
		d := openDevice(t, s, device1(name), tc.access)
		wantErr(t, tc.name, errorOf(d.Control(t.Context(), tc.code, nil, make([]byte, tc.out))), tc.want)
		closeHandle(t, d)
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct {
		name       string
		sectorSize uint32
		options    win.FormatOptions
		cluster    uint32
	}{
		{"NTFS", 512, win.FormatOptions{FileSystem: "NTFS", Label: "data"}, 4096},
		{"4096-byte sectors", 4096, win.FormatOptions{FileSystem: "NTFS"}, 4096},
		{"64 KiB clusters", 512, win.FormatOptions{FileSystem: "NTFS", ClusterSize: 64 << 10}, 64 << 10},
		{"2 MiB clusters", 512, win.FormatOptions{FileSystem: "NTFS", ClusterSize: 2 << 20}, 2 << 20},
		{"512-byte clusters", 512, win.FormatOptions{FileSystem: "NTFS", ClusterSize: 512}, 512},
		{"no short names", 512, win.FormatOptions{FileSystem: "NTFS", NoShortNames: true}, 4096},
		{"ReFS", 4096, win.FormatOptions{FileSystem: "ReFS", Label: strings.Repeat("x", 32)}, 4096},
		{"ReFS with integrity streams", 512,
			win.FormatOptions{FileSystem: "ReFS", IntegrityStreams: true, ClusterSize: 64 << 10}, 64 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newNode(t, Delays{})
			n := attach(t, s, DiskSpec{SectorSize: tc.sectorSize})
			createGPT(t, s, n)
			must(t, setLayout(s, t, n, data(16*mib, 4*gib)))
			s.Settle()
			name := s.VolumesOfDisk(n)[0]
			_, err := s.VolumeInformation(t.Context(), name)
			wantErr(t, "information on a raw volume", err, winerr.ErrorUnrecognizedVolume)
			wantErr(t, "space of a raw volume", errorOf(s.DiskFreeSpace(t.Context(), name)), winerr.ErrorUnrecognizedVolume)
			_, err = control(t, s, device1(name), win.FsctlGetNtfsVolumeData, nil)
			wantErr(t, "NTFS data of a raw volume", err, winerr.ErrorInvalidFunction)

			must(t, s.FormatVolume(t.Context(), name, tc.options))
			info, err := s.VolumeInformation(t.Context(), name)
			must(t, err)
			if info.FileSystem != tc.options.FileSystem || info.Label != tc.options.Label {
				t.Errorf("information %+v", info)
			}
			if v := s.Volumes()[1]; v.FileSystem != tc.options.FileSystem || v.ClusterSize != tc.cluster ||
				v.NoShortNames != tc.options.NoShortNames || v.IntegrityStreams != tc.options.IntegrityStreams {
				t.Errorf("the volume is %+v", v)
			}
			code, decode := win.FsctlGetNtfsVolumeData, win.DecodeNTFSVolumeData
			if tc.options.FileSystem == "ReFS" {
				code, decode = win.FsctlGetRefsVolumeData, win.DecodeREFSVolumeData
			}
			data, err := decode(mustControl(t, s, device1(name), code, nil))
			must(t, err)
			sectors := 4*gib/int64(tc.sectorSize) - 1 // the last one is for the copy of the boot sector
			if data.NumberSectors != sectors || data.BytesPerSector != tc.sectorSize || data.BytesPerCluster != tc.cluster ||
				data.TotalClusters != sectors*int64(tc.sectorSize)/int64(tc.cluster) {
				t.Errorf("data %+v", data)
			}
			space, err := s.DiskFreeSpace(t.Context(), name)
			must(t, err)
			if space.Total != uint64(data.TotalClusters)*uint64(tc.cluster) ||
				space.Free != uint64(data.FreeClusters)*uint64(tc.cluster) ||
				space.Free >= space.Total || space.Available != space.Free {
				t.Errorf("space %+v, data %+v", space, data)
			}
			boot, backup := make([]byte, tc.sectorSize), make([]byte, tc.sectorSize)
			must(t, s.ReadImage(n, boot, 16*mib))
			must(t, s.ReadImage(n, backup, 16*mib+4*gib-int64(tc.sectorSize)))
			if !strings.HasPrefix(string(boot[3:]), tc.options.FileSystem) || string(boot) != string(backup) {
				t.Errorf("the boot sector says %q, its copy %q", boot[3:11], backup[3:11])
			}
		})
	}
}

func TestFormatErrors(t *testing.T) {
	s := newNode(t, Delays{})
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", nil))
	ntfs := win.FormatOptions{FileSystem: "NTFS"}
	for _, tc := range []struct {
		name    string
		volume  string
		options win.FormatOptions
		want    winerr.Errno
	}{
		{"no backslash", device1(name), ntfs, winerr.ErrorRetry},
		{"a path", `C:\`, ntfs, winerr.ErrorRetry},
		{"unknown volume", `\\?\Volume{00000000-0000-0000-0000-000000000000}\`, ntfs, winerr.ErrorRetry},
		{"unknown file system", name, win.FormatOptions{FileSystem: "ext4"}, winerr.ErrorNotSupported},
		{"label of 33 units", name, win.FormatOptions{FileSystem: "NTFS", Label: strings.Repeat("x", 31) + "𝒳"},
			winerr.ErrorLabelTooLong},
		{"odd cluster", name, win.FormatOptions{FileSystem: "NTFS", ClusterSize: 3000}, winerr.ErrorInvalidParameter},
		{"small cluster", name, win.FormatOptions{FileSystem: "NTFS", ClusterSize: 256}, winerr.ErrorInvalidParameter},
		{"ReFS without short names", name, win.FormatOptions{FileSystem: "ReFS", NoShortNames: true},
			winerr.ErrorInvalidParameter},
		{"ReFS with other clusters", name, win.FormatOptions{FileSystem: "ReFS", ClusterSize: 8192},
			winerr.ErrorInvalidParameter},
		{"NTFS with integrity streams", name, win.FormatOptions{FileSystem: "NTFS", IntegrityStreams: true},
			winerr.ErrorInvalidParameter},
		{"great cluster", name, win.FormatOptions{FileSystem: "NTFS", ClusterSize: 4 << 20}, winerr.ErrorInvalidParameter},
	} {
		wantErr(t, tc.name, s.FormatVolume(t.Context(), tc.volume, tc.options), tc.want)
	}

	f, err := s.Hold(name+"file", existing(win.FileReadAttributes, 0))
	must(t, err)
	wantErr(t, "a file is open", s.FormatVolume(t.Context(), name, ntfs), winerr.ErrorGenFailure)
	closeHandle(t, f)
	v := openDevice(t, s, device1(name), win.GenericRead)
	wantErr(t, "the volume is open", s.FormatVolume(t.Context(), name, ntfs), winerr.ErrorGenFailure)
	closeHandle(t, v)

	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))
	wantErr(t, "read-only disk", s.FormatVolume(t.Context(), name, ntfs), winerr.ErrorWriteProtect)
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly}))
	must(t, s.SetVolumeLocked(name, true))
	wantErr(t, "locked volume", s.FormatVolume(t.Context(), name, ntfs), winerr.FVELockedVolume)
	must(t, s.SetVolumeLocked(name, false))

	if _, err := s.ReadFile(name + "file"); err != nil {
		t.Errorf("a failed format did harm: %v", err)
	}
	v = openDevice(t, s, device1(name), win.AccessNone) // attributes alone keep nobody away
	wantErr(t, "format", s.FormatVolume(t.Context(), name, ntfs), 0)
	closeHandle(t, v)
	wantErr(t, "read a file of before", errorOf(s.ReadFile(name+"file")), winerr.ErrorFileNotFound)
	trees := 0
	for name := range dump(s) {
		if strings.HasPrefix(name, "tree 1 ") {
			trees++
		}
	}
	if trees != 1 {
		t.Errorf("the disk keeps %d file systems", trees)
	}
}

// TestContentsDecide: the bytes at its start say what a volume holds.
func TestContentsDecide(t *testing.T) {
	s := newNode(t, Delays{})
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", []byte("content")))
	boot := make([]byte, 512)
	must(t, s.ReadImage(n, boot, 16*mib))

	must(t, s.WriteImage(n, make([]byte, 512), 16*mib))
	wantErr(t, "without a boot sector", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorUnrecognizedVolume)
	wantErr(t, "read without a boot sector", errorOf(s.ReadFile(name+"file")), winerr.ErrorUnrecognizedVolume)
	must(t, s.WriteImage(n, []byte{0x53, 0xEF}, 16*mib+1024+56)) // ext4's magic number
	wantErr(t, "with ext4", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorUnrecognizedVolume)

	must(t, s.WriteImage(n, boot, 16*mib))
	wantText(t, s, name+"file", "content")
	foreign := slices.Clone(boot)
	foreign[72] ^= 1 // the serial number
	must(t, s.WriteImage(n, foreign, 16*mib))
	_, err := s.VolumeInformation(t.Context(), name)
	wantErr(t, "with the boot sector of another volume", err, winerr.ErrorUnrecognizedVolume)

	must(t, s.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}))
	magic := make([]byte, 2)
	must(t, s.ReadImage(n, magic, 16*mib+1024+56))
	if string(magic) != "\x00\x00" {
		t.Errorf("the format left ext4's magic number % x", magic)
	}
}

func TestLockedVolume(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"held", nil))
	held, err := s.OpenFile(t.Context(), name+"held", win.OpenOptions{Disposition: win.FileOpen})
	must(t, err)
	defer closeHandle(t, held)
	must(t, s.SetVolumeLocked(name, true))
	wantErr(t, "a file that was open", errorOf(held.Info(t.Context())), winerr.ErrorFileInvalid)
	wantErr(t, "information", errorOf(s.VolumeInformation(t.Context(), name)), winerr.FVELockedVolume)
	wantErr(t, "space", errorOf(s.DiskFreeSpace(t.Context(), name)), winerr.FVELockedVolume)
	wantErr(t, "write", s.WriteFile(name+"file", nil), winerr.FVELockedVolume)
	must(t, s.SetVolumeLocked(name, false))
	wantErr(t, "write to the unlocked volume", s.WriteFile(name+"file", nil), 0)
	wantErr(t, "lock an unknown volume", s.SetVolumeLocked(`Y:\`, true), winerr.ErrorNotFound)
}

func TestExtend(t *testing.T) {
	for _, fs := range []string{"NTFS", "ReFS"} {
		s := newNode(t, Delays{})
		n, name := newVolume(t, s, false)
		must(t, s.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: fs, ClusterSize: 4096}))
		extend := func(sectors int64) error {
			_, err := control(t, s, device1(name), win.FsctlExtendVolume, win.EncodeInt64(sectors))
			return err
		}
		const sectors = 4 * gib / 512
		wantErr(t, "beyond the partition", extend(sectors+8), winerr.ErrorInvalidParameter)
		mustControl(t, s, drivePath(n), win.IoctlDiskGrowPartition,
			win.GrowPartition{PartitionNumber: 1, BytesToGrow: gib}.Encode())
		before, err := s.DiskFreeSpace(t.Context(), name)
		must(t, err)
		wantErr(t, "shrink", extend(sectors-8), winerr.ErrorInvalidParameter)
		wantErr(t, "to the same", extend(sectors), winerr.ErrorInvalidParameter)
		wantErr(t, "by less than a cluster", extend(sectors+7), winerr.ErrorInvalidParameter)
		wantErr(t, "to nothing", extend(0), winerr.ErrorInvalidParameter)
		wantErr(t, "to less than nothing", extend(-1<<62), winerr.ErrorInvalidParameter)
		_, err = control(t, s, device1(name), win.FsctlExtendVolume, make([]byte, 7))
		wantErr(t, "short input", err, winerr.ErrorInvalidParameter)
		must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}))
		wantErr(t, "on a read-only disk", extend(sectors+gib/512), winerr.ErrorWriteProtect)
		must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly}))
		wantErr(t, "by a cluster", extend(sectors+8), 0)
		wantErr(t, "to all", extend(sectors+gib/512), 0)
		after, err := s.DiskFreeSpace(t.Context(), name)
		must(t, err)
		if after.Total != before.Total+gib || after.Free <= before.Free {
			t.Errorf("%s: space before %+v, after %+v", fs, before, after)
		}
	}
}

func TestExtendRaw(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, false)
	_, err := control(t, s, device1(name), win.FsctlExtendVolume, win.EncodeInt64(1))
	wantErr(t, "extend a raw volume", err, winerr.ErrorInvalidFunction)
}

func TestUsedSpace(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, true)
	free := func() int64 {
		t.Helper()
		space, err := s.DiskFreeSpace(t.Context(), name)
		must(t, err)
		return int64(space.Free)
	}
	before := free()
	must(t, s.WriteFile(name+"file", make([]byte, 10*mib)))
	if used := before - free(); used < 10*mib || used > 10*mib+64<<10 {
		t.Errorf("a file of 10 MiB uses %d bytes", used)
	}
	must(t, s.Remove(name+"file"))
	if free() != before {
		t.Errorf("after the deletion %d bytes are free, before %d", free(), before)
	}
}

func TestAutomount(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	createGPT(t, s, n)
	lettered := data(mib, gib)
	lettered.Attributes = 0
	must(t, s.SetSettings(Settings{NoAutomount: true}))
	must(t, setLayout(s, t, n, data(2*gib, gib)))
	s.Settle()
	name := s.VolumesOfDisk(n)[0]
	wantErr(t, "a volume that waits", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorNotReady)
	wantErr(t, "format it", s.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}), winerr.ErrorNotReady)
	must(t, s.Reboot())
	wantErr(t, "after a restart", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorNotReady)
	mustControl(t, s, device1(name), win.IoctlVolumeOnline, nil)
	wantErr(t, "online", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorUnrecognizedVolume)
	must(t, s.Reboot())
	wantErr(t, "online, after a restart", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorUnrecognizedVolume)

	mustControl(t, s, device1(name), win.IoctlVolumeOffline, nil)
	wantErr(t, "offline", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorNotReady)
	d := openDevice(t, s, device1(name), readWrite)
	wantErr(t, "reading it offline", errorOf(d.ReadAt(t.Context(), make([]byte, 4096), 0)), winerr.ErrorNotReady)
	closeHandle(t, d)
	mustControl(t, s, device1(name), win.IoctlVolumeOnline, nil)
	wantErr(t, "online again", errorOf(s.VolumeInformation(t.Context(), name)), winerr.ErrorUnrecognizedVolume)
	d = openDevice(t, s, `\\.\C:`, readWrite)
	_, err := d.Control(t.Context(), win.IoctlVolumeOffline, nil, nil)
	wantErr(t, "the system volume", err, winerr.ErrorAccessDenied)
	closeHandle(t, d)

	must(t, s.SetSettings(Settings{}))
	must(t, setLayout(s, t, n, lettered, layoutOf(t, s, n).Partitions[0]))
	s.Settle()
	other := lettered
	other.StartingOffset, other.ID = 4*gib, winid.NewGUID()
	must(t, setLayout(s, t, n, append(layoutOf(t, s, n).Partitions, other)...))
	s.Settle()
	if e, err := s.VolumeNameForMountPoint(t.Context(), `E:\`); err != nil || e != s.VolumesOfDisk(n)[2] {
		t.Errorf("E: is %q, %v; volumes %q", e, err, s.VolumesOfDisk(n))
	}
	letter, err := s.VolumeNameForMountPoint(t.Context(), `D:\`)
	if err != nil || len(s.VolumesOfDisk(n)) != 3 || letter == name || !slices.Contains(s.VolumesOfDisk(n), letter) {
		t.Errorf("D: is %q, %v; volumes %q", letter, err, s.VolumesOfDisk(n))
	}
}
