// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"errors"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

func TestISCSI(t *testing.T) {
	n := simnode.New(t)
	ctx := t.Context()
	initiator := n.Operations().ISCSI
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	const iqn = "iqn.2026-01.com.example:vol1"
	n.AddISCSITarget(simnode.ISCSITarget{
		IQN: iqn, Portals: []csiproxy.ISCSIPortal{portal},
		CHAPUser: "user", CHAPSecret: csiproxy.NewSecret("one-way-secret"), MutualSecret: csiproxy.NewSecret("mutual-secret"),
		LUNs: []simnode.Disk{{SizeBytes: 1 << 30, Serial: "lun-0"}},
	})
	must(t, initiator.AddTargetPortal(ctx, portal))
	must(t, initiator.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("mutual-secret")))
	login := csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIMutualCHAP, Username: "user", Secret: csiproxy.NewSecret("one-way-secret")}
	connect := func() {
		t.Helper()
		must(t, initiator.ConnectTarget(ctx, portal, iqn, login))
	}
	wantDisks := func(when string, want ...string) {
		t.Helper()
		numbers, err := initiator.GetTargetDisks(ctx, portal, iqn)
		if err != nil || len(numbers) != len(want) {
			t.Fatalf("%s: disks %v, %v", when, numbers, err)
		}
		ids, err := n.Operations().Disk.ListDiskIDs(ctx)
		for i, number := range numbers {
			if err != nil || ids[number].SerialNumber != want[i] {
				t.Errorf("%s: disk %v is %+v, %v", when, number, ids[number], err)
			}
		}
	}
	connect()
	wantDisks("connected", "lun-0")
	n.AddISCSILUN(iqn, simnode.Disk{SizeBytes: 1 << 30, Serial: "lun-1"})
	wantDisks("with another LUN", "lun-0", "lun-1")

	n.SetISCSIPortal(portal, false)
	if _, err := initiator.DiscoverTargetPortal(ctx, portal); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("discovery without the portal: %v", err)
	}
	n.SetISCSIPortal(portal, true)
	wantDisks("with the portal again", "lun-0", "lun-1")

	n.Reboot()
	initiator = n.Operations().ISCSI
	if err := initiator.ConnectTarget(ctx, portal, iqn, login); err != nil {
		t.Errorf("after the reboot: %v", err)
	}
	n.RemoveISCSITarget(iqn)
	wantDisks("removed")
}
