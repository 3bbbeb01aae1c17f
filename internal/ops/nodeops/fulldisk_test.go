// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// noRoom are the errors of a drive C: that is full or write-protected.
var noRoom = []winerr.Errno{winerr.ErrorDiskFull, winerr.ErrorHandleDiskFull, winerr.ErrorWriteProtect}

// refusing is a node on which calls of one sort fail.
type refusing struct {
	win.System
	errno   winerr.Errno
	creates bool // calls that create something fail, else calls that delete something
	nth     int  // only this one of them fails; all of them if it is 0
	met     int  // how many there were
}

// refuse returns the error of a call that creates something, or that deletes it.
func (r *refusing) refuse(creates bool) error {
	if creates != r.creates {
		return nil
	}
	if r.met++; r.nth == 0 || r.met == r.nth {
		return r.errno
	}
	return nil
}

// open opens what is there, and refuses to create what isn't.
func (r *refusing) open(o win.OpenOptions, open func(win.OpenOptions) (win.File, error)) (win.File, error) {
	existing := o
	existing.Disposition = win.FileOpen
	if o.Disposition == win.FileOpenIf {
		f, err := open(existing)
		if !errors.Is(err, fs.ErrNotExist) {
			return r.file(f, err)
		}
	}
	if o.Disposition != win.FileOpen {
		if err := r.refuse(true); err != nil {
			return nil, err
		}
	}
	return r.file(open(o))
}

func (r *refusing) file(f win.File, err error) (win.File, error) {
	if err != nil {
		return nil, err
	}
	return refusingFile{f, r}, nil
}

func (r *refusing) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	return r.open(o, func(o win.OpenOptions) (win.File, error) { return r.System.OpenFile(ctx, path, o) })
}

func (r *refusing) SetVolumeMountPoint(ctx context.Context, path, volume string) error {
	if err := r.refuse(true); err != nil {
		return err
	}
	return r.System.SetVolumeMountPoint(ctx, path, volume)
}

func (r *refusing) DeleteVolumeMountPoint(ctx context.Context, path string) error {
	if err := r.refuse(false); err != nil {
		return err
	}
	return r.System.DeleteVolumeMountPoint(ctx, path)
}

type refusingFile struct {
	win.File
	r *refusing
}

func (f refusingFile) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	return f.r.open(o, func(o win.OpenOptions) (win.File, error) { return f.File.OpenAt(ctx, name, o) })
}

func (f refusingFile) DenyCreation(ctx context.Context, deny bool) error {
	if err := f.r.refuse(deny); err != nil {
		return err
	}
	return f.File.DenyCreation(ctx, deny)
}

func (f refusingFile) Delete(ctx context.Context) error {
	if err := f.r.refuse(false); err != nil {
		return err
	}
	return f.File.Delete(ctx)
}

func (f refusingFile) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if code == win.FsctlSetReparsePoint || code == win.FsctlDeleteReparsePoint {
		if err := f.r.refuse(code == win.FsctlSetReparsePoint); err != nil {
			return 0, err
		}
	}
	return f.File.Control(ctx, code, in, out)
}

// release is an operation that releases something.
type release struct {
	name    string
	prepare func(r *rig)
	run     func(ctx context.Context, r *rig, n *nodeops.Node) error
	// released checks that it is released.
	released func(r *rig) error
}

func unstages(request csiproxy.UnstageVolumeRequest) func(context.Context, *rig, *nodeops.Node) error {
	return func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		_, err := n.Storage.UnstageVolume(ctx, request)
		return err
	}
}

// isUnmounted checks that no volume is mounted at the staging path.
func isUnmounted(r *rig) error {
	_, err := r.process().Volume.GetVolumeIDFromTargetPath(context.Background(), staging)
	return want("unmounted", err != nil, true, nil)
}

func isUnmapped(r *rig) error { return want("mapped", r.isMapped(), false, nil) }

// isGone checks that nothing is at a path.
func isGone(path string) func(*rig) error {
	return func(r *rig) error {
		exists, err := r.process().Filesystem.PathExists(context.Background(), path)
		return want("there", exists, false, err)
	}
}

var releases = []release{
	{"UnmountVolume", (*rig).mounted, func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Volume.UnmountVolume(ctx, r.volume, staging)
	}, isUnmounted},
	{"UnstageVolume", (*rig).mounted, unstages(csiproxy.UnstageVolumeRequest{StagingPath: staging}), isUnstaged},
	{"UnstageVolume by force", (*rig).published,
		unstages(csiproxy.UnstageVolumeRequest{StagingPath: staging, Force: true}), isUnstaged},
	{"UnstageVolume of iSCSI", func(r *rig) {
		staged, err := r.process().Storage.StageVolume(context.Background(), targetRequest)
		r.must(err)
		r.number, r.volume = staged.Disk, staged.VolumeID
	}, unstages(csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: targetRequest.Disk}), isGone(staging)},
	{"SetDiskState offline", (*rig).formatted, func(ctx context.Context, r *rig, n *nodeops.Node) error {
		return n.Disk.SetDiskState(ctx, r.number, false)
	}, isOffline},
	{"UnstageShare", (*rig).shared, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
		return err
	}, (*rig).unshared},
	{"RemoveSMBGlobalMapping", (*rig).mapped, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		return gone(n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`))
	}, isUnmapped},
	{"Rmdir of a link, and its mapping", (*rig).shared, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		return errors.Join(gone(n.Filesystem.Rmdir(ctx, share, false)), gone(n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`)))
	}, (*rig).unshared},
	{"Rmdir of a mount point", (*rig).mounted, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		return gone(n.Filesystem.Rmdir(ctx, staging, false))
	}, isGone(staging)},
	{"Rmdir by force", (*rig).published, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		return n.Filesystem.Rmdir(ctx, simtest.Kubelet+`\plugins`, true)
	}, isGone(simtest.Kubelet + `\plugins`)},
	{"UnpublishVolume", (*rig).published, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		return n.Storage.UnpublishVolume(ctx, target)
	}, isGone(target)},
	{"CleanUp", func(r *rig) {
		r.mounted()
		r.publishedShare()
		r.must(r.sim.DetachDisk(r.number))
		r.must(r.sim.Remove(share)) // so the pod's link leads to nothing
	}, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		left, err := n.Storage.CleanUp(ctx, true)
		for _, m := range left.Mounts {
			if m.Error != "" {
				err = errors.Join(err, errors.New(m.Error))
			}
		}
		return err
	}, func(r *rig) error { return errors.Join(isUnmounted(r), isGone(podShare)(r), isUnmapped(r)) }},
	{"DisconnectTarget", (*rig).connected, func(ctx context.Context, _ *rig, n *nodeops.Node) error {
		return n.ISCSI.DisconnectTarget(ctx, portal, iqn)
	}, func(r *rig) error {
		sessions, err := r.sim.ISCSISessions(context.Background())
		return want("the number of sessions", len(sessions), 0, err)
	}},
}

// releaseStates are the nodes on which a release creates or deletes something else.
var releaseStates = []struct {
	what     string
	settings winsim.Settings
}{
	{what: "by default"},
	{what: "if the mount manager opens the directory alone", settings: winsim.Settings{MountManagerExclusive: true}},
	{what: "if the access list stops the mount manager", settings: winsim.Settings{DeniedMountPoints: true}},
}

// try makes a node for each state, error and refused call, from the first one on, and calls f with
// the operations of a process there.
func (op release) try(t *testing.T, creates bool, first int,
	f func(what string, r *rig, n *nodeops.Node, errno winerr.Errno)) {
	t.Helper()
	errnos := noRoom
	if testing.Short() {
		errnos = noRoom[:1]
	}
	for _, state := range releaseStates {
		for _, errno := range errnos {
			for nth, met := first, true; met; nth++ {
				synctest.Test(t, func(t *testing.T) {
					r, sys := newRig(t), &refusing{errno: errno, creates: creates, nth: nth}
					op.prepare(r)
					r.must(r.sim.SetSettings(state.settings))
					sys.System = r.sim
					n, err := nodeops.New(sys, nodeops.Options{})
					r.must(err)
					f(fmt.Sprintf("%s, error %d, refused call %d", state.what, errno, nth), r, n, errno)
					met = nth == 0 || sys.met >= nth
				})
			}
		}
	}
}

// What releases something works while nothing can be created on drive C:, since kubelet releases
// volumes to get room there. Nor does it matter if only one of the calls fails that create something.
func TestReleaseWithoutRoom(t *testing.T) {
	for _, op := range releases {
		t.Run(op.name, func(t *testing.T) {
			const all = 0
			op.try(t, true, all, func(what string, r *rig, n *nodeops.Node, _ winerr.Errno) {
				if err := errors.Join(op.run(r.t.Context(), r, n), op.released(r)); err != nil {
					r.t.Errorf("%s: %v", what, err)
				}
			})
		})
	}
}

// If Windows refuses to delete something, the error of the operation has Windows' number, unless it
// does its work all the same; and the next call does it.
func TestReleaseAfterARefusedDeletion(t *testing.T) {
	for _, op := range releases {
		t.Run(op.name, func(t *testing.T) {
			op.try(t, false, 1, func(what string, r *rig, n *nodeops.Node, errno winerr.Errno) {
				err := op.run(r.t.Context(), r, n)
				if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("error %d)", errno)) {
					r.t.Errorf("%s: the error doesn't say why: %v", what, err)
				}
				if err := errors.Join(op.run(r.t.Context(), r, n), op.released(r)); err != nil {
					r.t.Errorf("%s, the next call: %v", what, err)
				}
			})
		})
	}
}
