// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

const iqn = "iqn.2026-01.com.example:vol1"

func TestISCSI(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	portal := &simv1.IscsiPortal{Address: "10.0.0.1"}
	must(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiTarget", &simv1.IscsiTarget{
		Iqn: iqn, Portals: []*simv1.IscsiPortal{portal}, ChapUser: "user",
		Luns: []*simv1.DiskHardware{{
			SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "s0", Page83: "id0", Offline: true, ReadOnly: true,
			NeedsRescan: true,
		}},
		ChapSecret: "one-way-secret", MutualChapSecret: "mutual-secret",
	}))
	must(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiLun",
		&simv1.AddIscsiLunRequest{Iqn: iqn, Lun: &simv1.DiskHardware{SizeBytes: 2 << 30, SerialNumber: "s1"}}))
	must(simv1.Call[simv1.Empty](ctx, sim, "SetIscsiPortal",
		&simv1.IscsiPortalState{Portal: &simv1.IscsiPortal{Address: "b", Port: 7}, Reachable: true}))
	must(simv1.Call[simv1.Empty](ctx, sim, "SetIscsiPortal",
		&simv1.IscsiPortalState{Portal: &simv1.IscsiPortal{Address: "c", Port: 7}}))

	got := must(simv1.Call[simv1.ListIscsiTargetsResponse](ctx, sim, "ListIscsiTargets", &simv1.Empty{}))
	portal.Port = 3260
	want := &simv1.ListIscsiTargetsResponse{
		Targets: []*simv1.IscsiTarget{{
			Iqn: iqn, Portals: []*simv1.IscsiPortal{portal}, ChapUser: "user",
			Luns: []*simv1.DiskHardware{
				{SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "s0", Offline: true, ReadOnly: true, NeedsRescan: true},
				{SizeBytes: 2 << 30, SectorSize: 512, SerialNumber: "s1"},
			},
		}},
		Portals: []*simv1.IscsiPortalState{
			{Portal: portal, Reachable: true},
			{Portal: &simv1.IscsiPortal{Address: "b", Port: 7}, Reachable: true},
			{Portal: &simv1.IscsiPortal{Address: "c", Port: 7}},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	identifiers := []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte("id0")}}
	if diff := cmp.Diff(identifiers, sys.Disks()[1].Spec.Page83); diff != "" {
		t.Errorf("identifiers (-want +got):\n%s", diff)
	}

	// Both secrets have arrived where they belong.
	address := win.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	for _, err := range []error{
		sys.StartService(ctx, "MSiSCSI"),
		sys.AddISCSISendTargetPortal(ctx, address),
		sys.SetISCSIInitiatorCHAPSecret(ctx, secret.New("mutual-secret")),
		errorOf(sys.LoginISCSITarget(ctx, win.ISCSILogin{
			Target: iqn, Portal: address, AuthType: win.ISCSIMutualCHAP, Username: "user", Secret: secret.New("one-way-secret"),
		})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}

	must(simv1.Call[simv1.Empty](ctx, sim, "RemoveIscsiTarget", &simv1.IscsiTarget{Iqn: iqn}))
	if targets := must(simv1.Call[simv1.ListIscsiTargetsResponse](ctx, sim, "ListIscsiTargets",
		&simv1.Empty{})).Targets; len(targets) != 0 {
		t.Errorf("after the removal there are %v", targets)
	}
}

func TestServices(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	start := simv1.StartType_START_TYPE_AUTOMATIC
	added := &simv1.WindowsService{Name: "aaa", DisplayName: "A", StartType: &start, DependsOn: []string{"kubelet"},
		Running: true, StartError: 1053}
	must(simv1.Call[simv1.Empty](ctx, sim, "AddService", added))
	listed := must(simv1.Call[simv1.ListServicesResponse](ctx, sim, "ListServices", &simv1.Empty{})).Services
	if diff := cmp.Diff(added, listed[0], protocmp.Transform()); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
	must(simv1.Call[simv1.Empty](ctx, sim, "RemoveService", &simv1.WindowsService{Name: "AAA"}))
	must(simv1.Call[simv1.Empty](ctx, sim, "AddService", &simv1.WindowsService{Name: "aaa"}))
	want := services.Spec{Name: "aaa", DisplayName: "aaa", StartType: win.ServiceDemandStart}
	if diff := cmp.Diff(want, sys.Services().List()[0]); diff != "" {
		t.Errorf("service with defaults (-want +got):\n%s", diff)
	}
}

func TestBIOSSerial(t *testing.T) {
	sys, sim := start(t)
	before := must(sys.FirmwareTable(t.Context()))
	must(simv1.Call[simv1.Empty](t.Context(), sim, "SetBiosSerial", &simv1.SerialNumber{SerialNumber: "x"}))
	if after := must(sys.FirmwareTable(t.Context())); len(after) >= len(before) {
		t.Errorf("the table has %d bytes, before it had %d", len(after), len(before))
	}
}

func TestISCSIAndServiceErrors(t *testing.T) {
	_, sim := start(t)
	ctx := t.Context()
	target := &simv1.IscsiTarget{Iqn: iqn, Portals: []*simv1.IscsiPortal{{Address: "a"}}}
	must(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiTarget", target))
	tooHigh := &simv1.IscsiPortal{Address: "a", Port: 1 << 16}
	for name, test := range map[string]struct {
		err, want error
	}{
		"no target": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiTarget", &simv1.IscsiTarget{})),
			csiproxy.ErrInvalidArgument},
		"target exists": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiTarget", target)),
			csiproxy.ErrAlreadyExists},
		"port of a target": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiTarget",
			&simv1.IscsiTarget{Iqn: "iqn.x", Portals: []*simv1.IscsiPortal{tooHigh}})), csiproxy.ErrInvalidArgument},
		"remove no target": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "RemoveIscsiTarget",
			&simv1.IscsiTarget{Iqn: "iqn.x"})), csiproxy.ErrNotFound},
		"LUN of no target": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiLun",
			&simv1.AddIscsiLunRequest{Iqn: "iqn.x"})), csiproxy.ErrNotFound},
		"no LUN": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddIscsiLun", &simv1.AddIscsiLunRequest{Iqn: iqn})),
			csiproxy.ErrInvalidArgument},
		"no portal": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetIscsiPortal", &simv1.IscsiPortalState{})),
			csiproxy.ErrInvalidArgument},
		"port": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetIscsiPortal",
			&simv1.IscsiPortalState{Portal: tooHigh})), csiproxy.ErrInvalidArgument},
		"no service": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddService", &simv1.WindowsService{})),
			csiproxy.ErrInvalidArgument},
		"service exists": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "AddService",
			&simv1.WindowsService{Name: "kubelet"})), csiproxy.ErrAlreadyExists},
		"remove no service": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "RemoveService", &simv1.WindowsService{Name: "x"})),
			csiproxy.ErrNotFound},
		"BIOS serial number": {errorOf(simv1.Call[simv1.Empty](ctx, sim, "SetBiosSerial",
			&simv1.SerialNumber{SerialNumber: "\n"})), csiproxy.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, test.err, test.want) })
	}
}
