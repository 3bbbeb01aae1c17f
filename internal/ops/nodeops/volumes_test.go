// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	volumeStaging = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\pv\pvc-1\globalmount`
	unknown       = csiproxy.VolumeID(`\\?\Volume{00000000-1111-2222-3333-444444444444}\`)
)

// node is a simulated node with the operations on it.
type node struct {
	t       *testing.T
	sim     *winsim.System
	disks   *nodeops.Disks
	volumes *nodeops.Volumes
	locks   *usage.Locker
}

func newVolumeNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, sim: simtest.Open(t, winsim.Delays{})}
	n.restart()
	return n
}

// restart gives the node the operations of a new process.
func (n *node) restart() { n.with(nodeops.Options{}) }

func (n *node) with(o nodeops.Options) {
	n.t.Helper()
	g := groupsOf(n.t, n.sim, o)
	n.locks, n.disks, n.volumes = g.Locks, g.Disks, g.Volumes
}

// attach gives the node a disk with a raw volume.
func (n *node) attach(spec winsim.DiskSpec) (csiproxy.DiskNumber, csiproxy.VolumeID) {
	n.t.Helper()
	number := simtest.Attach(n.t, n.sim, spec)
	simtest.Must(n.t, n.disks.PartitionDisk(n.t.Context(), number))
	ids, err := n.volumes.ListVolumesOnDisk(n.t.Context(), number, 0)
	if err != nil || len(ids) != 1 {
		n.t.Fatalf("volumes %q, %v", ids, err)
	}
	return number, ids[0]
}

// formatted gives the node a disk with an NTFS volume.
func (n *node) formatted(spec winsim.DiskSpec) (csiproxy.DiskNumber, csiproxy.VolumeID) {
	n.t.Helper()
	number, id := n.attach(spec)
	simtest.Must(n.t, n.volumes.FormatVolume(n.t.Context(), id))
	return number, id
}

func (n *node) do(err error) {
	n.t.Helper()
	simtest.Must(n.t, err)
}

// dataOffset is where the data partition of a disk begins.
const dataOffset = 16 * mebibyte

func (n *node) plant(number csiproxy.DiskNumber, offset int64, s string) {
	n.t.Helper()
	n.do(n.sim.WriteImage(number, []byte(s), offset))
}

func TestListVolumesOnDisk(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.attach(winsim.DiskSpec{})
	raw, err := n.sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte})
	n.do(err)
	for _, c := range []struct {
		number    csiproxy.DiskNumber
		partition uint32
		want      []csiproxy.VolumeID
		kind      error
	}{
		{number, 0, []csiproxy.VolumeID{id}, nil},
		{number, 2, []csiproxy.VolumeID{id}, nil},
		{number, 1, nil, nil}, // the reserved one
		{number, 3, nil, csiproxy.ErrNotFound},
		{raw, 0, nil, nil},
		{77, 0, nil, csiproxy.ErrNotFound},
	} {
		ids, err := n.volumes.ListVolumesOnDisk(t.Context(), c.number, c.partition)
		if csiproxy.KindOf(err) != c.kind || fmt.Sprint(ids) != fmt.Sprint(c.want) {
			t.Errorf("disk %d partition %d: %q, %v", c.number, c.partition, ids, err)
		}
	}
	n.do(n.disks.SetDiskState(t.Context(), number, false))
	if ids, err := n.volumes.ListVolumesOnDisk(t.Context(), number, 0); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
		t.Errorf("an offline disk: %q, %v", ids, err)
	}
}

func TestDataVolumeOfDisk(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.attach(winsim.DiskSpec{})
	if got, err := n.volumes.DataVolumeOfDisk(t.Context(), number); err != nil || got != id {
		t.Errorf("one volume: %q, %v", got, err)
	}
	raw, err := n.sim.AttachDisk(winsim.DiskSpec{SizeBytes: gibibyte})
	n.do(err)
	if got, err := n.volumes.DataVolumeOfDisk(t.Context(), raw); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("no volume: %q, %v", got, err)
	}
	if got, err := n.volumes.DataVolumeOfDisk(t.Context(), n.twoPartitions()); !errors.Is(err,
		csiproxy.ErrFailedPrecondition) {
		t.Errorf("two volumes: %q, %v", got, err)
	}
}

// twoPartitions attaches a disk with two data partitions of 1 GiB.
func (n *node) twoPartitions() csiproxy.DiskNumber {
	n.t.Helper()
	number := simtest.Attach(n.t, n.sim, winsim.DiskSpec{})
	simtest.Partition(n.t, n.sim, number, 2)
	return number
}

func TestFormatVolume(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.attach(winsim.DiskSpec{})
	if formatted, err := n.volumes.IsVolumeFormatted(t.Context(), id); err != nil || formatted {
		t.Errorf("before: %v, %v", formatted, err)
	}
	n.do(n.volumes.FormatVolume(t.Context(), id))
	if formatted, err := n.volumes.IsVolumeFormatted(t.Context(), id); err != nil || !formatted {
		t.Errorf("after: %v, %v", formatted, err)
	}
	info, err := n.sim.VolumeInformation(t.Context(), string(id))
	if err != nil || info.FileSystem != "NTFS" || info.Label != "" {
		t.Errorf("it is %+v, %v", info, err)
	}
}

// No call loses data, however often or wrongly it comes.
func TestFormatVolumeRefusesData(t *testing.T) {
	n := newVolumeNode(t)
	_, ntfs := n.formatted(winsim.DiskSpec{})
	ext, extID := n.attach(winsim.DiskSpec{})
	n.plant(ext, dataOffset+1024+0x38, "\x53\xef")
	n.plant(ext, dataOffset+1024+0x4c, "\x01")
	damaged, damagedID := n.formatted(winsim.DiskSpec{})
	n.plant(damaged, dataOffset, strings.Repeat("\x00", 512))
	for name, id := range map[string]csiproxy.VolumeID{"NTFS": ntfs, "ext4": extID, "damaged NTFS": damagedID} {
		before := n.sim.Calls()["MSFT_Volume.Format"]
		for _, allow := range []bool{false, name == "NTFS"} {
			n.with(nodeops.Options{AllowRecognizedData: allow})
			simtest.WantErrorOf(t, name, n.volumes.FormatVolume(t.Context(), id), csiproxy.ErrFailedPrecondition)
		}
		simtest.Want(t, name+": formats", n.sim.Calls()["MSFT_Volume.Format"], before)
	}
	n.with(nodeops.Options{AllowRecognizedData: true})
	simtest.WantErrorOf(t, "with AllowRecognizedData", n.volumes.FormatVolume(t.Context(), extID), nil)
}

func TestIsVolumeFormattedNeverGuesses(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.SetVolumeLocked(string(id), true))
	if formatted, err := n.volumes.IsVolumeFormatted(t.Context(), id); !errors.Is(err, winerr.FVELockedVolume) {
		t.Errorf("a locked volume: %v, %v", formatted, err)
	}
	n.do(n.sim.SetVolumeLocked(string(id), false))
	for _, errno := range []winerr.Errno{winerr.ErrorNotReady, winerr.ErrorIODevice, winerr.ErrorFileCorrupt, winerr.ErrorDiskCorrupt,
		winerr.ErrorAccessDenied} {
		n.do(n.sim.Fail(winsim.Match{Call: "GetVolumeInformationW", Count: 1}, errno))
		if formatted, err := n.volumes.IsVolumeFormatted(t.Context(), id); !errors.Is(err, errno) {
			t.Errorf("error %d: %v, %v", errno, formatted, err)
		}
	}
}

// every returns the error of each operation that takes a volume id.
func (n *node) every(id csiproxy.VolumeID) map[string]error {
	ctx := n.t.Context()
	_, formatted := n.volumes.IsVolumeFormatted(ctx, id)
	_, stats := n.volumes.GetVolumeStats(ctx, id)
	_, number := n.volumes.GetDiskNumberFromVolumeID(ctx, id)
	return map[string]error{
		"IsVolumeFormatted": formatted, "GetVolumeStats": stats, "GetDiskNumberFromVolumeID": number,
		"FormatVolume": n.volumes.FormatVolume(ctx, id), "ResizeVolume": n.volumes.ResizeVolume(ctx, id, 0),
		"WriteVolumeCache": n.volumes.WriteVolumeCache(ctx, id), "MountVolume": n.volumes.MountVolume(ctx, id, volumeStaging),
	}
}

func TestBadVolumeIDs(t *testing.T) {
	n := newVolumeNode(t)
	for _, id := range []csiproxy.VolumeID{
		"", "-1", "1", `C:\`, `\\?\Volume{}\`, unknown[:len(unknown)-1], unknown + `x`, `\\?\C:\`,
		`\\.\PhysicalDrive0`, `\\?\Volume{00000000-1111-2222-3333-44444444444g}\`, unknown + `..\`,
	} {
		errs := n.every(id)
		errs["UnmountVolume"] = n.volumes.UnmountVolume(t.Context(), id, volumeStaging)
		for op, err := range errs {
			simtest.WantErrorOf(t, fmt.Sprintf("%s of %q", op, id), err, csiproxy.ErrInvalidArgument)
		}
	}
	for op, err := range n.every(unknown) {
		simtest.WantErrorOf(t, op+" of an unknown volume", err, csiproxy.ErrNotFound)
	}
}

func TestGetDiskNumberFromVolumeID(t *testing.T) {
	n := newVolumeNode(t)
	n.attach(winsim.DiskSpec{})
	number, id := n.attach(winsim.DiskSpec{})
	for _, spelling := range []csiproxy.VolumeID{id, csiproxy.VolumeID(strings.ToUpper(string(id)))} {
		if got, err := n.volumes.GetDiskNumberFromVolumeID(t.Context(), spelling); err != nil || got != number {
			t.Errorf("%q: %d, %v, want %d", spelling, got, err, number)
		}
	}
}

func TestGetVolumeStats(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.attach(winsim.DiskSpec{})
	if stats, err := n.volumes.GetVolumeStats(t.Context(), id); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
		t.Errorf("a raw volume: %+v, %v", stats, err)
	}
	n.do(n.volumes.FormatVolume(t.Context(), id))
	n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
	before, err := n.volumes.GetVolumeStats(t.Context(), id)
	n.do(err)
	if before.SizeBytes <= 9*gibibyte || before.SizeBytes > 10*gibibyte || before.UsedBytes <= 0 ||
		before.UsedBytes > gibibyte {
		t.Errorf("an empty volume on 10 GiB: %+v", before)
	}
	n.do(n.sim.WriteFile(volumeStaging+`\file`, make([]byte, 3*mebibyte)))
	after, err := n.volumes.GetVolumeStats(t.Context(), id)
	n.do(err)
	if grown := after.UsedBytes - before.UsedBytes; after.SizeBytes != before.SizeBytes || grown < 3*mebibyte ||
		grown > 4*mebibyte {
		t.Errorf("with a file of 3 MiB: %+v, before %+v", after, before)
	}
}

func TestWriteVolumeCache(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
	for _, name := range []string{"flushed", "not"} {
		n.do(n.sim.WriteFile(volumeStaging+`\`+name, []byte("data")))
		if name == "flushed" {
			n.do(n.volumes.WriteVolumeCache(t.Context(), id))
		}
	}
	n.do(n.sim.PowerLoss())
	if data, err := n.sim.ReadFile(volumeStaging + `\flushed`); err != nil || string(data) != "data" {
		t.Errorf("the flushed file has %q, %v after a power loss", data, err)
	}
	if data, _ := n.sim.ReadFile(volumeStaging + `\not`); string(data) == "data" {
		t.Error("the other file survived too, so this test shows nothing")
	}

	n.do(n.sim.SetDiskAttributes(number, win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
	for _, refused := range []bool{false, true} {
		n.do(n.sim.SetSettings(winsim.Settings{WriteProtectedOpen: refused}))
		simtest.WantErrorOf(t, "a read-only volume", n.volumes.WriteVolumeCache(t.Context(), id), nil)
	}
	n.do(n.volumes.UnmountVolume(t.Context(), id, volumeStaging))
}

func size(n *node, id csiproxy.VolumeID) (fileSystem int64) {
	n.t.Helper()
	stats, err := n.volumes.GetVolumeStats(n.t.Context(), id)
	n.do(err)
	return stats.SizeBytes
}

func TestResizeVolume(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	original := size(n, id)
	updates := 0 // of the disk's properties since it was last changed
	n.sim.OnCall(func(c winsim.Call) {
		switch c.Name {
		case "IOCTL_DISK_GROW_PARTITION":
			updates = 0
		case "IOCTL_DISK_UPDATE_PROPERTIES":
			updates++
		}
	})
	grows := func() int { return n.sim.Calls()["IOCTL_DISK_GROW_PARTITION"] }

	// Drivers ask for the size of the disk right after the format (csi-proxy #364).
	all, err := n.disks.GetDiskStats(t.Context(), number)
	n.do(err)
	for _, bytes := range []int64{0, 1, gibibyte, original, original + mebibyte/2, all.SizeBytes} {
		n.do(n.volumes.ResizeVolume(t.Context(), id, bytes))
		if got := size(n, id); got != original || grows() != 0 {
			t.Fatalf("resize to %d where there is no room: %d, was %d", bytes, got, original)
		}
	}
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	simtest.WantErrorOf(t, "a negative size", n.volumes.ResizeVolume(t.Context(), id, -1), csiproxy.ErrInvalidArgument)
	if err := n.volumes.ResizeVolume(t.Context(), id, 20*gibibyte+21*mebibyte); !errors.Is(err,
		csiproxy.ErrFailedPrecondition) || size(n, id) != original {
		t.Errorf("more than the disk has: %v, size %d", err, size(n, id))
	}
	n.do(n.volumes.ResizeVolume(t.Context(), id, 15*gibibyte))
	if got := size(n, id); got <= 15*gibibyte-mebibyte || got > 15*gibibyte || updates != 1 {
		t.Errorf("resized to 15 GiB: %d, and Windows was told %d times", got, updates)
	}
	// The published daemon skips a growth below 100 MiB.
	n.do(n.volumes.ResizeVolume(t.Context(), id, 15*gibibyte+2*mebibyte))
	if got := size(n, id); got <= 15*gibibyte+mebibyte || got > 15*gibibyte+2*mebibyte {
		t.Errorf("resized by 2 MiB: %d", got)
	}
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	if got, most := size(n, id), int64(20*gibibyte-dataOffset-mebibyte); got <= most-mebibyte || got > most {
		t.Errorf("resized to the maximum: %d, want %d", got, most)
	}
	before := grows()
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	n.do(n.volumes.ResizeVolume(t.Context(), id, 15*gibibyte))
	simtest.Want(t, "growths after a repetition and a smaller size", grows(), before)
}

func TestResizeVolumeKeepsFiles(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{SectorSize: 4096})
	n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
	n.do(n.sim.WriteFile(volumeStaging+`\file`, []byte("data")))
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	if data, err := n.sim.ReadFile(volumeStaging + `\file`); err != nil || string(data) != "data" {
		t.Errorf("the file has %q, %v", data, err)
	}
}

// A bus whose disks can't change their size may refuse to be asked for it. Where the table needs no change, it
// gets none, as that of an MBR disk.
func TestResizeVolumeLeavesTheTable(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	changes := simtest.Counted(n.sim, "IOCTL_DISK_SET_DRIVE_LAYOUT_EX")
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	n.do(n.sim.Fail(winsim.Match{Call: "IOCTL_DISK_UPDATE_DRIVE_SIZE"}, winerr.ErrorInvalidFunction))
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	n.sim.ResetRules()

	mbr := simtest.Attach(t, n.sim, winsim.DiskSpec{})
	n.plant(mbr, 0, mbrTable)
	n.do(n.disks.Rescan(t.Context()))
	n.sim.Settle()
	id = csiproxy.VolumeID(n.sim.VolumesOfDisk(mbr)[0])
	n.do(n.volumes.FormatVolume(t.Context(), id))
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
	if got := size(n, id); got < 2*gibibyte-2*mebibyte {
		t.Errorf("on an MBR disk it has %d bytes", got)
	}
	simtest.Want(t, "changes of the table", changes()[0], 0)
}

// mbrTable is the first sector of an MBR disk with one partition, of 512 MiB from 1 MiB on.
var mbrTable = func() string {
	sector := make([]byte, 512)
	copy(sector[440:], "\x11\x22\x33\x44") // the signature
	copy(sector[446:], []byte{0, 0, 0, 0, 7, 0, 0, 0, 0, 8, 0, 0, 0, 0, 16, 0})
	sector[510], sector[511] = 0x55, 0xAA
	return string(sector)
}()

// If the partition table doesn't follow the disk's growth, a volume that is to grow into the new part isn't
// taken for one that is as large as its disk.
func TestResizeVolumeWhereTheTableDoesNotFollow(t *testing.T) {
	n := newVolumeNode(t)
	n.do(n.sim.SetSettings(winsim.Settings{GrownAtOnce: true}))
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.GrowDisk(number, 20*gibibyte))
	n.do(n.sim.Fail(winsim.Match{Call: win.IoctlDiskUpdateDriveSize.String()}, winerr.ErrorInvalidFunction))
	changes := simtest.Counted(n.sim, win.IoctlDiskSetDriveLayoutEx.String(), win.IoctlDiskGrowPartition.String())
	for _, bytes := range []int64{0, 15 * gibibyte, 20 * gibibyte} {
		simtest.WantErrorOf(t, fmt.Sprint("to ", bytes), n.volumes.ResizeVolume(t.Context(), id, bytes),
			csiproxy.ErrUnavailable, "hasn't moved it")
	}
	n.do(n.volumes.ResizeVolume(t.Context(), id, 1)) // it is larger
	simtest.Want(t, "changes of the table", fmt.Sprint(changes()), "[0 0]")
	n.sim.ResetRules()
	n.do(n.volumes.ResizeVolume(t.Context(), id, 0))
}

// What a check finds is told, and a volume that storage management doesn't know yet is waited for.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newVolumeNode(t)
		_, id := n.formatted(winsim.DiskSpec{})
		n.do(n.sim.Fail(winsim.Match{Call: "MSFT_Volume.Repair", Count: 1}, winerr.ErrorRetry))
		for _, damaged := range []bool{false, true} {
			for _, mode := range []win.RepairMode{win.RepairScan, win.RepairSpotFix, win.RepairScan} {
				if damaged && mode == win.RepairScan {
					n.do(n.sim.SetVolumeDamage(string(id), "offline"))
				}
				if found, err := n.volumes.Repair(t.Context(), id, mode); err != nil || found != damaged {
					t.Errorf("damaged %t, mode %v: errors found %t, %v", damaged, mode, found, err)
				}
			}
		}
	})
}

func TestResizeVolumeStopsAtTheNextPartition(t *testing.T) {
	n := newVolumeNode(t)
	number := n.twoPartitions()
	ids, err := n.volumes.ListVolumesOnDisk(t.Context(), number, 0)
	n.do(err)
	n.do(n.volumes.FormatVolume(t.Context(), ids[0]))
	before := size(n, ids[0])
	n.do(n.volumes.ResizeVolume(t.Context(), ids[0], 0))
	simtest.Want(t, "the first of two adjacent partitions", size(n, ids[0]), before)
	// What is free lies behind the next partition, also when the disk has grown.
	for range 2 {
		all, err := n.disks.GetDiskStats(t.Context(), number)
		n.do(err)
		for _, bytes := range []int64{gibibyte + 30*mebibyte, 2 * gibibyte, all.SizeBytes} {
			simtest.WantErrorOf(t, "into the next partition", n.volumes.ResizeVolume(t.Context(), ids[0], bytes),
				csiproxy.ErrResourceExhausted, "partition 2 lies behind it")
		}
		n.do(n.sim.GrowDisk(number, 20*gibibyte))
		n.do(n.volumes.ResizeVolume(t.Context(), ids[0], 0))
	}
	simtest.Want(t, "growths into the next partition", n.sim.Calls()["IOCTL_DISK_GROW_PARTITION"], 0)
}

func TestParseID(t *testing.T) {
	for _, s := range []string{string(unknown), `\\?\volume{EBD0A0A2-B9E5-4433-87C0-68B6B72699C7}\`} {
		if id, err := csiproxy.ParseVolumeID(s); err != nil || string(id) != s {
			t.Errorf("%q: %q, %v", s, id, err)
		}
	}
}

func TestListVolumesWaitsForArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, sim: simtest.Open(t, winsim.Delays{VolumeArrival: 50 * time.Millisecond})}
		n.restart()
		number := n.twoPartitions() // doesn't wait by itself
		if ids, err := n.volumes.ListVolumesOnDisk(t.Context(), number, 0); err != nil || len(ids) != 2 {
			t.Errorf("%q, %v", ids, err)
		}
	})
}
