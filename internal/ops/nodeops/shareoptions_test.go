// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// A share is staged read-only if its server lets the user write nothing, and then its pods write nothing.
func TestReadOnlyShare(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Must(t, sim.SMB().AddShare(smbserver.Share{Server: "filer", Name: "fixed", ReadOnly: true}))
	r := stagingShareRequest(`\\filer\data`, sharePath)
	r.ReadOnly = true
	simtest.WantError(t, n.Storage.StageShare(ctx, r), csiproxy.ErrFailedPrecondition, "read access only")
	simtest.Want(t, "mapped after a refusal", mappings(t, sim), "")

	r.RemotePath = `\\filer\fixed`
	const pod = simtest.Kubelet + `\pods\1\volumes\kubernetes.io~csi\pv\mount`
	for range 2 {
		simtest.Must(t, n.Storage.StageShare(ctx, r))
		simtest.Must(t, n.Storage.PublishVolume(ctx, sharePath, pod))
	}
	simtest.WantErrorOf(t, "a pod's file", sim.WriteFile(pod+`\file`, []byte("x")), winerr.ErrorAccessDenied)
	simtest.WantErrorOf(t, "a pod's directory", sim.MkdirAll(pod+`\dir`), winerr.ErrorAccessDenied)

	simtest.Must(t, sim.Fail(winsim.Match{Call: "CreateFileW", Object: `\\filer\fixed\`}, winerr.ErrorNetNameDeleted))
	r.StagingPath = share2Path
	simtest.WantError(t, n.Storage.StageShare(ctx, r), csiproxy.ErrUnavailable, "can't find out whether the user may write")
}

// The privacy of a share takes precedence over the node's, and a mapping without it isn't used by who requires it.
func TestPrivacyOfAShare(t *testing.T) {
	for _, withoutPrivacy := range []bool{false, true} {
		sim, _ := newStagingShares(t)
		ctx := t.Context()
		n, err := nodeops.New(sim, nodeops.Options{SMBWithoutPrivacy: withoutPrivacy})
		simtest.Must(t, err)
		stage := func(privacy csiproxy.SharePrivacy, path string) error {
			r := stagingShareRequest(`\\filer\data`, path)
			r.Privacy = privacy
			return n.Storage.StageShare(ctx, r)
		}
		simtest.WantError(t, stage("often", sharePath), csiproxy.ErrInvalidArgument)
		for privacy, want := range map[csiproxy.SharePrivacy]bool{csiproxy.PrivacyOfNode: !withoutPrivacy,
			csiproxy.PrivacyRequired: true, csiproxy.PrivacyNotRequired: false} {
			simtest.Must(t, stage(privacy, sharePath))
			mapped, err := sim.SMBGlobalMappings(ctx)
			simtest.Must(t, err)
			simtest.Want(t, "privacy of the mapping", mapped[0].RequirePrivacy, want)
			err = stage(csiproxy.PrivacyRequired, share2Path)
			if want {
				simtest.Must(t, err)
			} else {
				simtest.WantError(t, err, csiproxy.ErrFailedPrecondition, "without encryption")
			}
			for _, path := range []string{sharePath, share2Path} {
				_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: path, RemotePath: `\\filer\data`})
				simtest.Must(t, err)
			}
		}
	}
}
