// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A link into a directory without its volume is a problem wherever one looks.
func TestLinkIntoADirectoryWithoutItsVolume(t *testing.T) {
	r := newRig(t)
	r.published()
	ctx, n := t.Context(), r.process()
	r.must(n.Volume.UnmountVolume(ctx, r.volume, staging))
	list, err := n.Storage.ListVolumes(ctx)
	r.must(err)
	listed := ""
	for _, m := range list.Mounts {
		if m.Path == target {
			listed = m.LeftoverReason
		}
	}
	simtest.Want(t, "marked", listed != "", true)
	v, err := n.Storage.GetVolume(ctx, target)
	r.must(err)
	if len(v.Conditions) != 1 || v.Conditions[0].Reason != csiproxy.ReasonNotMounted || !v.Conditions[0].Inaccessible {
		t.Errorf("the published path has the conditions %v", v.Conditions)
	}
	_, err = n.Storage.GetVolume(ctx, staging)
	simtest.WantErrorOf(t, "the staging path", err, csiproxy.ErrNotFound, "mounted")
	leftovers, err := n.Storage.CleanUp(ctx, true)
	r.must(err)
	_, linkErr := r.sim.ReadLink(target)
	if len(leftovers.Mounts) != 1 || linkErr == nil {
		t.Errorf("cleaned up are %+v; the link is there: %v", leftovers, linkErr == nil)
	}
}

// A link by which a volume or share is used isn't made where a search for links wouldn't find it:
// the volume or share could be taken away from its pod. A driver of v1 may link a local volume there.
func TestNoLinkWhereNoneIsFound(t *testing.T) {
	for place, directory := range map[string]string{
		"deep":           simtest.Kubelet + strings.Repeat(`\deeper`, 8),
		"in an emptyDir": simtest.Kubelet + `\pods\6a1c2d3e\volumes\kubernetes.io~empty-dir\cache`,
		"in a volume":    staging + `\dir`,
	} {
		t.Run(place, func(t *testing.T) {
			r := newRig(t)
			r.published()
			r.publishedShare()
			ctx, n, path := t.Context(), r.process(), directory+`\link`
			r.must(r.sim.MkdirAll(directory))
			for name, err := range map[string]error{
				"PublishVolume":             n.Storage.PublishVolume(ctx, staging, path),
				"PublishVolume of a share":  n.Storage.PublishVolume(ctx, share, path),
				"StageShare":                n.Storage.StageShare(ctx, shareRequest(path)),
				"NewSMBGlobalMapping":       n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, path, user),
				"CreateSymlink to a share":  n.Filesystem.CreateSymlink(ctx, share, path),
				"CreateSymlink by a target": n.Filesystem.CreateSymlink(ctx, podShare, path),
			} {
				simtest.WantErrorOf(t, name, err, csiproxy.ErrFailedPrecondition, "doesn't search for links")
			}
			_, err := r.sim.ReadLink(path)
			simtest.Want(t, "there is a link", err == nil, false)
			r.must(n.Filesystem.CreateSymlink(ctx, staging, path))
			r.must(precious(r, path))
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
			staged, err := n.StagedVolumes(ctx)
			r.must(err)
			simtest.Want(t, "staged volumes", staged, 1)
			r.must(precious(r, target))
		})
	}
}
