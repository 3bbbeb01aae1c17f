// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"errors"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// shareScenarios are those of shares that are staged.
var shareScenarios = []scenario{
	{
		name: "StageShare", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.StageShare(ctx, shareRequest(share))
		},
		check: func(r *rig) error { return r.sim.WriteFile(share+file, nil) },
	},
	{
		name: "StageShare of a mapped share", prepare: (*rig).mapped,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.StageShare(ctx, shareRequest(share))
		},
		check: func(r *rig) error { return r.sim.WriteFile(share+file, nil) },
	},
	{
		// It is refused, since the share has no such directory. A process that dies after it
		// has made the mapping leaves that to CleanUp.
		name: "StageShare that is refused", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := shareRequest(share)
			request.RemotePath += `\none`
			err := n.Storage.StageShare(ctx, request)
			if errors.Is(err, csiproxy.ErrNotFound) {
				return nil
			}
			return cmp.Or(err, errors.New("a directory that is missing is staged"))
		},
		check: func(r *rig) error {
			_, err := r.process().Storage.CleanUp(context.Background(), true)
			return errors.Join(err, want("mapped", r.isMapped(), false, nil))
		},
	},
	{
		name: "UnstageShare of one whose staging has died", prepare: func(r *rig) {
			r.shared()
			r.must(r.sim.Remove(share))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share, RemotePath: `\\server\data`})
			return err
		},
		check: func(r *rig) error { return want("mapped", r.isMapped(), false, nil) },
	},
	{
		name: "UnstageShare of one of two", prepare: (*rig).sharedTwice,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
			return err
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), share)
			return errors.Join(want("there", exists, false, err), r.sim.WriteFile(share+"2"+file, nil))
		},
	},
	{
		name: "UnstageShare of the last", prepare: (*rig).shared,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
			return err
		},
		check: (*rig).unshared,
	},
	{
		name: "UnstageShare of an empty directory", prepare: func(r *rig) { r.must(r.sim.MkdirAll(share)) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
			return err
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), share)
			return want("there", exists, true, err)
		},
	},
	{
		name: "UnstageVolume of a share", prepare: (*rig).shared,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: share})
			return err
		},
		check: (*rig).unshared,
	},
	{
		name: "StageShare of another user", refused: true, prepare: func(r *rig) {
			r.must(r.sim.SMB().SetUser("server", "other", user.Password))
			r.shared()
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := shareRequest(share + "2")
			request.Credentials.Username = "other"
			return refusal(n.Storage.StageShare(ctx, request))
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), share+"2")
			return errors.Join(want("there", exists, false, err), r.sim.WriteFile(share+file, nil))
		},
	},
}

// share is where a share is staged.
const share = simtest.Kubelet + `\plugins\smb\pv-1`

func shareRequest(path string) csiproxy.StageShareRequest {
	return csiproxy.StageShareRequest{RemotePath: `\\server\data`, StagingPath: path, Credentials: user}
}

// isMapped reports whether the scenarios' share is mapped.
func (r *rig) isMapped() bool {
	r.t.Helper()
	mappings, err := r.sim.SMBGlobalMappings(context.Background())
	r.must(err)
	return slices.ContainsFunc(mappings, func(m win.SMBMapping) bool { return m.RemotePath == `\\server\data` })
}

// shared stages a share.
func (r *rig) shared() {
	r.must(r.process().Storage.StageShare(context.Background(), shareRequest(share)))
}

// unshared checks that the share is staged nowhere any more.
func (r *rig) unshared() error {
	exists, err := r.process().Filesystem.PathExists(context.Background(), share)
	return errors.Join(want("there", exists, false, err), want("mapped", r.isMapped(), false, nil))
}

// sharedTwice stages a share at two paths.
func (r *rig) sharedTwice() {
	for _, path := range []string{share, share + "2"} {
		r.must(r.process().Storage.StageShare(context.Background(), shareRequest(path)))
	}
}
