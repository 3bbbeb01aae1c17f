// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/storage"
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
	if len(v.Conditions) != 1 || v.Conditions[0].Reason != storage.NotMounted || !v.Conditions[0].Inaccessible {
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

// A share stays mapped while a link leads to it that is too deep for a search.
func TestShareStaysMappedForADeepLink(t *testing.T) {
	r := newRig(t)
	ctx, n := t.Context(), r.process()
	deep := simtest.Kubelet + strings.Repeat(`\deeper`, 9)
	r.must(r.sim.MkdirAll(deep))
	r.must(n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, deep+`\link`, user))
	r.must(n.Storage.StageShare(ctx, shareRequest(share)))
	_, err := r.process().Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share})
	r.must(err)
	r.must(r.sim.WriteFile(deep+`\link`+file, nil))
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
			_, err = n.Storage.MoveAside(ctx, simtest.Kubelet+`\plugins`)
			simtest.WantError(t, err, csiproxy.ErrFailedPrecondition, staging)
			staged, err := n.StagedVolumes(ctx)
			r.must(err)
			simtest.Want(t, "staged volumes", staged, 1)
			r.must(precious(r, target))
		})
	}
}
