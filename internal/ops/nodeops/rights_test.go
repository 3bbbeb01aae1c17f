// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// atEachCall runs act for each call of the seam that it makes, with before right before that
// one, on a node of its own.
func atEachCallOfStaging(t *testing.T, prepare func(t *testing.T, sim *winsim.System, n *nodeops.Node),
	before func(t *testing.T, sim *winsim.System, n *nodeops.Node, c winsim.Call),
	act func(t *testing.T, sim *winsim.System, n *nodeops.Node)) {
	t.Helper()
	simtest.AtEachCall(t, func(t *testing.T, at func(*winsim.System, func(winsim.Call))) {
		sim, n := newStagingNode(t)
		prepare(t, sim, n)
		at(sim, func(c winsim.Call) { before(t, sim, n, c) })
		act(t, sim, n)
		sim.OnCall(nil)
	})
}

// An error that says that something is gone proves nothing: UnstageVolume unmounts neither a
// volume that somebody has open, nor one of another disk than the one that is named.
func TestUnstageVolumeAsksAgain(t *testing.T) {
	for _, errno := range []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorDevNotExist, winerr.ErrorNoSuchDevice,
		winerr.ErrorDeviceNotConnected} {
		for name, r := range map[string]csiproxy.UnstageVolumeRequest{
			"in use":       {StagingPath: stagingPath},
			"another disk": {StagingPath: stagingPath, Disk: serial("vol-2")},
		} {
			t.Run(name, func(t *testing.T) {
				atEachCallOfStaging(t, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
					simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
					simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
					stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
					simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("precious")))
					if name == "in use" {
						open, err := sim.OpenFile(t.Context(), stagingPath+file, win.OpenOptions{
							Access: win.FileReadAttributes | win.GenericRead, Disposition: win.FileOpen,
							Share: win.ShareRead | win.ShareWrite,
						})
						simtest.Must(t, err)
						t.Cleanup(func() { open.Close() })
					}
				}, func(t *testing.T, sim *winsim.System, n *nodeops.Node, c winsim.Call) {
					simtest.Must(t, sim.Fail(winsim.Match{Call: c.Name, Count: 1}, errno))
				}, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a few attempts
					defer cancel()
					done, err := n.Storage.UnstageVolume(ctx, r)
					sim.ResetRules()
					sim.OnCall(nil)
					if done.Unmounted {
						t.Errorf("%v: it was unmounted: %+v, %v", errno, done, err)
					}
					if data, err := sim.ReadFile(stagingPath + file); string(data) != "precious" || err != nil {
						t.Errorf("%v: the file is %q, %v", errno, data, err)
					}
				})
			})
		}
	}
}

// A volume whose disk has left, or is offline, is unmounted, so that its pods can end: but
// not if the disk that is named is there.
func TestUnstageVolumeThatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		leave   func(t *testing.T, sim *winsim.System, number csiproxy.DiskNumber)
		wanted  csiproxy.Selector
		unmount bool
	}{
		"left":                    {detach, csiproxy.Selector{}, true},
		"left, and named":         {detach, serial("vol-1"), true},
		"left, and another named": {detach, serial("vol-2"), false},
		"offline":                 {takeOffline, csiproxy.Selector{}, true},
		"offline, and named":      {takeOffline, serial("vol-1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			sim, n := newStagingNode(t)
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			other := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
			stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
			simtest.Must(t, n.Disk.SetDiskState(t.Context(), other, true))
			c.leave(t, sim, number)
			done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: c.wanted})
			if done.Unmounted != c.unmount {
				t.Errorf("%+v", done)
			}
		})
	}
}

func detach(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) {
	t.Helper()
	simtest.Must(t, sim.DetachDisk(n))
}

func takeOffline(t *testing.T, sim *winsim.System, n csiproxy.DiskNumber) {
	t.Helper()
	simtest.Must(t, sim.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}))
}

func attributesOf(sim *winsim.System, n csiproxy.DiskNumber) win.DiskAttributes {
	for _, d := range sim.Disks() {
		if d.Number == n {
			return d.Attributes
		}
	}
	return 0
}

// What is staged read-only stays so, whatever the disk group is asked for. When it is unstaged,
// the disk is writable again, and so is a disk that is offline, which nobody uses.
func TestReadOnlyBelongsToTheStaging(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	writable := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	stageVolume(t, n, writable)
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	readOnly := writable
	readOnly.ReadOnly = true
	stageVolume(t, n, readOnly)

	simtest.Must(t, n.Disk.SetDiskState(ctx, number, true))
	simtest.Must(t, n.Disk.PartitionDisk(ctx, number))
	simtest.Want(t, "its attributes online", attributesOf(sim, number), win.DiskReadOnly)
	_, err := n.Storage.StageVolume(ctx, writable)
	simtest.WantErrorOf(t, "staged writable", err, csiproxy.ErrFailedPrecondition, "read-only", stagingPath)
	takeOffline(t, sim, number)
	simtest.Must(t, n.Disk.PartitionDisk(ctx, number))
	simtest.Want(t, "its attributes offline", attributesOf(sim, number), win.DiskOffline|win.DiskReadOnly)
	stageVolume(t, n, readOnly)
	simtest.Want(t, "its attributes staged again", attributesOf(sim, number), win.DiskReadOnly)
	if err := sim.WriteFile(stagingPath+file, []byte("x")); err == nil {
		t.Error("it can be written to")
	}
	sim.OnCall(func(c winsim.Call) { // the process may die there, or the disk leave
		if attributesOf(sim, number) == win.DiskOffline|win.DiskReadOnly {
			t.Errorf("at %s, the disk is offline and still read-only", c.Name)
		}
	})
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.DiskOffline {
		t.Errorf("%+v", done)
	}
	sim.OnCall(nil)
	simtest.Want(t, "its attributes unstaged", attributesOf(sim, number), win.DiskOffline)
	// So does a call that finds it offline and read-only. If somebody has brought it online meanwhile,
	// it stays so.
	for _, want := range []win.DiskAttributes{win.DiskOffline, 0} {
		simtest.Must(t, sim.SetDiskAttributes(number,
			win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.IoctlDiskSetDiskAttributes.String() && want == 0 {
				simtest.Must(t, sim.SetDiskAttributes(number, win.SetDiskAttributes{Mask: win.DiskOffline}))
			}
		})
		unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: serial("vol-1")})
		sim.OnCall(nil)
		simtest.Want(t, "its attributes unstaged again", attributesOf(sim, number), want)
	}
}

// Another disk takes the place of one that has just gone offline so that it can be staged read-only: it
// stays as it is.
func TestReadOnlyOfADiskThatIsSwapped(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	r := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	stageVolume(t, n, r)
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	simtest.Must(t, n.Disk.SetDiskState(t.Context(), number, true))
	var changes atomic.Int64 // disks are asked at the same time
	var swapped atomic.Bool
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.IoctlDiskSetDiskAttributes.String() {
			changes.Add(1)
		} else if changes.Load() == 1 && !swapped.Swap(true) {
			simtest.Must(t, sim.SwapDisk(number, winsim.DiskSpec{Serial: "stranger"}, true))
		}
	})
	r.ReadOnly = true
	_, err := n.Storage.StageVolume(t.Context(), r)
	sim.OnCall(nil)
	simtest.WantErrorOf(t, "a swapped disk", err, csiproxy.ErrUnavailable, "another identity")
	simtest.Want(t, "changes of the attributes", changes.Load(), 1)
}

// A disk that nobody has staged inherits no wish: it may be read-only since the one before it
// at its place was.
func TestReadOnlyOfNobody(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	gone := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "gone"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("gone"), StagingPath: otherPath})
	simtest.Must(t, sim.DetachDisk(gone)) // so a volume that isn't there is mounted
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	simtest.Must(t, sim.SetDiskAttributes(number,
		win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
	var before []win.DiskAttributes // each change of the disk
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.IoctlDiskSetDiskAttributes.String() {
			before = append(before, attributesOf(sim, number))
		}
	})
	simtest.Must(t, n.Disk.SetDiskState(ctx, number, true))
	sim.OnCall(nil)
	// It becomes writable while it is offline.
	if got := attributesOf(sim, number); got != 0 || fmt.Sprint(before) != "[3 1]" {
		t.Errorf("its attributes are %v, and were %d", got, before)
	}
	simtest.Must(t, sim.SetDiskAttributes(number,
		win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
	simtest.Must(t, n.Disk.SetDiskState(ctx, number, true)) // also while it is online
	simtest.Want(t, "its attributes", attributesOf(sim, number), 0)
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("x")))
}

// A volume that is staged isn't taken offline under its pods.
func TestDiskOfAStagedVolumeStaysOnline(t *testing.T) {
	sim, n, number := newStaged(t)
	ctx := t.Context()
	simtest.WantErrorOf(t, "offline", n.Disk.SetDiskState(ctx, number, false), csiproxy.ErrFailedPrecondition, stagingPath,
		"unmount it first")
	simtest.Want(t, "its attributes", attributesOf(sim, number), 0)
	// One error proves nothing.
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallVolumePathNames, Count: 1}, winerr.ErrorIODevice))
	simtest.WantErrorOf(t, "offline, with an error", n.Disk.SetDiskState(ctx, number, false),
		csiproxy.ErrFailedPrecondition, stagingPath)
	// If the disk is broken, its mount point tells.
	broken := winsim.Match{Call: win.CallVolumePathNames}
	simtest.Must(t, sim.Fail(broken, winerr.ErrorIODevice))
	simtest.WantErrorOf(t, "offline, broken", n.Disk.SetDiskState(ctx, number, false),
		csiproxy.ErrFailedPrecondition, stagingPath)
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.IoctlVolumeGetVolumeDiskExtents.String()}, winerr.ErrorIODevice))
	simtest.WantErrorOf(t, "offline, all broken", n.Disk.SetDiskState(ctx, number, false), csiproxy.ErrUnavailable,
		"which disks it runs from")
	simtest.Want(t, "its attributes", attributesOf(sim, number), 0)
	sim.ResetRules()
	// A broken disk that nobody uses must get offline, also beside a mount whose disk has left.
	left := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: otherPath})
	simtest.Must(t, sim.DetachDisk(left))
	simtest.Must(t, n.Volume.UnmountVolume(ctx, csiproxy.VolumeID(sim.VolumesOfDisk(number)[0]), stagingPath))
	simtest.Must(t, sim.Fail(broken, winerr.ErrorIODevice))
	simtest.Must(t, n.Disk.SetDiskState(ctx, number, false))
	simtest.Want(t, "its attributes", attributesOf(sim, number), win.DiskOffline)
}

// A volume is mounted at the staging path while UnstageVolume looks for the disk that is named, and
// isn't in the node: it doesn't say that nothing is staged.
func TestMountAtTheStagingPathDuringUnstage(t *testing.T) {
	sim, n := newStagingNode(t)
	name, _ := simtest.Volume(t, sim)
	simtest.Must(t, sim.MkdirAll(stagingPath))
	r := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: serial("vol-1")}
	sim.OnCall(func(c winsim.Call) {
		if c.Name == win.CallDeviceInterfaces {
			sim.OnCall(nil)
			simtest.Mount(t, sim, stagingPath, name)
		}
	})
	_, err := n.Storage.UnstageVolume(t.Context(), r)
	simtest.WantErrorOf(t, "while it is mounted", err, csiproxy.ErrUnavailable, name)
}

// A published volume isn't unstaged without force, and the error names the links.
func TestUnstageVolumeThatIsPublished(t *testing.T) {
	sim, n, _ := newStaged(t)
	ctx := t.Context()
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	second := targetPath + "2"
	simtest.Must(t, sim.Symlink(second, targetPath, true)) // by way of another link
	r := csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}
	_, err := n.Storage.UnstageVolume(ctx, r)
	simtest.WantErrorOf(t, "published", err, csiproxy.ErrFailedPrecondition, targetPath, second, "unpublish it first",
		"csi-proxyctl storage unpublish PATH")
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("precious")))
	// What isn't known isn't empty.
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallReadDir}, winerr.ErrorAccessDenied))
	_, err = n.Storage.UnstageVolume(ctx, r)
	simtest.WantErrorOf(t, "unknown links", err, csiproxy.ErrUnavailable, "some links can't be read")
	sim.ResetRules()
	r.Force = true
	if done := unstageVolume(t, n, r); !done.Unmounted {
		t.Errorf("by force: %+v", done)
	}
}

// A published volume isn't fixed, whichever call fails while it is looked for.
func TestSpotFixFailsClosed(t *testing.T) {
	atEachCallOfStaging(t, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
		simtest.Must(t, n.Storage.PublishVolume(t.Context(), stagingPath, targetPath))
	}, func(t *testing.T, sim *winsim.System, n *nodeops.Node, c winsim.Call) {
		simtest.Must(t, sim.Fail(winsim.Match{Call: c.Name, Count: 1}, winerr.ErrorDeviceNotConnected))
	}, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		_, err := n.Storage.CheckVolume(t.Context(),
			csiproxy.CheckVolumeRequest{StagingPath: stagingPath, SpotFix: true})
		if err == nil {
			t.Error("it was checked")
		}
	})
}

// Windows gives drive letters by itself. That is no use of a volume, and staging takes the
// letter away.
func TestLetteredVolume(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		sim, n := newStagingNode(t)
		name, number, letter := simtest.Lettered(t, sim, winsim.DiskSpec{Serial: "vol-1"})
		staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: readOnly})
		paths, err := sim.VolumePathNames(t.Context(), name)
		if err != nil || len(paths) != 1 || strings.EqualFold(paths[0], letter) ||
			!strings.EqualFold(string(staged.VolumeID), name) {
			t.Errorf("read-only %v: it is mounted at %q, %v", readOnly, paths, err)
		}
		if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); !done.DiskOffline ||
			attributesOf(sim, number) != win.DiskOffline {
			t.Errorf("read-only %v: %+v", readOnly, done)
		}
	}
	sim, n := newStagingNode(t)
	_, number, _ := simtest.Lettered(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath,
		Disk: serial("vol-1")}); !done.DiskOffline || attributesOf(sim, number) != win.DiskOffline {
		t.Errorf("with a letter only: %+v", done)
	}
}

// A disk that grows after it was attached is grown as a whole, also if it was just partitioned.
func TestGrowOfARawDisk(t *testing.T) {
	sim, n := newStagingNode(t)
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1", SizeBytes: 10 << 30})
	simtest.Must(t, sim.GrowDisk(number, 20<<30))
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, Grow: true})
	if staged.SizeBytes < 19<<30 || !staged.Partitioned {
		t.Errorf("%+v", staged)
	}
}

// A volume is published from where it is staged, and outside of volumes: a directory in one is
// its users'.
func TestPublishVolumeOutsideOfVolumes(t *testing.T) {
	sim, n, _ := newStaged(t)
	ctx := t.Context()
	simtest.Must(t, sim.MkdirAll(stagingPath+`\sub`))
	simtest.WantErrorOf(t, "inside", n.Storage.PublishVolume(ctx, stagingPath, stagingPath+`\sub`), csiproxy.ErrFailedPrecondition, "into a mounted volume")
	if _, err := sim.ReadDir(stagingPath + `\sub`); err != nil {
		t.Errorf("the user's directory: %v", err)
	}
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	simtest.WantErrorOf(t, "from a link", n.Storage.PublishVolume(ctx, targetPath, targetPath+"2"),
		csiproxy.ErrFailedPrecondition, "not a staging path")
}

// The mount of a volume whose disk is only offline, or to which a link leads, is no leftover.
func TestCleanUpLeavesMountsInUse(t *testing.T) {
	sim, n, number := newStaged(t)
	ctx := t.Context()
	isMounted := func(when string) {
		t.Helper()
		left, err := n.Storage.CleanUp(ctx, true)
		if err != nil || len(left.Mounts) != 0 {
			t.Errorf("%s: %+v, %v", when, left, err)
		}
	}
	takeOffline(t, sim, number)
	isMounted("offline")
	simtest.Must(t, n.Disk.SetDiskState(ctx, number, true))
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	writeVolumeData(t, sim)
	simtest.Must(t, sim.DetachDisk(number))
	isMounted("published")
	simtest.Must(t, n.Storage.UnpublishVolume(ctx, targetPath))
	other := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2", Offline: true})
	isMounted("another disk is offline, and may have the volume")
	simtest.Must(t, n.Disk.SetDiskState(ctx, other, true))
	left, err := n.Storage.CleanUp(ctx, true)
	if err != nil || len(left.Mounts) != 1 || !left.Mounts[0].Removed {
		t.Errorf("gone: %+v, %v", left, err)
	}
}

// A mount that was a leftover when CleanUp listed it is none any more.
func TestCleanUpLooksAgain(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, sim *winsim.System){
		"the disk returns": func(t *testing.T, sim *winsim.System) {
			simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			sim.Settle()
		},
		"a link is made": func(t *testing.T,
			sim *winsim.System) {
			simtest.Must(t, sim.Symlink(dangling, stagingPath, true))
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim, n := newStagingNode(t)
			ctx := t.Context()
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
			simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\pods`))
			simtest.Must(t, sim.DetachDisk(number))
			var listing, calls atomic.Int64
			for range 2 { // the first one may ask what is remembered then
				listing.Store(0)
				sim.OnCall(func(winsim.Call) { listing.Add(1) })
				left, err := n.Storage.CleanUp(ctx, false)
				if err != nil || len(left.Mounts) != 1 {
					t.Fatalf("%+v, %v", left, err)
				}
			}
			sim.OnCall(func(winsim.Call) {
				if calls.Add(1) == listing.Load()+1 {
					sim.OnCall(nil)
					happens(t, sim)
				}
			})
			left, err := n.Storage.CleanUp(ctx, true)
			if err != nil || len(left.Mounts) != 1 || left.Mounts[0].Removed || left.Mounts[0].Error != "" {
				t.Errorf("%+v, %v", left, err)
			}
		})
	}
}

// At each call of CleanUp the disk returns, and the volume is staged and published: what has
// succeeded stays.
func TestStageAndPublishDuringCleanUp(t *testing.T) {
	var staged, published bool
	var done chan struct{}
	prepare := func(link bool) func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		return func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
			if link { // a dangling one
				simtest.Must(t, n.Storage.PublishVolume(t.Context(), stagingPath, targetPath))
				unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Force: true})
				simtest.Must(t, n.Filesystem.Rmdir(t.Context(), stagingPath, true))
			} else {
				simtest.Must(t, sim.DetachDisk(number))
			}
			staged, published, done = false, false, make(chan struct{})
		}
	}
	for _, link := range []bool{false, true} {
		atEachCallOfStaging(t, prepare(link), func(t *testing.T, sim *winsim.System, n *nodeops.Node, c winsim.Call) {
			if !link {
				simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
			}
			other, err := nodeops.New(sim, nodeops.Options{})
			simtest.Must(t, err)
			go func() {
				defer close(done)
				_, err := other.Storage.StageVolume(t.Context(),
					csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
				staged = err == nil
				published = staged && other.Storage.PublishVolume(t.Context(), stagingPath, targetPath) == nil
			}()
			synctest.Wait()
		}, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			_, err := n.Storage.CleanUp(t.Context(), true)
			sim.OnCall(nil)
			select {
			case <-done:
			case <-time.After(time.Minute):
				return
			}
			if !staged {
				t.Errorf("not staged (CleanUp: %v)", err)
			}
			if v, err := n.Storage.GetVolume(t.Context(), stagingPath); staged && (err != nil || v.Abnormal()) {
				t.Errorf("staged, and then: %+v, %v", v, err)
			}
			if v, err := n.Storage.GetVolume(t.Context(), targetPath); published && (err != nil || v.Abnormal()) {
				t.Errorf("published, and then: %+v, %v", v, err)
			}
		})
	}
}

// What a pod still writes after its volume was unstaged fails, and doesn't land on the node's
// disk. A directory that something was written to is named with it.
func TestWriteAfterUnstage(t *testing.T) {
	sim, n := newStagingNode(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	r := csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath}
	volumeID := stageVolume(t, n, r).VolumeID
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Force: true})
	cantWrite := func() {
		t.Helper()
		for _, path := range []string{stagingPath, targetPath} {
			if err := sim.WriteFile(path+file, []byte("x")); err == nil {
				t.Errorf("%s can be written to", path)
			}
		}
	}
	cantWrite()
	stageVolume(t, n, r)
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("x")))

	simtest.Must(t, n.Volume.UnmountVolume(ctx, volumeID, stagingPath))
	cantWrite()
	simtest.Must(t, n.Volume.MountVolume(ctx, volumeID, stagingPath))
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("y")))
	simtest.Must(t, n.Volume.UnmountVolume(ctx, volumeID, stagingPath))

	simtest.Must(t, n.Filesystem.Rmdir(ctx, stagingPath, false))
	simtest.Must(t, sim.MkdirAll(stagingPath))
	simtest.Must(t, sim.WriteFile(stagingPath+file, []byte("x")))
	_, err := n.Storage.StageVolume(ctx, r)
	simtest.WantErrorOf(t, "not empty", err, csiproxy.ErrFailedPrecondition, "it has data.txt (since 20",
		"Move-Item -LiteralPath '"+stagingPath+"' -Destination DIRECTORY")
}
