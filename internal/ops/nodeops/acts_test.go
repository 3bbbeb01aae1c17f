// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// act is an operation that changes something, or something that happens to the node.
type act struct {
	name string
	on   object
	run  func(ctx context.Context, r *rig, n *nodeops.Node) (any, error)
	// sweeps is set if it goes through all that it finds, one after the other: what comes
	// meanwhile it may miss, until it is repeated.
	sweeps bool
	// undo is set for what happens to the node, and takes it back.
	undo func(r *rig) error
}

// object is what acts are about. Acts on volumes don't concern shares.
type object int

const (
	aVolume object = 1 << iota
	anID           // a volume whose id is known
	aShare
)

// start is a node in the state in which acts meet, and what of it they are about.
type start struct {
	name    string
	prepare func(r *rig)
	has     object

	// What prepared sets.
	file   string // that has the node
	number csiproxy.DiskNumber
	volume csiproxy.VolumeID
	took   time.Duration
}

// prepared prepares the node once, for all its plays, which are on copies of it: preparing it
// takes most of the time of a play.
func (s start) prepared(t *testing.T) start {
	t.Helper()
	s.file = filepath.Join(t.TempDir(), "node")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := newRigOf(t, winsim.Config{StateFile: s.file})
		for _, path := range []string{staging, elsewhere, target, share, podShare} {
			r.must(r.sim.MkdirAll(path[:strings.LastIndex(path, `\`)]))
		}
		s.prepare(r)
		r.sim.Settle()
		s.number, s.volume, s.took = r.number, r.volume, time.Since(begin)
	})
	return s
}

// rig returns a copy of the prepared node.
func (s start) rig(t testing.TB, delays winsim.Delays) *rig {
	time.Sleep(s.took) // as time in each bubble of synctest begins anew
	sim := simtest.OpenNode(t, winsim.Config{CopyOf: s.file, Delays: delays})
	return &rig{t: t, sim: sim, number: s.number, volume: s.volume}
}

const (
	elsewhere = simtest.Kubelet + `\plugins\example\pv-2\globalmount`
	podShare  = simtest.Kubelet + `\pods\6a1c2d3e\volumes\share\mount`
)

var starts = []start{
	{name: "raw disk", has: aVolume, prepare: func(r *rig) { r.raw(true) }},
	{name: "raw disk, and files at the staging path", has: aVolume, prepare: func(r *rig) {
		r.raw(true)
		r.must(r.sim.MkdirAll(staging))
		r.must(r.sim.WriteFile(staging+file, []byte("precious")))
	}},
	{name: "raw volume", has: aVolume | anID, prepare: (*rig).partitioned},
	{name: "unstaged volume whose disk has grown", has: aVolume | anID, prepare: func(r *rig) {
		r.unstaged()
		r.must(r.sim.GrowDisk(r.number, 20<<30))
	}},
	{name: "staged volume", has: aVolume | anID, prepare: func(r *rig) {
		r.mounted()
		r.must(r.sim.SetVolumeDamage(staging, volumes.SpotDamage))
	}},
	{name: "published volume", has: aVolume | anID, prepare: (*rig).published},
	{name: "volume staged read-only", has: aVolume | anID, prepare: (*rig).stagedReadOnly},
	{name: "published volume without its disk", has: aVolume | anID, prepare: func(r *rig) {
		r.published()
		r.must(r.sim.DetachDisk(r.number))
	}},
	{name: "published volume that Windows has taken offline", has: aVolume | anID, prepare: func(r *rig) {
		r.published()
		r.must(r.sim.SetOfflineReason(r.number, win.OfflinePolicy))
	}},
	{name: "share that isn't mapped", has: aShare, prepare: none},
	{name: "mapped share", has: aShare, prepare: (*rig).mapped},
	{name: "published share", has: aShare, prepare: (*rig).publishedShare},
	{name: "share staged twice", has: aShare, prepare: (*rig).sharedTwice},
	{name: "volume and share", has: aVolume | anID | aShare, prepare: func(r *rig) {
		r.published()
		r.publishedShare()
	}},
}

func (r *rig) published() {
	r.mounted()
	r.must(r.process().Storage.PublishVolume(context.Background(), staging, target))
}

func (r *rig) publishedShare() {
	r.shared()
	r.must(r.process().Storage.PublishVolume(context.Background(), share, podShare))
}

func stage(change func(*csiproxy.StageVolumeRequest)) func(context.Context, *rig, *nodeops.Node) (any, error) {
	return func(ctx context.Context, _ *rig, n *nodeops.Node) (any, error) {
		request := stageRequest
		change(&request)
		return n.Storage.StageVolume(ctx, request)
	}
}

func unstage(request csiproxy.UnstageVolumeRequest) func(context.Context, *rig, *nodeops.Node) (any, error) {
	return func(ctx context.Context, _ *rig, n *nodeops.Node) (any, error) {
		done, err := n.Storage.UnstageVolume(ctx, request)
		return done.Unmounted, err // who takes the disk offline doesn't matter
	}
}

// plain is an operation that answers nothing.
func plain(f func(ctx context.Context, r *rig, n *nodeops.Node) error) func(context.Context, *rig,
	*nodeops.Node) (any, error) {
	return func(ctx context.Context, r *rig, n *nodeops.Node) (any, error) { return nil, f(ctx, r, n) }
}

// gone takes it for success that what is to be removed isn't there, as drivers do.
func gone(err error) error {
	if errors.Is(err, csiproxy.ErrNotFound) {
		return nil
	}
	return err
}

// acts are all operations that change something, of both APIs, and what happens to a node.
var acts = []act{
	{name: "SetDiskState online", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Disk.SetDiskState(ctx, r.number, true)
	})},
	{name: "SetDiskState offline", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Disk.SetDiskState(ctx, r.number, false)
	})},
	{name: "PartitionDisk", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Disk.PartitionDisk(ctx, r.number)
	})},
	{name: "FormatVolume", on: anID, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Volume.FormatVolume(ctx, r.volume)
	})},
	{name: "MountVolume", on: anID, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Volume.MountVolume(ctx, r.volume, staging)
	})},
	{name: "UnmountVolume", on: anID, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Volume.UnmountVolume(ctx, r.volume, staging)
	})},
	{name: "ResizeVolume", on: anID, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Volume.ResizeVolume(ctx, r.volume, 0)
	})},
	{name: "Mkdir of the staging path", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Filesystem.Mkdir(ctx, staging)
	})},
	{name: "Rmdir of the staging path", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return gone(n.Filesystem.Rmdir(ctx, staging, false))
	})},
	{name: "Rmdir of the staging path by force", on: aVolume,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Filesystem.Rmdir(ctx, staging, true)
		})},
	{name: "RmdirContents above the staging path", on: aVolume,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return gone(n.Filesystem.RmdirContents(ctx, simtest.Kubelet+`\plugins\example\pv-1`))
		})},
	{name: "CreateSymlink", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Filesystem.CreateSymlink(ctx, staging, simtest.Kubelet+`\link`)
	})},
	{name: "Rmdir of the pod's directory", on: aVolume,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return gone(n.Filesystem.Rmdir(ctx, target, false))
		})},
	{name: "Rmdir of the pod by force", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Filesystem.Rmdir(ctx, simtest.Kubelet+`\pods\6a1c2d3e`, true)
	})},
	{name: "StageVolume", on: aVolume, run: stage(func(*csiproxy.StageVolumeRequest) {})},
	{name: "StageVolume read-only", on: aVolume,
		run: stage(func(r *csiproxy.StageVolumeRequest) { r.ReadOnly, r.Grow = true, false })},
	{name: "StageVolume elsewhere", on: aVolume,
		run: stage(func(r *csiproxy.StageVolumeRequest) { r.StagingPath = elsewhere })},
	{name: "UnstageVolume", on: aVolume, run: unstage(csiproxy.UnstageVolumeRequest{StagingPath: staging})},
	{name: "UnstageVolume of the disk", on: aVolume,
		run: unstage(csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})},
	{name: "UnstageVolume by force", on: aVolume,
		run: unstage(csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk, Force: true})},
	{name: "PublishVolume", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Storage.PublishVolume(ctx, staging, target)
	})},
	{name: "UnpublishVolume", on: aVolume, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Storage.UnpublishVolume(ctx, target)
	})},
	{name: "ExpandVolume", on: aVolume, run: func(ctx context.Context, r *rig, n *nodeops.Node) (any, error) {
		return n.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: staging, Wait: time.Second})
	}},
	{name: "CheckVolume with a spot fix", on: aVolume,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) (any, error) {
			checked, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: staging, SpotFix: true})
			if errors.Is(err, csiproxy.ErrFailedPrecondition) {
				err = nil // if there is nothing to repair, it doesn't matter that it may not
			}
			return checked.ErrorsFound && !checked.Fixed, err // who repairs it doesn't matter
		}},

	{name: "NewSMBGlobalMapping", on: aShare, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, "", user)
	})},
	{name: "NewSMBGlobalMapping with a link", on: aShare,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, simtest.Kubelet+`\mapped`, user)
		})},
	{name: "RemoveSMBGlobalMapping", on: aShare, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return gone(n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`))
	})},
	{name: "StageShare", on: aShare, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Storage.StageShare(ctx, shareRequest(share))
	})},
	{name: "StageShare elsewhere", on: aShare, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Storage.StageShare(ctx, shareRequest(share+"2"))
	})},
	{name: "StageShare of a missing directory", on: aShare,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := shareRequest(share + "3")
			request.RemotePath += `\none`
			return n.Storage.StageShare(ctx, request)
		})},
	{name: "UnstageShare", on: aShare, run: func(ctx context.Context, r *rig, n *nodeops.Node) (any, error) {
		done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
		return done.Unmapped, err // who removes the link doesn't matter
	}},
	{name: "UnstageShare of the remote path", on: aShare,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			// Who removes the mapping doesn't matter: this, or the StageShare itself that has made
			// it and fails, or makes it anew before it makes the link.
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share + "2", RemotePath: `\\server\data`})
			return err
		})},
	{name: "UnstageVolume of the share", on: aShare, run: func(ctx context.Context, r *rig, n *nodeops.Node) (any, error) {
		done, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: share})
		return done.Unmapped, err
	}},
	{name: "PublishVolume of the share", on: aShare, run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Storage.PublishVolume(ctx, share, podShare)
	})},
	{name: "UnpublishVolume of the share", on: aShare,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.UnpublishVolume(ctx, podShare)
		})},
	{name: "Rmdir of the link to the share", on: aShare,
		run: plain(func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return gone(n.Filesystem.Rmdir(ctx, share, false))
		})},

	{name: "CleanUp", on: aVolume | aShare, sweeps: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) (any, error) {
			left, err := n.Storage.CleanUp(ctx, true)
			var removed []string
			for _, one := range left.Mounts {
				if one.Removed {
					removed = append(removed, string(one.Kind)+" "+one.Path)
				}
				if one.Error != "" {
					err = errors.Join(err, csiproxy.Errorf(csiproxy.ErrUnavailable, "%s", one.Error))
				}
			}
			return removed, err
		}},

	{name: "the disk leaves", on: aVolume,
		run: plain(func(_ context.Context, r *rig, _ *nodeops.Node) error {
			if r.isAttached() {
				return r.sim.DetachDisk(r.number)
			}
			return nil
		}),
		undo: (*rig).returns,
	},
	{name: "the disk returns", on: aVolume,
		run:  plain(func(_ context.Context, r *rig, _ *nodeops.Node) error { return r.returns() }),
		undo: func(*rig) error { return nil },
	},
	{name: "Windows takes the disk offline", on: aVolume,
		run: plain(func(_ context.Context, r *rig, _ *nodeops.Node) error {
			if r.isAttached() {
				return r.sim.SetOfflineReason(r.number, win.OfflinePolicy)
			}
			return nil
		}),
		undo: func(r *rig) error {
			if r.isAttached() {
				return r.sim.SetDiskAttributes(r.number, win.SetDiskAttributes{Mask: win.DiskOffline})
			}
			return nil
		},
	},
}

func (r *rig) isAttached() bool {
	return slices.ContainsFunc(r.sim.Disks(), func(d disks.Record) bool {
		return d.Spec.Serial == "vol-1" && d.State != disks.Detached
	})
}

// returns attaches the disk again, if it has left.
func (r *rig) returns() error {
	if r.isAttached() {
		return nil
	}
	_, err := r.sim.AttachDisk(winsim.DiskSpec{Serial: "vol-1"})
	return err
}
