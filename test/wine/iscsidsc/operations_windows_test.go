// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsidsc

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys"
)

// system is Windows without the adapters that operations ask for new disks, and with the
// initiator's service: Wine has neither.
type system struct {
	*winsys.System
}

func (system) DeviceInterfaces(context.Context, winid.GUID) ([]string, error) { return nil, nil }

func (system) QueryService(context.Context, string) (win.Service, error) {
	return win.Service{State: win.ServiceRunning}, nil
}

// The daemon's operations on a target, from the first look at its portal to the end
// of its session, and what arrives at the initiator of each.
func TestOperations(t *testing.T) {
	sys, d := load(t)
	ctx := t.Context()
	i := initiator.New(system{sys}, initiator.Options{})
	d.addTarget(target{name: iqn, portal: other, luns: 3, user: "user", secret: "target12target", mutual: "node12node12"})
	d.addPersistentLogin(win.ISCSIPersistentLogin{Target: iqn, Initiator: "initiator", InitiatorPort: 1, Portal: other},
		"symbolic")
	d.call("DoubleSetLate", 2)
	p := csiproxy.ISCSIPortal{Address: "[FD00::2]", Port: other.Port}

	_, err := i.DiscoverTargetPortal(ctx, p)
	d.want("DiscoverTargetPortal of an unknown portal", err, csiproxy.ErrNotFound)
	for range 2 { // the second time its targets are discovered again
		d.want("AddTargetPortal", i.AddTargetPortal(ctx, p), nil)
	}
	found, err := i.DiscoverTargetPortal(ctx, p)
	if diff := cmp.Diff([]csiproxy.IQN{iqn}, found); err != nil || diff != "" {
		t.Errorf("DiscoverTargetPortal: %v (-want +got)\n%s", err, diff)
	}
	auth := csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIMutualCHAP, Username: "user", Secret: csiproxy.NewSecret("target12target")}
	err = i.ConnectTarget(ctx, p, iqn, auth)
	if !errors.Is(err, csiproxy.ErrUnauthenticated) || !errors.Is(err, winerr.ISDSCAuthenticationFailed) {
		t.Errorf("ConnectTarget before the node has a secret: %v", err)
	}
	d.want("SetMutualCHAPSecret", i.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("node12node12")), nil)
	for range 2 {
		d.want("ConnectTarget", i.ConnectTarget(ctx, p, iqn, auth), nil)
	}
	disks, err := i.GetTargetDisks(ctx, p, iqn)
	if diff := cmp.Diff([]csiproxy.DiskNumber{10, 11, 12}, disks); err != nil || diff != "" {
		t.Errorf("GetTargetDisks: %v (-want +got)\n%s", err, diff)
	}
	d.fail("LogoutIScsiTarget", winerr.ISDSCDeviceBusyOnSession) // which is tried again
	for range 2 {
		d.want("DisconnectTarget", i.DisconnectTarget(ctx, p, iqn), nil)
	}
	d.want("RemoveTargetPortal", i.RemoveTargetPortal(ctx, p), nil)
	d.wantRecord(
		"add portal fd00::2 860",
		"refresh portal fd00::2 860",
		"refresh portal fd00::2 860",
		"login iqn.2026-01.example:one portal=fd00::2 860 auth=2 user=user password=target12target",
		"initiator secret node12node12",
		"login iqn.2026-01.example:one portal=fd00::2 860 auth=2 user=user password=target12target",
		"remove login iqn.2026-01.example:one initiator=initiator 0x1 portal=symbolic fd00::2 860",
		"logout 1",
		"logout 1",
		"remove portal fd00::2 860",
	)
}
