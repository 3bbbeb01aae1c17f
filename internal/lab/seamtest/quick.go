// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// RunQuick tests the most important assumptions about Windows on one disk, within a minute. Each test has the id of its
// assumption in internal/lab/wintest/assumptions.txt, and logs the answer of Windows. The function run starts a test;
// nil stands for t.Run.
func RunQuick(t *testing.T, c Config, run func(row string, test func(t testing.TB))) {
	if run == nil {
		run = func(row string, test func(t testing.TB)) { t.Run(row, func(t *testing.T) { test(t) }) }
	}
	f := c.New(t)
	f.skipWithout(t, []need{aDirectory, aDisk})
	q := &quick{Fixture: f, disk: f.NewDisk(t)}
	for _, assumption := range quickAssumptions {
		run(assumption.row, func(t testing.TB) { assumption.test(t, q) })
	}
}

// quickAssumptions are the tests of RunQuick. Later tests use the partition and the file system that earlier ones make.
var quickAssumptions = []struct {
	row  string
	test func(t testing.TB, q *quick)
}{
	{"disk-attributes-version", quickAttributes}, // so the disk is online
	{"blank-disk", quickBlankDisk},
	{"disk-create", quickCreate},
	{"volume-of-partition", quickVolume},
	{"refused-at-first", quickFormat},
	{"mount-held", quickMount},
	{"volume-lock", quickLock},
	{"unstage-locked", quickUnmount},
	{"grow", quickGrow},
	{"gpt-grows", quickDiskGrows},
	{"offline-locked", quickOffline},
	{"offline-layout", quickOfflineLayout},
}

// QuickRows returns the ids of the assumptions that RunQuick tests.
func QuickRows() (rows []string) {
	for _, assumption := range quickAssumptions {
		rows = append(rows, assumption.row)
	}
	return rows
}

// quick is the state of RunQuick.
type quick struct {
	*Fixture
	disk      Disk
	volume    string // "" until the disk has a partition
	formatted bool
}

func (q *quick) drive() string { return physicalDrive(q.disk.Number) }

// needVolume skips a test that needs the formatted volume, if there is none.
func (q *quick) needVolume(t testing.TB) {
	t.Helper()
	if !q.formatted {
		t.Skip("it needs a formatted volume")
	}
}

// untilReady makes a change, repeats it while Windows isn't ready, and logs the refusals.
func untilReady(t testing.TB, what string, change func() error) {
	t.Helper()
	var refusals []string
	begin := time.Now()
	err := operation.UntilReady(t.Context(), func() error { return nil }, func() error {
		err := change()
		if err != nil && (len(refusals) == 0 || refusals[len(refusals)-1] != err.Error()) {
			refusals = append(refusals, err.Error())
		}
		return err
	})
	waited := time.Since(begin).Round(10 * time.Millisecond)
	switch {
	case err != nil:
		t.Fatalf("%s is refused after %v: %s", what, waited, strings.Join(refusals, "; then "))
	case len(refusals) > 0:
		t.Logf("%s succeeds after %v; before: %s", what, waited, strings.Join(refusals, "; then "))
	default:
		t.Logf("%s succeeds at the first attempt", what)
	}
}

// basicData returns the data partition.
func (q *quick) basicData(t testing.TB) win.Partition {
	t.Helper()
	l := q.layout(t, q.disk.Number)
	i := slices.IndexFunc(l.Partitions, func(p win.Partition) bool { return p.Type == win.PartitionTypeBasicData })
	if i < 0 {
		t.Fatalf("the data partition isn't among %+v", l.Partitions)
	}
	return l.Partitions[i]
}

// sectors reads the first two sectors of the disk.
func (q *quick) sectors(t testing.TB) []byte {
	t.Helper()
	d := q.device(t, q.drive(), win.GenericRead)
	defer closing(t, d)
	sectors := make([]byte, 2*512)
	if n, err := d.ReadAt(t.Context(), sectors, 0); err != nil || n != len(sectors) {
		t.Fatalf("read the first sectors: %d bytes, %v", n, err)
	}
	return sectors
}

func quickAttributes(t testing.TB, q *quick) {
	for _, want := range []win.DiskAttributes{win.DiskOffline | win.DiskReadOnly, 0} {
		set := win.SetDiskAttributes{Attributes: want, Mask: win.DiskOffline | win.DiskReadOnly}
		untilReady(t, fmt.Sprintf("setting the attributes %d", want), func() error {
			return errorOf(q.control(t, q.drive(), win.IoctlDiskSetDiskAttributes, set.Encode(), 0))
		})
		out, err := q.control(t, q.drive(), win.IoctlDiskGetDiskAttributes, nil, 16)
		must(t, err)
		if got, err := win.DecodeGetDiskAttributes(out); err != nil || got != want {
			t.Errorf("the disk has the attributes %d, %v, want %d", got, err, want)
		}
	}
}

func quickBlankDisk(t testing.TB, q *quick) {
	if sectors := q.sectors(t); strings.Trim(string(sectors), "\x00") != "" {
		t.Fatalf("the new disk isn't blank: % x", sectors)
	}
	out, err := q.control(t, q.drive(), win.IoctlDiskGetDriveLayoutEx, nil, 64<<10)
	if winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported) {
		t.Logf("the query for its table fails: %v", err)
		return
	}
	must(t, err)
	l, err := win.DecodeDriveLayout(out)
	must(t, err)
	t.Logf("its table has style %d, signature %#x, partitions %v", l.Style, l.Signature, l.Partitions)
	if l.Style == win.StyleGPT || l.Style == win.StyleMBR && l.Signature != 0 || len(l.Partitions) > 0 {
		t.Error("the table of a blank disk isn't blank")
	}
}

func quickCreate(t testing.TB, q *quick) {
	create := win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: 128}
	_, err := q.control(t, q.drive(), win.IoctlDiskCreateDisk, create.Encode(), 0)
	must(t, err)
	t.Logf("IOCTL_DISK_CREATE_DISK adds %d partitions", len(q.layout(t, q.disk.Number).Partitions))
	must(t, q.setLayout(t, q.disk.Number, dataPartition(16<<20, partitionSize)))
	l := q.layout(t, q.disk.Number)
	if l.Style != win.StyleGPT || len(l.Partitions) != 1 || l.Partitions[0].StartingOffset != 16<<20 ||
		l.Partitions[0].Length != partitionSize {
		t.Errorf("the table has style %d and the partitions %+v, want one of 256 MiB at 16 MiB", l.Style, l.Partitions)
	}
}

func quickVolume(t testing.TB, q *quick) {
	path := fmt.Sprintf(`\\?\GLOBALROOT\Device\Harddisk%d\Partition%d\`, q.disk.Number, q.basicData(t).Number)
	_, err := q.System.VolumeNameForMountPoint(t.Context(), path)
	t.Logf("asked at once for the volume's name, Windows answers %v", err)
	q.volume = q.volumeOf(t, q.disk.Number)
	_, err = q.System.VolumeInformation(t.Context(), q.volume)
	t.Logf("asked for the volume's file system, %v", err)
	if name, err := q.System.VolumeNameForMountPoint(t.Context(), path); err != nil || !strings.EqualFold(name, q.volume) {
		t.Errorf("%s leads to %q, %v, want %s", path, name, err, q.volume)
	}
}

func quickFormat(t testing.TB, q *quick) {
	if q.volume == "" {
		t.Skip("it needs a volume")
	}
	untilReady(t, "formatting the new volume", func() error {
		return q.System.FormatVolume(t.Context(), q.volume, win.FormatOptions{FileSystem: "NTFS", Label: "quick"})
	})
	info, err := q.System.VolumeInformation(t.Context(), q.volume)
	if err != nil || info.FileSystem != "NTFS" {
		t.Fatalf("the formatted volume has %+v, %v, want NTFS", info, err)
	}
	q.formatted = true
}

// mounted mounts the volume at a new directory, for the time of a test.
func (q *quick) mounted(t testing.TB, name string) (mountPoint string) {
	t.Helper()
	mountPoint = q.Directory + `\` + name + `\`
	q.make(t, mountPoint)
	untilReady(t, "mounting", func() error { return q.System.SetVolumeMountPoint(t.Context(), mountPoint, q.volume) })
	// For tests that fail: the others unmount it themselves.
	t.Cleanup(func() { _ = q.System.DeleteVolumeMountPoint(context.WithoutCancel(t.Context()), mountPoint) })
	return mountPoint
}

func quickMount(t testing.TB, q *quick) {
	q.needVolume(t)
	mountPoint := q.mounted(t, "mount")
	must(t, q.System.DeleteVolumeMountPoint(t.Context(), mountPoint))
	h := q.openFile(t, strings.TrimSuffix(mountPoint, `\`), win.OpenOptions{Access: win.FileListDirectory,
		Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen, Options: win.FileDirectoryFile})
	defer closing(t, h)
	if err := q.System.SetVolumeMountPoint(t.Context(), mountPoint, q.volume); err != nil {
		t.Fatalf("mounting at a directory that is held open: %v", err)
	}
	if name, err := q.System.VolumeNameForMountPoint(t.Context(), mountPoint); err != nil || !strings.EqualFold(name, q.volume) {
		t.Errorf("%q is mounted, %v, want %s", name, err, q.volume)
	}
	if err := q.System.DeleteVolumeMountPoint(t.Context(), mountPoint); err != nil {
		t.Errorf("unmounting from a directory that is held open: %v", err)
	}
}

func quickLock(t testing.TB, q *quick) {
	q.needVolume(t)
	file := q.openFile(t, q.volume+"file", creating(win.FileOpenIf, win.FileNonDirectoryFile))
	d := q.device(t, deviceOf(q.volume), readWrite)
	wantErrno(t, "lock while a file is open", lock(t, d, win.FsctlLockVolume), winerr.ErrorAccessDenied)
	closing(t, file)
	must(t, q.lock(t, d))
	other, err := q.System.OpenDevice(t.Context(), deviceOf(q.volume), win.GenericRead)
	if err == nil {
		closing(t, other)
	}
	wantErrno(t, "open the locked volume", err, winerr.ErrorAccessDenied)
	closing(t, d)
	_, err = q.System.FileAttributes(t.Context(), q.volume+"file")
	wantErrno(t, "the file after the lock", err)
}

func quickUnmount(t testing.TB, q *quick) {
	q.needVolume(t)
	mountPoint := q.mounted(t, "unmount")
	d := q.device(t, deviceOf(q.volume), readWrite)
	defer closing(t, d)
	must(t, q.lock(t, d))
	if err := q.System.DeleteVolumeMountPoint(t.Context(), mountPoint); err != nil {
		t.Fatalf("unmounting while the volume is locked: %v", err)
	}
	if a, err := q.System.FileAttributes(t.Context(), strings.TrimSuffix(mountPoint, `\`)); err != nil ||
		a&win.AttributeReparsePoint != 0 {
		t.Errorf("the directory has the attributes %#x, %v, want no mount point", a, err)
	}
}

// growPartition grows the partition to a size.
func (q *quick) growPartition(t testing.TB, size int64) {
	t.Helper()
	p := q.basicData(t)
	grow := win.GrowPartition{PartitionNumber: p.Number, BytesToGrow: size - p.Length}
	_, err := q.control(t, q.drive(), win.IoctlDiskGrowPartition, grow.Encode(), 0)
	must(t, err)
}

func quickGrow(t testing.TB, q *quick) {
	q.needVolume(t)
	d := q.device(t, deviceOf(q.volume), readWrite)
	defer closing(t, d)
	q.growPartition(t, 2*partitionSize)
	_, err := d.Control(t.Context(), win.FsctlExtendVolume, win.EncodeInt64(2*partitionSize/512), nil)
	wantErrno(t, "FSCTL_EXTEND_VOLUME through a handle of before the growth", err)
}

func quickDiskGrows(t testing.TB, q *quick) {
	q.needVolume(t)
	const diskSize, size = 2 << 30, 1536 << 20
	number, err := q.disk.Grow(t, diskSize)
	if err != nil {
		t.Skipf("this machine can't grow the disk: %v", err)
	}
	q.disk.Number = number
	_, err = q.control(t, q.drive(), win.IoctlDiskUpdateDriveSize, nil, win.DiskGeometrySize)
	wantErrno(t, "IOCTL_DISK_UPDATE_DRIVE_SIZE", err, 0, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported)
	_, err = q.control(t, q.drive(), win.IoctlDiskUpdateProperties, nil, 0)
	must(t, err)
	q.await(t, "the disk has 2 GiB", func() bool {
		out, err := q.control(t, q.drive(), win.IoctlDiskGetLengthInfo, nil, 8)
		must(t, err)
		length, err := win.DecodeInt64(out)
		return err == nil && length == diskSize
	})
	q.volume = q.volumeOf(t, q.disk.Number)
	q.growPartition(t, size)
	_, err = q.control(t, deviceOf(q.volume), win.FsctlExtendVolume, win.EncodeInt64(size/512), 0)
	must(t, err)
	space, err := q.System.DiskFreeSpace(t.Context(), q.volume)
	if err != nil || space.Total < size-64<<20 {
		t.Errorf("the volume has %d bytes, %v, want 1.5 GiB", space.Total, err)
	}
}

// takeOffline takes the disk offline. Its volumes leave with that.
func (q *quick) takeOffline(t testing.TB) error {
	t.Helper()
	set := win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}
	return errorOf(q.control(t, q.drive(), win.IoctlDiskSetDiskAttributes, set.Encode(), 0))
}

func quickOffline(t testing.TB, q *quick) {
	q.needVolume(t)
	d := q.device(t, deviceOf(q.volume), readWrite)
	defer closing(t, d)
	must(t, q.lock(t, d))
	must(t, lock(t, d, win.FsctlDismountVolume))
	if err := q.takeOffline(t); err != nil {
		t.Fatalf("taking the disk offline under a lock of its volume: %v", err)
	}
	q.await(t, "its volume has left", func() bool { return len(q.volumesOf(t, q.disk.Number)) == 0 })
}

func quickOfflineLayout(t testing.TB, q *quick) {
	if q.volume == "" {
		t.Skip("it needs a partition")
	}
	must(t, q.takeOffline(t)) // in case that offline-locked is refuted
	out, err := q.control(t, q.drive(), win.IoctlDiskGetDriveLayoutEx, nil, 64<<10)
	switch {
	case winerr.IsAny(err, winerr.ErrorNotReady, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported):
		t.Logf("the query for the table of the offline disk fails: %v", err)
	default:
		must(t, err)
		l, err := win.DecodeDriveLayout(out)
		must(t, err)
		t.Logf("the table of the offline disk has style %d and %d partitions", l.Style, len(l.Partitions))
	}
	if sectors := q.sectors(t); !strings.HasPrefix(string(sectors[512:]), "EFI PART") {
		t.Errorf("the offline disk reads as % x, want the header of its GPT in the second sector", sectors)
	}
}
