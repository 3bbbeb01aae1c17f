// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// finding is a promise that was broken once: no race is needed for it, only a sequence.
type finding struct {
	promise string
	prepare func(r *rig)
	run     func(ctx context.Context, r *rig, n *nodeops.Node) error
}

var findings = []finding{
	{
		promise: "a disk that is staged read-only stays so when it is brought online", prepare: (*rig).stagedReadOnly,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return errors.Join(n.Disk.SetDiskState(ctx, r.number, true), r.cantWrite(staging))
		},
	},
	{
		promise: "a disk that is staged read-only stays so when it is partitioned", prepare: (*rig).stagedReadOnly,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return errors.Join(n.Disk.PartitionDisk(ctx, r.number), r.cantWrite(staging))
		},
	},
	{
		promise: "what a read-only staging has set is no other disk's", prepare: func(r *rig) {
			r.must(r.sim.SetSettings(winsim.Settings{AttributesOfInstance: true}))
			r.stagedReadOnly()
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
			for _, info := range r.sim.Disks() {
				if info.Spec.Serial == "vol-1" {
					err = errors.Join(err, want("the attributes", info.Attributes, win.DiskOffline, nil))
				}
			}
			return err
		},
	},
	{
		promise: "a disk doesn't go offline under a mount", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			err := n.Disk.SetDiskState(ctx, r.number, false)
			return errors.Join(names(err, csiproxy.ErrFailedPrecondition, staging), precious(r, staging))
		},
	},
	{
		promise: "a published volume isn't unstaged, and the error names the link", prepare: (*rig).published,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
			err = errors.Join(names(err, csiproxy.ErrFailedPrecondition, target),
				names(err, csiproxy.ErrFailedPrecondition, "csi-proxyctl storage unpublish"),
				precious(r, target))
			r.must(n.Storage.UnpublishVolume(ctx, target)) // which the command does
			_, unstageErr := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
			return errors.Join(err, unstageErr)
		},
	},
	{
		promise: "a published volume is unstaged by force, and its pod can write nowhere", prepare: (*rig).published,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging, Force: true})
			return errors.Join(err, r.cantWrite(target))
		},
	},
	{
		promise: "a link into a directory without its volume is a problem wherever one looks", prepare: (*rig).published,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(n.Volume.UnmountVolume(ctx, r.volume, staging))
			list, err := n.Storage.ListVolumes(ctx)
			r.must(err)
			leftovers, err := n.Storage.CleanUp(ctx, false)
			r.must(err)
			listed := ""
			for _, m := range list.Mounts {
				if m.Path == target {
					listed = m.LeftoverReason
				}
			}
			v, err := n.Storage.GetVolume(ctx, target)
			r.must(err)
			if len(v.Conditions) != 1 || v.Conditions[0].Reason != storage.NotMounted || !v.Conditions[0].Inaccessible {
				err = fmt.Errorf("the published path has the conditions %v", v.Conditions)
			}
			_, stagingErr := n.Storage.GetVolume(ctx, staging)
			err = errors.Join(err, want("marked", listed != "", true, nil),
				want("the number of leftovers", len(leftovers.Mounts), 1, nil),
				names(stagingErr, csiproxy.ErrNotFound, "mounted"))
			if _, cleanErr := n.Storage.CleanUp(ctx, true); cleanErr != nil {
				return cleanErr
			}
			_, linkErr := r.sim.ReadLink(target)
			return errors.Join(err, want("removed", linkErr != nil, true, nil))
		},
	},
	{
		promise: "a directory that isn't empty has its entries named", prepare: (*rig).formatted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.MkdirAll(staging))
			r.must(r.sim.WriteFile(staging+`\stray.txt`, nil))
			_, err := n.Storage.StageVolume(ctx, stageRequest)
			return names(err, csiproxy.ErrFailedPrecondition, "stray.txt")
		},
	},
	{
		promise: "a share with an open file isn't a leftover", prepare: (*rig).mapped,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.WriteFile(`\\server\data`+file, []byte("precious")))
			open, err := r.sim.Hold(`\\server\data`+file, win.OpenOptions{
				Access: win.GenericRead, Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen,
			})
			r.must(err)
			defer open.Close()
			_, err = n.Storage.CleanUp(ctx, true)
			return errors.Join(err, want("mapped", r.isMapped(), true, nil))
		},
	},
	{
		promise: "a share stays mapped while a link that is deep leads to it", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			deep := simtest.Kubelet + strings.Repeat(`\deeper`, 9)
			r.must(r.sim.MkdirAll(deep))
			r.must(n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, deep+`\link`, user))
			r.must(n.Storage.StageShare(ctx, shareRequest(share)))
			_, err := r.process().Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share})
			return errors.Join(err, r.sim.WriteFile(deep+`\link`+file, nil))
		},
	},
	{
		promise: "a mapping stays for others, though a driver unlinks before it unmaps", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			for _, link := range []string{"one", "two"} {
				r.must(n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, simtest.Kubelet+`\plugins\`+link, user))
			}
			r.must(n.Filesystem.Rmdir(ctx, simtest.Kubelet+`\plugins\one`, false))
			r.must(n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`))
			return r.sim.WriteFile(simtest.Kubelet+`\plugins\two`+file, nil)
		},
	},
	{
		promise: "an administrator's mapping is nobody's leftover", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.CreateSMBGlobalMapping(ctx, `\\server\data`, win.SMBMappingOptions{Username: user.Username, Password: user.Password}))
			_, err := n.Storage.CleanUp(ctx, true)
			return errors.Join(err, want("mapped", r.isMapped(), true, nil))
		},
	},
	{
		promise: "unstaging leaves an administrator's mapping", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.CreateSMBGlobalMapping(ctx, `\\server\data`, win.SMBMappingOptions{Username: user.Username, Password: user.Password}))
			r.must(n.Storage.StageShare(ctx, shareRequest(share)))
			_, err := n.Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share})
			return errors.Join(err, want("mapped", r.isMapped(), true, nil))
		},
	},
	{
		promise: "the mount of a disk that is only offline is no leftover", prepare: (*rig).published,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.SetOfflineReason(r.number, win.OfflinePolicy))
			_, err := n.Storage.CleanUp(ctx, true)
			r.must(r.sim.SetDiskAttributes(r.number, win.SetDiskAttributes{Mask: win.DiskOffline}))
			r.sim.Settle()
			return errors.Join(err, precious(r, target))
		},
	},
	{
		promise: "a disk that has grown since it came is used whole", prepare: func(r *rig) {
			r.raw(true)
			r.must(r.sim.GrowDisk(r.number, 20<<30))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			staged, err := n.Storage.StageVolume(ctx, stageRequest)
			return want("large enough", staged.SizeBytes > 19<<30, true, err)
		},
	},
	{
		promise: "nothing is published inside of a volume", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.MkdirAll(staging + `\sub`))
			err := n.Storage.PublishVolume(ctx, staging, staging+`\sub`)
			_, linkErr := r.sim.ReadLink(staging + `\sub`)
			return errors.Join(want("refused", err != nil, true, nil), want("still a directory", linkErr != nil, true, nil))
		},
	},
	{
		promise: "a published path is no staging path", prepare: (*rig).published,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			err := n.Storage.PublishVolume(ctx, target, simtest.Kubelet+`\pods\other`)
			return names(err, csiproxy.ErrFailedPrecondition, "")
		},
	},
	{
		promise: "a volume with a drive letter is staged read-only, and the letter goes", prepare: (*rig).lettered,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := stageRequest
			request.ReadOnly, request.Grow = true, false
			_, err := n.Storage.StageVolume(ctx, request)
			return errors.Join(err, r.cantWrite(staging), r.hasNoLetter())
		},
	},
	{
		promise: "a volume with a drive letter is unstaged to the end", prepare: (*rig).lettered,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(ctx, stageRequest)
			r.must(err)
			r.must(r.hasNoLetter())
			done, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
			return want("offline", done.DiskOffline, true, err)
		},
	},
}

func TestFindings(t *testing.T) {
	for _, f := range findings {
		t.Run(f.promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				f.prepare(r)
				r.sim.Settle()
				n, err := nodeops.New(r.sim, nodeops.Options{})
				r.must(err)
				simtest.WantError(t, f.run(t.Context(), r, n), nil)
			})
		})
	}
}

// A driver finds its disk by the location: a disk that must not be used isn't listed there.
func TestProtectedDiskHasNoLocation(t *testing.T) {
	r := newRig(t)
	_, number, letter := simtest.Lettered(t, r.sim, winsim.DiskSpec{Serial: "temporary"})
	n, err := nodeops.New(r.sim, nodeops.Options{ProtectedVolumes: []string{letter[:2]}})
	r.must(err)
	locations, err := n.Disk.ListDiskLocations(t.Context())
	r.must(err)
	if at, listed := locations[number]; listed {
		t.Errorf("the protected disk is listed at %v", at)
	}
}

func (r *rig) stagedReadOnly() {
	r.unstaged()
	request := stageRequest
	request.ReadOnly, request.Grow = true, false
	_, err := r.process().Storage.StageVolume(context.Background(), request)
	r.must(err)
}

// lettered makes it a disk with a volume to which Windows has given a drive letter.
func (r *rig) lettered() {
	name, number, _ := simtest.Lettered(r.t, r.sim, winsim.DiskSpec{Serial: "vol-1"})
	r.number, r.volume = number, volume.ID(name)
}

func (r *rig) hasNoLetter() error {
	for _, v := range r.sim.Volumes() {
		for _, path := range v.Paths {
			if v.DiskNumber == r.number && len(path) == len(`D:\`) {
				return fmt.Errorf("the volume is mounted at %s", path)
			}
		}
	}
	return nil
}

// cantWrite wants a pod's write to fail.
func (r *rig) cantWrite(directory string) error {
	return want("refused to write", r.sim.WriteFile(directory+`\pod.txt`, nil) != nil, true, nil)
}

// names wants an error of a kind with a text in it.
func names(err, kind error, text string) error {
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("got %v, want %v with %q", err, kind, text)
	}
	return nil
}

// What is staged and published is so also if kubelet's directory is a link to another drive, or if a
// volume is mounted there: Windows lists mount points by other paths then.
func TestKubeletDirectoryElsewhere(t *testing.T) {
	for how, lead := range map[string]func(r *rig, volume, drive string){
		"a junction": func(r *rig, _, drive string) { r.must(r.sim.Junction(simtest.Kubelet, drive+"kubelet")) },
		"a link":     func(r *rig, _, drive string) { r.must(r.sim.Symlink(simtest.Kubelet, drive+"kubelet", true)) },
		"a volume":   func(r *rig, volume, _ string) { simtest.Mount(r.t, r.sim, simtest.Kubelet, volume) },
	} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			volume, _, drive := simtest.Lettered(t, r.sim, winsim.DiskSpec{Serial: "data"})
			r.must(r.sim.MkdirAll(drive + "kubelet"))
			r.must(r.sim.Rename(simtest.Kubelet, `C:\old`, false))
			lead(r, volume, drive)
			r.published()

			ctx, n := t.Context(), r.process()
			request := stageRequest
			request.StagingPath = elsewhere
			_, err := n.Storage.StageVolume(ctx, request)
			simtest.WantError(t, err, csiproxy.ErrFailedPrecondition, "staged at another path", staging)
			simtest.WantError(t, n.Disk.SetDiskState(ctx, r.number, false), csiproxy.ErrFailedPrecondition, staging)
			_, err = n.Storage.MoveAside(ctx, simtest.Kubelet+`\plugins`)
			simtest.WantError(t, err, csiproxy.ErrFailedPrecondition, staging)
			staged, err := n.StagedVolumes(ctx)
			r.must(err)
			simtest.Want(t, "staged volumes", staged, 1)
			r.must(precious(r, target))
		})
	}
}
