// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestPublishVolumeWhereSomethingIs(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.WantErrorOf(t, "nothing staged", n.Storage.PublishVolume(ctx, stagingPath, targetPath),
		csiproxy.ErrFailedPrecondition, "neither a volume nor a share")
	simtest.Must(t, sim.MkdirAll(stagingPath))
	simtest.WantErrorOf(t, "a plain directory", n.Storage.PublishVolume(ctx, stagingPath, targetPath),
		csiproxy.ErrFailedPrecondition)
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})

	simtest.Must(t, sim.MkdirAll(targetPath)) // empty, as a call that died leaves it
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("precious")))

	directory := simtest.Kubelet + `\pods\uid\volumes\example~driver`
	simtest.Must(t, sim.MkdirAll(directory))
	simtest.Must(t, sim.WriteFile(directory+file, []byte("precious")))
	elsewhere := simtest.Kubelet + `\pods\link`
	simtest.Must(t, sim.Symlink(elsewhere, directory, true))
	for what, path := range map[string]string{"a directory": directory, "a file": directory + file,
		"another link": elsewhere, "a mount point": stagingPath} {
		if err := n.Storage.PublishVolume(ctx, stagingPath, path); csiproxy.KindOf(err) != csiproxy.ErrAlreadyExists &&
			csiproxy.KindOf(err) != csiproxy.ErrInvalidArgument {
			t.Errorf("publish over %s: %v", what, err)
		}
	}
	for what, path := range map[string]string{"a directory": directory, "a file": directory + file,
		"a mount point": stagingPath} {
		simtest.WantErrorOf(t, "unpublish "+what, n.Storage.UnpublishVolume(ctx, path), csiproxy.ErrFailedPrecondition)
	}
	for _, path := range []string{directory, stagingPath, targetPath} {
		if data, err := sim.ReadFile(path + file); string(data) != "precious" || err != nil {
			t.Errorf("the file in %s is %q, %v", path, data, err)
		}
	}
	empty := simtest.Kubelet + `\pods\empty`
	simtest.Must(t, sim.MkdirAll(empty))
	simtest.Must(t, n.Storage.UnpublishVolume(ctx, empty))
	if exists, err := n.Filesystem.PathExists(ctx, empty); exists || err != nil {
		t.Errorf("the empty directory: %v, %v", exists, err)
	}
}

func TestExpandVolumeWaitsForTheDisk(t *testing.T) {
	sim, n, number := newStaged(t)
	request := csiproxy.ExpandVolumeRequest{StagingPath: stagingPath, DiskSizeBytes: 20 << 30, Wait: -1}
	_, err := n.Storage.ExpandVolume(t.Context(), request)
	simtest.WantErrorOf(t, "too early", err, csiproxy.ErrUnavailable, fmt.Sprint(int64(10<<30)), fmt.Sprint(int64(20<<30)))

	// The cloud grows the disk while the call waits.
	var once sync.Once
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallReenumerateDevice {
			once.Do(func() { simtest.Must(t, sim.GrowDisk(number, 20<<30)) })
		}
	})
	request.Wait = 0
	done, err := n.Storage.ExpandVolume(t.Context(), request)
	if err != nil || !done.Grown || done.SizeBytes < 19<<30 {
		t.Errorf("%+v, %v", done, err)
	}
	_, err = n.Storage.ExpandVolume(t.Context(), csiproxy.ExpandVolumeRequest{StagingPath: simtest.Kubelet + `\none`})
	simtest.WantErrorOf(t, "no volume", err, csiproxy.ErrNotFound)
}

// The disk grows, and another caller makes Windows see it, at each call of ExpandVolume in turn. A success
// means a grown volume.
func TestExpandVolumeOfADiskThatGrowsMeanwhile(t *testing.T) {
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		sim, n, number := newStaged(t)
		before(sim, func(winsim.Call) {
			simtest.Must(t, sim.GrowDisk(number, 20<<30))
			simtest.Must(t, n.Disk.Rescan(t.Context()))
		})
		done, err := n.Storage.ExpandVolume(t.Context(), csiproxy.ExpandVolumeRequest{StagingPath: stagingPath,
			DiskSizeBytes: 20 << 30, Wait: -1})
		sim.OnCall(nil)
		if err == nil && (!done.Grown || done.SizeBytes < 19<<30) {
			t.Errorf("it succeeded with %+v", done)
		}
	})
}

// A volume that can't have what is free on its disk grows as far as it can, and each call says what is in the way.
func TestGrowthThatIsBlocked(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Partition(t, sim, number, 2) // of 1 GiB each
	request := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), Partition: 1, StagingPath: stagingPath}
	staged := stageVolume(t, n, request)
	request.Grow = true
	behind := `partition 2 lies behind it`
	for range 2 {
		_, err := n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath})
		simtest.WantErrorOf(t, "ExpandVolume", err, csiproxy.ErrResourceExhausted, behind)
		again, err := n.Storage.StageVolume(ctx, request)
		simtest.WantErrorOf(t, "StageVolume", err, csiproxy.ErrResourceExhausted, behind)
		if again.VolumeID != staged.VolumeID {
			t.Errorf("staged %+v", again)
		}
	}
	simtest.Must(t, n.Volume.ResizeVolume(ctx, staged.VolumeID, 0))
	checked, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath})
	simtest.Must(t, err)
	v, err := n.Storage.GetVolume(ctx, stagingPath)
	simtest.Must(t, err)
	for what, conditions := range map[string]csiproxy.Conditions{"GetVolume": v.Conditions, "CheckVolume": checked.Conditions} {
		if len(conditions) != 1 || conditions[0].Reason != csiproxy.ReasonGrowthBlocked || conditions[0].Inaccessible ||
			!strings.HasSuffix(conditions[0].Message, behind+"; move it, or delete it if nothing on it is needed") {
			t.Errorf("%s: %v", what, conditions)
		}
	}
}

// Windows wants to check the file system. It isn't grown before, since it may be damaged.
func TestGrowthOfAnUncleanVolume(t *testing.T) {
	sim, n, number := newStaged(t)
	ctx := t.Context()
	simtest.Must(t, sim.GrowDisk(number, 20<<30))
	simtest.Must(t, sim.SetVolumeDirty(stagingPath, true))
	extended := simtest.Counted(sim, win.FsctlExtendVolume.String())
	request := csiproxy.ExpandVolumeRequest{StagingPath: stagingPath}
	for range 2 {
		_, err := n.Storage.ExpandVolume(ctx, request)
		simtest.WantErrorOf(t, "ExpandVolume", err, csiproxy.ErrUnavailable, "CheckVolume")
	}
	id := csiproxy.VolumeID(sim.VolumesOfDisk(number)[0])
	simtest.WantErrorOf(t, "ResizeVolume", n.Volume.ResizeVolume(ctx, id, 20<<30), csiproxy.ErrUnavailable)
	simtest.Must(t, n.Volume.ResizeVolume(ctx, id, 0)) // as a driver calls it after each mount
	simtest.Want(t, "growths of the file system", extended()[0], 0)
	simtest.Must(t, sim.SetVolumeDirty(stagingPath, false))
	if grown, err := n.Storage.ExpandVolume(ctx, request); err != nil || grown.SizeBytes < 19<<30 {
		t.Errorf("%+v, %v", grown, err)
	}
}

// Windows is asked again at each attempt: a page file may be added while the call waits.
func TestExpandVolumeSeesANewPageFile(t *testing.T) {
	sim, n, number := newStaged(t)
	simtest.Must(t, sim.SetVolumeMountPoint(t.Context(), `P:\`, sim.VolumesOfDisk(number)[0]))
	simtest.Must(t, sim.WriteFile(`P:\pagefile.sys`, nil))
	var once sync.Once
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallReenumerateDevice {
			once.Do(func() {
				simtest.Must(t, sim.SetRegistryStrings(win.RegistryMemoryManagement, win.RegistryExistingPageFiles,
					`\??\P:\pagefile.sys`))
				simtest.Must(t, sim.GrowDisk(number, 20<<30))
			})
		}
	})
	_, err := n.Storage.ExpandVolume(t.Context(), csiproxy.ExpandVolumeRequest{StagingPath: stagingPath, DiskSizeBytes: 20 << 30})
	simtest.WantErrorOf(t, "with a page file", err, csiproxy.ErrFailedPrecondition, `page file P:\pagefile.sys`)
}

// Who has changed a volume sees that, though another caller's look is under way meanwhile.
func TestGetVolumeSeesTheCallersOwnChange(t *testing.T) {
	synctest.Test(t, testGetVolumeSeesTheCallersOwnChange)
}

func testGetVolumeSeesTheCallersOwnChange(t *testing.T) {
	sim, n, number := newStaged(t)
	ctx := t.Context()
	simtest.Must(t, sim.GrowDisk(number, 20<<30))
	// The last call of the look, after the size was read, takes a while.
	simtest.Must(t, sim.Delay(winsim.Match{Call: win.FsctlIsVolumeDirty.String()}, 2*time.Second))
	first := make(chan csiproxy.Volume, 1)
	go func() {
		v, err := n.Storage.GetVolume(ctx, stagingPath)
		simtest.WantError(t, err, nil)
		first <- v
	}()
	synctest.Wait()
	grown, err := n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath})
	simtest.Must(t, err)
	v, err := n.Storage.GetVolume(ctx, stagingPath)
	if err != nil || v.SizeBytes != grown.SizeBytes {
		t.Errorf("the volume has %d bytes after it was grown to %d, %v", v.SizeBytes, grown.SizeBytes, err)
	}
	if early := <-first; early.SizeBytes > 10<<30 || !grown.Grown {
		t.Errorf("the first look saw %+v; grown is %+v", early, grown)
	}
}
