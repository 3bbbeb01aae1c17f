// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// rotationWait is the longest wait that docs/troubleshooting.md names for refused log-ons.
const rotationWait = 2 * time.Minute

// mapper makes the mapping of a share with a password that is about to change.
type mapper struct {
	name string
	// before is whether the daemon is started again afterwards.
	before bool
	// removals is how many mappings an administrator has to remove, and removalsAfter how many if the other share is staged
	// first: another program's mapping blocks that.
	removals, removalsAfter int
	makeIt                  func(ctx context.Context, sim *winsim.System, n *nodeops.Node, r csiproxy.StageShareRequest) error
}

// foreignly maps as another program does.
func foreignly(remote, letter string) func(context.Context, *winsim.System, *nodeops.Node, csiproxy.StageShareRequest) error {
	return func(_ context.Context, sim *winsim.System, _ *nodeops.Node, r csiproxy.StageShareRequest) error {
		return sim.SMB().Map(smbserver.Mapping{RemotePath: remote, LocalPath: letter, Persistent: letter != "",
			SMBMappingOptions: win.SMBMappingOptions{Username: r.Credentials.Username, Password: r.Credentials.Password}})
	}
}

func staged(ctx context.Context, _ *winsim.System, n *nodeops.Node, r csiproxy.StageShareRequest) error {
	return n.Storage.StageShare(ctx, r)
}

// mappers are who may have made the mapping.
var mappers = []mapper{
	{name: "StageShare", makeIt: staged},
	{name: "StageShare of an earlier process", before: true, makeIt: staged},
	{name: "NewSmbGlobalMapping of an earlier process without a link", before: true,
		makeIt: func(ctx context.Context, _ *winsim.System, n *nodeops.Node, r csiproxy.StageShareRequest) error {
			return n.SMB.NewSMBGlobalMapping(ctx, r.RemotePath, "", r.Credentials)
		}},
	{name: "an administrator, of the share", removalsAfter: 1, makeIt: foreignly(`\\Filer\Data`, "")},
	{name: "an administrator, with a drive letter", removals: 1, removalsAfter: 1, makeIt: foreignly(`\\filer\data`, "Z:")},
	{name: "csi-driver-smb, of a directory", removals: 1, removalsAfter: 1, makeIt: foreignly(`\\filer\data\pvc-1`, "")},
}

// The password of a server changes while pods use two of its shares. The driver stages with the new password, after the old
// one has been refused once more. Whoever has made the mappings, the pods write again within the documented wait; if another
// program has, once an administrator has run what the error says.
func TestPasswordRotation(t *testing.T) {
	for _, who := range mappers {
		for _, overlaps := range []bool{true, false} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, the other share is first: %v", who.name, after), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { rotate(t, who, overlaps, after) })
				})
			}
		}
	}
}

func rotate(t *testing.T, who mapper, overlaps, after bool) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Must(t, sim.SetSettings(winsim.Settings{OverlapRefused: !overlaps}))
	restart := func() {
		var err error
		n, err = nodeops.New(sim, nodeops.Options{})
		simtest.Must(t, err)
	}
	const pods = simtest.Kubelet + `\pods\`
	volumes := []struct{ remote, staging, published string }{
		{`\\filer\data`, sharePath, pods + `1\volumes\kubernetes.io~csi\pv\mount`},
		{`\\filer\other`, share2Path, pods + `2\volumes\kubernetes.io~csi\pv\mount`},
	}
	simtest.Must(t, who.makeIt(ctx, sim, n, stagingShareRequest(`\\filer\data`, sharePath)))
	for _, v := range volumes {
		simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(v.remote, v.staging)))
		simtest.Must(t, n.Storage.PublishVolume(ctx, v.staging, v.published))
		simtest.Must(t, sim.WriteFile(v.published+`\file`, []byte("before")))
	}
	if who.before {
		restart()
	}

	changed := csiproxy.NewSecret("changed")
	simtest.Must(t, sim.SMB().SetUser("filer", `EXAMPLE\app`, changed))
	for _, v := range volumes {
		if err := sim.WriteFile(v.published+`\file`, []byte("between")); err == nil {
			t.Fatal("a pod writes with the old password")
		}
	}
	begun, removed, wantRemoved := time.Now(), 0, who.removals
	if after {
		slices.Reverse(volumes)
		wantRemoved = who.removalsAfter
	}
	for _, v := range volumes {
		r := stagingShareRequest(v.remote, v.staging+"-again")
		if err := n.Storage.StageShare(ctx, r); err == nil {
			t.Errorf("the old password stages %s", v.remote)
		}
		r.Credentials.Password = changed
		for time.Since(begun) < rotationWait {
			err := n.Storage.StageShare(ctx, r)
			if err == nil {
				break
			}
			if advice := regexp.MustCompile(`csi-proxyctl smb unmap (\S+?),`).FindStringSubmatch(err.Error()); advice != nil &&
				errors.Is(err, csiproxy.ErrFailedPrecondition) {
				simtest.Must(t, n.SMB.RemoveSMBGlobalMapping(ctx, advice[1]))
				removed++
			}
			time.Sleep(10 * time.Second) // kubelet's next call
		}
	}
	for _, v := range volumes {
		if err := sim.WriteFile(v.published+`\file`, []byte("after")); err != nil {
			t.Errorf("after %v, a pod with %s: %v; mapped are %s", time.Since(begun), v.remote, err, mappings(t, sim))
		}
	}
	simtest.Want(t, "mappings that an administrator had to remove", removed, wantRemoved)
}
