// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	stagingPath = simtest.Kubelet + `\plugins\kubernetes.io\csi\example\vol-1\globalmount`
	otherPath   = simtest.Kubelet + `\plugins\kubernetes.io\csi\example\vol-2\globalmount`
	targetPath  = simtest.Kubelet + `\pods\6a1c2d3e\volumes\kubernetes.io~csi\data\mount`
)

func serial(s string) csiproxy.Selector { return csiproxy.Selector{SerialNumber: s} }

func pointer[T any](v T) *T { return &v }

// stagingBlocking are the attributes that keep a disk from being used.
const stagingBlocking = win.DiskOffline | win.DiskReadOnly

// newStaged returns a node with a disk, vol-1, that is staged at stagingPath.
func newStaged(t *testing.T) (*winsim.System, *nodeops.Node, csiproxy.DiskNumber) {
	t.Helper()
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	return sim, n, number
}

func stageVolume(t *testing.T, n *nodeops.Node, r csiproxy.StageVolumeRequest) csiproxy.StagedVolume {
	t.Helper()
	staged, err := n.Storage.StageVolume(t.Context(), r)
	simtest.Must(t, err)
	return staged
}

func unstageVolume(t *testing.T, n *nodeops.Node, r csiproxy.UnstageVolumeRequest) csiproxy.UnstagedVolume {
	t.Helper()
	done, err := n.Storage.UnstageVolume(t.Context(), r)
	simtest.Must(t, err)
	return done
}

// A path where no volume of the disk can be mounted is refused before the disk is partitioned, or goes online.
func TestPathIsJudgedBeforeTheDisk(t *testing.T) {
	for name, plant := range map[string]func(sim *winsim.System) error{
		"a file":                   func(sim *winsim.System) error { return sim.WriteFile(otherPath, nil) },
		"a directory with entries": func(sim *winsim.System) error { return sim.MkdirAll(otherPath + `\directory`) },
		"a link":                   func(sim *winsim.System) error { return sim.Symlink(otherPath, stagingPath, true) },
		"a link out above":         func(sim *winsim.System) error { return sim.Symlink(above(otherPath), `C:\Windows`, true) },
		"another volume":           nil,
	} {
		for _, offline := range []bool{false, true} {
			sim, n, _ := newStaged(t)
			at := stagingPath
			if plant != nil {
				at = otherPath
				if !strings.Contains(name, "above") {
					simtest.Must(t, sim.MkdirAll(above(otherPath)))
				}
				simtest.Must(t, plant(sim))
			}
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: "blank", Offline: offline})
			before := sim.Calls()
			_, err := n.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{Disk: serial("blank"), StagingPath: at})
			if csiproxy.KindOf(err) != csiproxy.ErrFailedPrecondition && csiproxy.KindOf(err) != csiproxy.ErrPermissionDenied {
				t.Errorf("%s: %v", name, err)
			}
			for call, count := range sim.Calls() {
				if strings.Contains(call, "_SET_") || strings.Contains(call, "CREATE_DISK") {
					simtest.Want(t, name+": "+call, count, before[call])
				}
			}
		}
	}
}

// above returns the directory above a path.
func above(path string) string { return path[:strings.LastIndex(path, `\`)] }

// The life of a volume, with each call made twice, and the disk under another number in the
// end.
func TestLifeOfAVolume(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "other", Offline: true})
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol0abc", Offline: true, ReadOnly: true})
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-0abc"), StagingPath: stagingPath, Grow: true}

	first := stageVolume(t, n, request)
	if first.Disk != number || first.VolumeID == "" || first.FileSystem != "NTFS" || first.SizeBytes < 9<<30 ||
		!first.Partitioned || !first.Formatted || first.Grown {
		t.Errorf("first: %+v", first)
	}
	second := stageVolume(t, n, request)
	if first.Partitioned, first.Formatted = false, false; second != first {
		t.Errorf("second: %+v, want %+v", second, first)
	}
	for range 2 {
		simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	}
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("precious")))

	simtest.Must(t, sim.GrowDisk(number, 20<<30))
	grown, err := n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: targetPath, DiskSizeBytes: 20 << 30})
	if err != nil || !grown.Grown || grown.SizeBytes < 19<<30 || grown.DiskSizeBytes != 20<<30 {
		t.Errorf("grown: %+v, %v", grown, err)
	}
	again, err := n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath})
	if err != nil || again.Grown || again.SizeBytes != grown.SizeBytes || again.DiskSizeBytes != 20<<30 {
		t.Errorf("grown again: %+v, %v", again, err)
	}

	for range 2 {
		simtest.Must(t, n.Storage.UnpublishVolume(ctx, targetPath))
	}
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.Unmounted ||
		!done.DiskOffline || done.LoggedOut {
		t.Errorf("unstaged: %+v", done)
	}
	simtest.Want(t, "unstaged again", unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}),
		csiproxy.UnstagedVolume{})
	online, err := n.Disk.GetDiskState(ctx, number)
	if err != nil || online {
		t.Errorf("online %v, %v", online, err)
	}

	simtest.Must(t, sim.DetachDisk(number))
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "between"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol0abc", SizeBytes: 30 << 30})
	third := stageVolume(t, n, request)
	if third.Disk == number || third.VolumeID != first.VolumeID || third.Formatted || !third.Grown ||
		third.SizeBytes < 29<<30 {
		t.Errorf("staged under another number: %+v", third)
	}
	data, err := sim.ReadFile(stagingPath + file)
	if string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// A second call with other parameters is an error that names the difference.
func TestStageVolumeNamesTheDifference(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	stageVolume(t, n, request)

	other := request
	other.StagingPath = otherPath
	_, err := n.Storage.StageVolume(ctx, other)
	simtest.WantErrorOf(t, "another path", err, csiproxy.ErrFailedPrecondition, "staged at another path", stagingPath)
	other = request
	other.Format.FileSystem = csiproxy.ReFS
	_, err = n.Storage.StageVolume(ctx, other)
	simtest.WantErrorOf(t, "another file system", err, csiproxy.ErrFailedPrecondition, "NTFS", "ReFS")
	other = request
	other.ReadOnly = true
	_, err = n.Storage.StageVolume(ctx, other)
	simtest.WantErrorOf(t, "read-only", err, csiproxy.ErrFailedPrecondition, "staged writable", "unstage it there first")
	other = request
	other.Disk = serial("vol-2")
	_, err = n.Storage.StageVolume(ctx, other)
	simtest.WantErrorOf(t, "another volume", err, csiproxy.ErrFailedPrecondition, "another volume is mounted there")
	other = request
	other.Partition = 7
	_, err = n.Storage.StageVolume(ctx, other)
	simtest.WantErrorOf(t, "another partition", err, csiproxy.ErrNotFound, "no data partition 7")
}

// MountVolume mounts a volume at a second path. Staging it at either one answers the same, whether
// its disk is online already or not.
func TestStageVolumeThatIsMountedTwice(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	first := stageVolume(t, n, request)
	simtest.Must(t, n.Volume.MountVolume(t.Context(), first.VolumeID, otherPath))
	for _, path := range []string{stagingPath, otherPath} {
		simtest.Must(t, sim.SetOfflineReason(number, win.OfflinePolicy))
		request.StagingPath = path
		stageVolume(t, n, request)
		stageVolume(t, n, request)
	}
}

func TestStageVolumeReadOnly(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: true}
	_, err := n.Storage.StageVolume(ctx, request)
	simtest.WantErrorOf(t, "a raw disk", err, csiproxy.ErrFailedPrecondition, "read-only")
	simtest.Must(t, sim.WriteImage(simtest.Attach(t, sim, winsim.DiskSpec{Serial: "foreign"}), []byte("XFSB"), 0))
	empty := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "empty"})
	simtest.Partition(t, sim, empty, 0)
	simtest.Must(t, sim.SetDiskAttributes(empty, win.SetDiskAttributes{
		Persist: true, Attributes: win.DiskOffline, Mask: win.DiskOffline}))
	before := sim.Disks()
	for _, name := range []string{"foreign", "empty"} {
		_, err := n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: serial(name), StagingPath: otherPath,
			ReadOnly: true})
		simtest.WantErrorOf(t, name, err, csiproxy.ErrFailedPrecondition, "no data partition")
	}
	simtest.Want(t, "what disks without a data partition are", sim.Disks(), before)
	simtest.Must(t, n.Disk.PartitionDisk(ctx, number))
	_, err = n.Storage.StageVolume(ctx, request)
	simtest.WantErrorOf(t, "a raw volume", err, csiproxy.ErrFailedPrecondition, "has no file system")
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: request.Disk})

	request.ReadOnly = false
	stageVolume(t, n, request)
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	for _, online := range []bool{false, true} { // as it was unstaged, and as a disk may arrive
		simtest.Must(t, n.Disk.SetDiskState(ctx, number, online))
		request.ReadOnly = true
		var changes []win.DiskAttributes // what the disk has before each
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.IoctlDiskSetDiskAttributes.String() {
				changes = append(changes, attributesOf(sim, number))
			}
		})
		for range 2 {
			if staged := stageVolume(t, n, request); staged.FileSystem != "NTFS" || staged.Formatted || staged.Partitioned {
				t.Errorf("%+v", staged)
			}
		}
		sim.OnCall(nil)
		// Windows mounts a file system as the disk is when it comes online.
		if want := map[bool]string{false: "[1 3]", true: "[0 1 3]"}[online]; fmt.Sprint(changes) != want {
			t.Errorf("before the changes, its attributes are %d, want %s", changes, want)
		}
		simtest.WantErrorOf(t, "writing", sim.WriteFile(stagingPath+file, []byte("changed")), winerr.ErrorWriteProtect)
		writable := request
		writable.ReadOnly = false
		_, err = n.Storage.StageVolume(ctx, writable)
		simtest.WantErrorOf(t, "writable", err, csiproxy.ErrFailedPrecondition, "staged read-only")
		unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
		stageVolume(t, n, writable)
		simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
		unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	}
}

// A disk may arrive online and read-only, as the one before it in its slot was, so that its file
// system is mounted read-only. It is staged writable all the same, also if that mount lasts.
func TestStageVolumeThatArrivesReadOnly(t *testing.T) {
	for _, lasts := range []bool{false, true} {
		sim, n := newStagingNode(t)
		simtest.Must(t, sim.SetSettings(winsim.Settings{ReadOnlyMounts: lasts}))
		number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
		request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
		for _, stages := range []func(){
			func() { stageVolume(t, n, request) },
			func() {
				simtest.Must(t, n.Disk.SetDiskState(t.Context(), number, true))
				stageVolume(t, n, request)
			},
		} {
			stageVolume(t, n, request)
			unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
			simtest.Must(t, sim.SetDiskAttributes(number, win.SetDiskAttributes{
				Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly | win.DiskOffline}))
			sim.Settle()
			stages()
			simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
			unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
		}
	}
}

// Windows shows no table of a disk that is offline. Such a disk is staged read-only all the same,
// and one without a partition is left as it was.
func TestStageVolumeReadOnlyWithAHiddenTable(t *testing.T) {
	sim, n := newStagingNode(t)
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: true}
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1", Offline: true})
	simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayout: settings.OfflineBlank}))
	_, err := n.Storage.StageVolume(t.Context(), request)
	simtest.WantErrorOf(t, "a raw disk", err, csiproxy.ErrFailedPrecondition, "no data partition")
	simtest.Want(t, "attributes of a refused disk", sim.Disks()[number].Attributes, win.DiskOffline)
	other := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2", Offline: true})
	simtest.Must(t, sim.WriteImage(other, []byte("XFSB"), 0))
	foreign := csiproxy.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: otherPath, ReadOnly: true}
	ctx, cancel := context.WithCancel(t.Context())
	sim.OnCall(func(c winsim.Call) {
		if c.Name == "IOCTL_DISK_UPDATE_PROPERTIES" { // it has just gone online
			cancel()
		}
	})
	_, err = n.Storage.StageVolume(ctx, foreign)
	sim.OnCall(nil)
	if a := sim.Disks()[other].Attributes; !errors.Is(err, context.Canceled) || a != win.DiskOffline {
		t.Errorf("cancelled with %v, a disk of others has the attributes %d", err, a)
	}
	_, err = n.Storage.StageVolume(t.Context(), foreign)
	simtest.WantErrorOf(t, "a disk of others", err, csiproxy.ErrFailedPrecondition, "no data partition")
	simtest.Want(t, "attributes of a disk of others", sim.Disks()[other].Attributes, win.DiskOffline)
	request.ReadOnly = false
	first := stageVolume(t, n, request)
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	request.ReadOnly = true
	simtest.Want(t, "staged again", stageVolume(t, n, request).VolumeID, first.VolumeID)
}

// An offline disk that is refused once it was online is offline again, with its attributes. Its bytes stay as
// they are, and so do the letters that its volumes have whenever it is online.
func TestStageVolumePutsARefusedDiskBack(t *testing.T) {
	for name, c := range map[string]struct {
		partitions int
		request    csiproxy.StageVolumeRequest
		want       error
	}{
		"no partition":       {0, csiproxy.StageVolumeRequest{ReadOnly: true}, csiproxy.ErrFailedPrecondition},
		"another partition":  {1, csiproxy.StageVolumeRequest{Partition: 7}, csiproxy.ErrNotFound},
		"two partitions":     {2, csiproxy.StageVolumeRequest{}, csiproxy.ErrFailedPrecondition},
		"two, read-only":     {2, csiproxy.StageVolumeRequest{ReadOnly: true}, csiproxy.ErrFailedPrecondition},
		"raw, read-only":     {1, csiproxy.StageVolumeRequest{ReadOnly: true}, csiproxy.ErrFailedPrecondition},
		"data of others":     {1, csiproxy.StageVolumeRequest{}, csiproxy.ErrFailedPrecondition},
		"others', read-only": {1, csiproxy.StageVolumeRequest{ReadOnly: true}, csiproxy.ErrFailedPrecondition},
	} {
		for _, attributes := range []win.DiskAttributes{win.DiskOffline, stagingBlocking} {
			for hidden := settings.OfflineShown; hidden <= settings.OfflineNotReady; hidden++ {
				t.Run(fmt.Sprintf("%s,%d,%d", name, attributes, hidden), func(t *testing.T) {
					sim, n := newStagingNode(t)
					number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1", SizeBytes: 3 << 30})
					simtest.PartitionWithLetters(t, sim, number, c.partitions)
					sim.Settle()
					for i, name := range sim.VolumesOfDisk(number) { // an administrator has changed them
						_ = sim.DeleteVolumeMountPoint(t.Context(), string(rune('D'+i))+`:\`)
						simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), string(rune('V'+i))+`:\`, name))
					}
					letters := lettersOf(t, sim, number)
					simtest.Must(t, sim.WriteImage(number, []byte("LUKS\xba\xbe"), 16<<20))
					simtest.Must(t, sim.SetDiskAttributes(number, win.SetDiskAttributes{
						Attributes: attributes, Mask: stagingBlocking}))
					simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayout: hidden}))
					before := exported(t, sim, number)
					c.request.Disk, c.request.StagingPath = serial("vol-1"), stagingPath
					_, err := n.Storage.StageVolume(t.Context(), c.request)
					simtest.WantError(t, err, c.want)
					simtest.Want(t, "its attributes", attributesOf(sim, number), attributes)
					if !bytes.Equal(exported(t, sim, number), before) {
						t.Error("it was written to")
					}
					_, err = sim.VolumeNameForMountPoint(t.Context(), `V:\`)
					simtest.WantErrorOf(t, "its letter while it is offline", err, winerr.ErrorFileNotFound)
					simtest.Must(t, sim.SetDiskAttributes(number, win.SetDiskAttributes{Mask: stagingBlocking}))
					sim.Settle()
					simtest.Want(t, "letters when it is online", lettersOf(t, sim, number), letters)
				})
			}
		}
	}
}

// lettersOf returns the letters of a disk's volumes by their names.
func lettersOf(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) map[string][]string {
	t.Helper()
	letters := make(map[string][]string)
	for _, name := range sim.VolumesOfDisk(n) {
		paths, err := sim.VolumePathNames(t.Context(), name)
		simtest.Must(t, err)
		letters[name] = paths
	}
	return letters
}

// exported returns the bytes at both ends of a disk, and at the start of its first partition.
func exported(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) []byte {
	t.Helper()
	const part = 1 << 20
	b := make([]byte, 3*part)
	for i, offset := range []int64{0, 16 << 20, sim.Disks()[n].Size - part} {
		simtest.Must(t, sim.ReadImage(n, b[i*part:][:part], offset))
	}
	return b
}

// Windows takes a disk offline again at any moment of its staging: once, which nobody sees, or
// whenever its volume is mounted.
func TestStageVolumeOfADiskThatGoesOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		offline := win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}
		request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
		step := 1
		if simtest.Sampled() {
			step = 5
		}
		var calls atomic.Int64 // disks are asked at the same time
		for at := int64(0); (at == 0 || at < calls.Load()) && !t.Failed(); at += int64(step) {
			sim, n := newStagingNode(t)
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1", Offline: true})
			calls.Store(0)
			sim.OnCall(func(c winsim.Call) {
				if calls.Add(1)-1 == at && c.Name != win.CallFormatVolume {
					simtest.Must(t, sim.SetDiskAttributes(number, offline))
				}
			})
			_, err := n.Storage.StageVolume(t.Context(), request)
			sim.OnCall(nil)
			if kind := csiproxy.KindOf(err); err != nil && kind != csiproxy.ErrUnavailable {
				t.Errorf("call %d: %v", at, err)
			}
			stageVolume(t, n, request)
		}
		sim, n := newStagingNode(t)
		number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallSetVolumeMountPoint {
				simtest.Must(t, sim.SetDiskAttributes(number, offline))
			}
		})
		_, err := n.Storage.StageVolume(t.Context(), request)
		simtest.WantErrorOf(t, "a disk that doesn't stay online", err, csiproxy.ErrUnavailable, "went offline again")
	})
}

// The result says that the volume has grown, also if Windows takes its disk offline right after.
func TestStageVolumeGrowsADiskThatGoesOffline(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, Grow: true}
	stageVolume(t, n, request)
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	simtest.Must(t, sim.GrowDisk(number, 20<<30))
	var extended, offline atomic.Bool // disks are asked at the same time
	sim.OnCall(func(c winsim.Call) {
		if extended.Load() && !offline.Swap(true) {
			simtest.Must(t, sim.SetOfflineReason(number, win.OfflinePolicy))
		}
		if c.Name == "FSCTL_EXTEND_VOLUME" {
			extended.Store(true)
		}
	})
	staged, err := n.Storage.StageVolume(t.Context(), request)
	if err != nil || !offline.Load() || !staged.Grown || staged.SizeBytes < 19<<30 {
		t.Errorf("%+v, %v", staged, err)
	}
}

func TestStageVolumeFindsOneDisk(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	for _, s := range []string{"one", "two"} {
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: s,
			Page83: []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte("Example same")}}})
	}
	before := sim.Disks()
	_, err := n.Storage.StageVolume(ctx,
		csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{Identifier: "same"}, StagingPath: stagingPath})
	simtest.WantErrorOf(t, "two disks", err, csiproxy.ErrFailedPrecondition, "2 disks have", `"one"`, `"two"`)
	_, err = n.Storage.StageVolume(ctx,
		csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{Number: new(csiproxy.DiskNumber)}, StagingPath: stagingPath})
	simtest.WantErrorOf(t, "the disk of Windows", err, csiproxy.ErrFailedPrecondition, "Windows runs from this disk")
	_, err = n.Storage.StageVolume(ctx,
		csiproxy.StageVolumeRequest{Disk: serial("none"), StagingPath: stagingPath, Wait: -1})
	simtest.WantErrorOf(t, "no disk", err, csiproxy.ErrNotFound, `no disk has the serial number "none"`, `"one"`, `"two"`)
	for i, after := range sim.Disks() {
		if after.Attributes != before[i].Attributes || len(sim.VolumesOfDisk(after.Number)) != 0 && !after.System {
			t.Errorf("%+v was %+v", after, before[i])
		}
	}
	// The disk of Windows isn't meant, if another one is like it.
	if staged := stageVolume(t, n, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{LUN: new(uint32), Vendor: "Msft"}, StagingPath: otherPath,
	}); staged.Disk != 1 {
		t.Errorf("%+v", staged)
	}
	// The bad ones of a pair can be told apart by a second field.
	if staged := stageVolume(t, n, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{Identifier: "same", SerialNumber: "two"}, StagingPath: stagingPath,
	}); staged.Disk != 2 {
		t.Errorf("%+v", staged)
	}
}

// A disk that Windows doesn't see yet is looked for; the wait ends with the request's bound,
// or with the deadline.
func TestStageVolumeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		_, err := sim.AttachDisk(winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "late", NeedsRescan: true})
		simtest.Must(t, err)
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("late"), StagingPath: stagingPath})

		_, err = n.Storage.StageVolume(t.Context(),
			csiproxy.StageVolumeRequest{Disk: serial("none"), StagingPath: otherPath, Wait: time.Millisecond})
		simtest.WantErrorOf(t, "a bound", err, csiproxy.ErrNotFound, "after a wait of 1ms")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: serial("none"), StagingPath: otherPath})
		simtest.WantErrorOf(t, "a deadline", err, context.DeadlineExceeded, "while waiting for a disk with")
		time.Sleep(10 * time.Second) // until the rescan, which callers share, ends
	})
}

func TestStageVolumeFormats(t *testing.T) {
	sim, n := newStagingNode(t)
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath,
		Format: csiproxy.FormatOptions{
			FileSystem: csiproxy.ReFS, AllocationUnitBytes: 64 << 10, Label: "data", IntegrityStreams: true,
		}})
	info, err := sim.VolumeInformation(t.Context(), string(staged.VolumeID))
	if err != nil || staged.FileSystem != "ReFS" || info.FileSystem != "ReFS" || info.Label != "data" {
		t.Errorf("%+v %+v, %v", staged, info, err)
	}
}

// A volume that somebody has mounted raw at the staging path isn't staged already.
func TestStageVolumeThatIsMountedRaw(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Partition(t, sim, number, 1)
	sim.Settle()
	simtest.Mount(t, sim, stagingPath, sim.VolumesOfDisk(number)[0])
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	if !staged.Formatted || staged.FileSystem != "NTFS" {
		t.Errorf("%+v", staged)
	}
}

func TestStageVolumeOfClones(t *testing.T) {
	sim, n := newStagingNode(t)
	original := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
	simtest.Must(t, sim.FlushFile(stagingPath+file))
	_, err := sim.CloneDisk(original, winsim.DiskSpec{Serial: "clone", Offline: true})
	simtest.Must(t, err)
	sim.Settle()

	request := csiproxy.StageVolumeRequest{Disk: serial("clone"), StagingPath: otherPath}
	request.ReadOnly = true
	changed := simtest.Counted(sim, win.IoctlDiskSetDiskAttributes.String(), win.IoctlDiskSetDriveLayoutEx.String())
	_, err = n.Storage.StageVolume(t.Context(), request)
	simtest.WantErrorOf(t, "a clone, read-only", err, csiproxy.ErrFailedPrecondition, "it is a copy of disk 1")
	if got := changed(); got[0] != 0 || got[1] != 0 {
		t.Errorf("a clone that is refused is changed: %d", got)
	}
	request.ReadOnly = false
	if staged := stageVolume(t, n, request); staged.Formatted || staged.Partitioned {
		t.Errorf("%+v", staged)
	}
	for _, path := range []string{stagingPath, otherPath} {
		if data, err := sim.ReadFile(path + file); string(data) != "precious" || err != nil {
			t.Errorf("the file at %s is %q, %v", path, data, err)
		}
	}
}

// The original of a copy goes online while that is staged read-only. The copy doesn't get new ids for that.
func TestStageVolumeOfACloneReadOnly(t *testing.T) {
	sim, n := newStagingNode(t)
	original := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	number, err := sim.CloneDisk(original, winsim.DiskSpec{Serial: "clone", Offline: true})
	simtest.Must(t, err)
	sim.Settle()
	written := simtest.Counted(sim, win.IoctlDiskSetDriveLayoutEx.String())
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallVolumeNameForMountPoint && strings.Contains(c.Object, "Harddisk") {
			sim.OnCall(nil)
			simtest.Must(t, sim.SetOfflineReason(number, win.OfflineCollision))
			simtest.Must(t, sim.SetDiskAttributes(original, win.SetDiskAttributes{Mask: win.DiskOffline}))
		}
	})
	_, err = n.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{Disk: serial("clone"), StagingPath: otherPath,
		ReadOnly: true})
	simtest.WantErrorOf(t, "a clone, read-only", err, csiproxy.ErrFailedPrecondition, "it is a copy of disk 1")
	simtest.Want(t, "writes to it", written()[0], 0)
}

// A target that proves its identity: its secret becomes the node's before the login, and only
// if there is one.
func TestStageVolumeWithMutualCHAP(t *testing.T) {
	sim, n := newStagingNode(t)
	const iqn = csiproxy.IQN("iqn.2026-01.com.example:vol-1")
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	simtest.Must(t, sim.ISCSI().AddTarget(iscsitarget.Target{
		IQN: string(iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)},
		CHAPUser: "node", CHAPSecret: csiproxy.NewSecret("twelve bytes"), MutualSecret: csiproxy.NewSecret("other 12 byte"),
	}, winsim.DiskSpec{SizeBytes: 1 << 30}))
	request := func(mutual string) csiproxy.StageVolumeRequest {
		login := csiproxy.ISCSILogin{MutualSecret: csiproxy.NewSecret(mutual)}
		login.Type, login.Username, login.Secret = csiproxy.ISCSIMutualCHAP, "node", csiproxy.NewSecret("twelve bytes")
		return csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: iqn}}, Login: login,
			StagingPath: stagingPath,
		}
	}
	set := 0
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallSetISCSICHAPSecret {
			set++
		}
	})
	refused := func(what, mutual string, kind error) {
		t.Helper()
		_, err := n.Storage.StageVolume(t.Context(), request(mutual))
		simtest.WantErrorOf(t, what, err, kind)
		if mutual != "" && err != nil && strings.Contains(err.Error(), mutual) {
			t.Errorf("%s: the error %v has the secret", what, err)
		}
	}
	refused("a short secret", "short", csiproxy.ErrInvalidArgument)
	oneWay := request("other 12 byte")
	oneWay.Login.Type = csiproxy.ISCSIOneWayCHAP
	_, err := n.Storage.StageVolume(t.Context(), oneWay)
	simtest.WantErrorOf(t, "a mutual secret for a login that isn't mutual", err, csiproxy.ErrInvalidArgument)
	refused("no secret, of a node without one", "", csiproxy.ErrUnauthenticated)
	simtest.Want(t, "times that the secret was set", set, 0)
	refused("a wrong secret", "wrong 12 byte", csiproxy.ErrUnauthenticated)
	stageVolume(t, n, request("other 12 byte"))
	simtest.Want(t, "times that the secret was set, once for each login", set, 2)
	stageVolume(t, n, request("wrong 12 byte")) // the node is connected
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	stageVolume(t, n, request("")) // with the node's
	simtest.Want(t, "times that the secret was set, also without a login", set, 2)
}

// The disks of a target: it is logged in to when needed, and out of with the last one.
func TestStageVolumeOfATarget(t *testing.T) {
	sim, n := newStagingNode(t)
	const iqn = csiproxy.IQN("iqn.2026-01.com.example:vol-1")
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	simtest.Must(t, sim.ISCSI().AddTarget(iscsitarget.Target{
		IQN: string(iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)}, CHAPUser: "node",
		CHAPSecret: csiproxy.NewSecret("twelve bytes"),
	}, winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "lun-0"}, winsim.DiskSpec{SizeBytes: 2 << 30, Serial: "lun-1"}))
	request := func(lun uint32, path string) csiproxy.StageVolumeRequest {
		return csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: iqn, LUN: lun}},
			Login: csiproxy.ISCSILogin{ISCSIAuthentication: csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIOneWayCHAP, Username: "node",
				Secret: csiproxy.NewSecret("twelve bytes")}},
			StagingPath: path,
		}
	}
	wrong := request(0, stagingPath)
	wrong.Login.Secret = csiproxy.NewSecret("wrong secret!")
	_, err := n.Storage.StageVolume(t.Context(), wrong)
	simtest.WantErrorOf(t, "a wrong secret", err, csiproxy.ErrUnauthenticated)

	if staged := stageVolume(t, n, request(1, stagingPath)); staged.SizeBytes < 1<<30 {
		t.Errorf("LUN 1 is %+v", staged)
	}
	other := stageVolume(t, n, request(0, otherPath))
	// Whether the other disk is used isn't known by one error.
	for errno, fails := range map[winerr.Errno]bool{winerr.ErrorFileNotFound: false, winerr.ErrorIODevice: true} {
		simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(other.Disk), Count: 1}, errno))
		done, err := n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
		sessions, listErr := sim.ISCSISessions(t.Context())
		if (err != nil) != fails || listErr != nil || len(sessions) != 1 {
			t.Errorf("after error %d: %+v, %v, sessions %+v, %v", errno, done, err, sessions, listErr)
		}
		stageVolume(t, n, request(1, stagingPath))
	}
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.DiskOffline || done.LoggedOut {
		t.Errorf("the first LUN: %+v", done)
	}
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath}); !done.DiskOffline || !done.LoggedOut {
		t.Errorf("the last LUN: %+v", done)
	}
	sessions, err := sim.ISCSISessions(t.Context())
	if err != nil || len(sessions) != 0 {
		t.Errorf("sessions %+v, %v", sessions, err)
	}

	// A call that died after it unmounted the volume is made good by one that names the disk.
	staged := stageVolume(t, n, request(0, otherPath))
	simtest.Must(t, n.Volume.UnmountVolume(t.Context(), staged.VolumeID, otherPath))
	done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath, Disk: request(0, "").Disk})
	if done.Unmounted || !done.DiskOffline || !done.LoggedOut {
		t.Errorf("made good: %+v", done)
	}

	// The disk goes offline although its target can't be found out, since a repeated call finds no volume.
	staged = stageVolume(t, n, request(0, otherPath))
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallISCSISessions, Count: 1}, winerr.ErrorIODevice))
	_, err = n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: otherPath})
	simtest.WantErrorOf(t, "an unknown target", err, csiproxy.ErrUnavailable, "1117")
	simtest.Want(t, "the disk's attributes", attributesOf(sim, staged.Disk), win.DiskOffline)
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath, Disk: request(0, "").Disk}); !done.LoggedOut {
		t.Errorf("after the target was found out: %+v", done)
	}

	// A target that a driver has connected stays, until the driver disconnects it: a disk that
	// it hasn't brought online yet may be of that.
	stageVolume(t, n, request(0, otherPath))
	simtest.Must(t, n.ISCSI.ConnectTarget(t.Context(), portal, iqn, request(0, "").Login.ISCSIAuthentication))
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath}); !done.DiskOffline || done.LoggedOut {
		t.Errorf("a driver's login: %+v", done)
	}
	simtest.Must(t, n.ISCSI.DisconnectTarget(t.Context(), portal, iqn))
	stageVolume(t, n, request(0, otherPath))
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath}); !done.LoggedOut {
		t.Errorf("once the driver has disconnected: %+v", done)
	}

	// A login that an administrator has set up stays.
	stageVolume(t, n, request(0, otherPath))
	simtest.Must(t, sim.ISCSI().SetPersistentLogin(win.ISCSILogin{Portal: win.ISCSIPortal(portal), Target: string(iqn)}))
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: otherPath}); !done.DiskOffline || done.LoggedOut {
		t.Errorf("an administrator's login: %+v", done)
	}
}

// Bad requests change nothing.
func TestBadStorageRequests(t *testing.T) {
	_, n := newStagingNode(t)
	ctx := t.Context()
	for what, r := range map[string]csiproxy.StageVolumeRequest{
		"no disk":        {StagingPath: stagingPath},
		"a LUN alone":    {StagingPath: stagingPath, Disk: csiproxy.Selector{LUN: pointer(uint32(1))}},
		"no path":        {Disk: serial("vol-1")},
		"a path outside": {Disk: serial("vol-1"), StagingPath: `C:\Windows`},
		"another file system": {Disk: serial("vol-1"), StagingPath: stagingPath,
			Format: csiproxy.FormatOptions{FileSystem: "ext4"}},
		"an odd cluster": {Disk: serial("vol-1"), StagingPath: stagingPath,
			Format: csiproxy.FormatOptions{AllocationUnitBytes: 1000}},
		"a cluster of ReFS": {Disk: serial("vol-1"), StagingPath: stagingPath,
			Format: csiproxy.FormatOptions{FileSystem: csiproxy.ReFS, AllocationUnitBytes: 512}},
		"a long label": {Disk: serial("vol-1"), StagingPath: stagingPath,
			Format: csiproxy.FormatOptions{Label: strings.Repeat("x", 33)}},
		"integrity of NTFS": {Disk: serial("vol-1"), StagingPath: stagingPath,
			Format: csiproxy.FormatOptions{IntegrityStreams: true}},
		"short names of ReFS": {Disk: serial("vol-1"), StagingPath: stagingPath,
			Format: csiproxy.FormatOptions{FileSystem: csiproxy.ReFS, NoShortNames: true}},
		"a bad label": {Disk: serial("vol-1"), StagingPath: stagingPath, Format: csiproxy.FormatOptions{Label: "a\x00"}},
		"a short CHAP secret": {StagingPath: stagingPath,
			Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: csiproxy.ISCSIPortal{Address: "10.0.0.1"},
				IQN: "iqn.2026-01.a:b"}},
			Login: csiproxy.ISCSILogin{ISCSIAuthentication: csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIOneWayCHAP, Username: "u",
				Secret: csiproxy.NewSecret("short")}}},
	} {
		_, err := n.Storage.StageVolume(ctx, r)
		simtest.WantErrorOf(t, what, err, csiproxy.ErrInvalidArgument)
	}
	_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: `C:\Windows`})
	simtest.WantErrorOf(t, "unstage outside", err, csiproxy.ErrInvalidArgument)
	_, err = n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath, DiskSizeBytes: -1})
	simtest.WantErrorOf(t, "a negative size", err, csiproxy.ErrInvalidArgument)
	simtest.WantErrorOf(t, "publish outside", n.Storage.PublishVolume(ctx, stagingPath, `C:\Windows\x`), csiproxy.ErrInvalidArgument)
	simtest.WantErrorOf(t, "unpublish outside", n.Storage.UnpublishVolume(ctx, `C:\Windows\x`), csiproxy.ErrInvalidArgument)
}
