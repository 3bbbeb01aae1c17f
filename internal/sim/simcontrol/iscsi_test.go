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
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

const iqn = "iqn.2026-01.com.example:vol1"

func TestISCSI(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	portal := &simv1.IscsiPortal{Address: "10.0.0.1"}
	sim.do("AddIscsiTarget", &simv1.IscsiTarget{
		Iqn: iqn, Portals: []*simv1.IscsiPortal{portal}, ChapUser: "user",
		Luns: []*simv1.DiskHardware{{
			SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "s0", Page83: "id0", Offline: true, ReadOnly: true,
			NeedsRescan: true,
		}},
		ChapSecret: "one-way-secret", MutualChapSecret: "mutual-secret",
	})
	sim.do("AddIscsiLun",
		&simv1.AddIscsiLunRequest{Iqn: iqn, Lun: &simv1.DiskHardware{SizeBytes: 2 << 30, SerialNumber: "s1"}})
	sim.do("SetIscsiPortal", &simv1.IscsiPortalState{Portal: &simv1.IscsiPortal{Address: "b", Port: 7}, Reachable: true})
	sim.do("SetIscsiPortal", &simv1.IscsiPortalState{Portal: &simv1.IscsiPortal{Address: "c", Port: 7}})

	got := get[simv1.ListIscsiTargetsResponse](sim, "ListIscsiTargets")
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
	simtest.Must(t, sys.StartService(ctx, "MSiSCSI"))
	simtest.Must(t, sys.AddISCSISendTargetPortal(ctx, address))
	simtest.Must(t, sys.SetISCSIInitiatorCHAPSecret(ctx, secret.New("mutual-secret")))
	_, err := sys.LoginISCSITarget(ctx, win.ISCSILogin{
		Target: iqn, Portal: address, AuthType: win.ISCSIMutualCHAP, Username: "user", Secret: secret.New("one-way-secret"),
	})
	simtest.Must(t, err)

	sim.do("RemoveIscsiTarget", &simv1.IscsiTarget{Iqn: iqn})
	if targets := get[simv1.ListIscsiTargetsResponse](sim, "ListIscsiTargets",
		&simv1.Empty{}).Targets; len(targets) != 0 {
		t.Errorf("after the removal there are %v", targets)
	}
}

func TestServices(t *testing.T) {
	sys, sim := start(t)
	sim.do("AddService", &simv1.WindowsService{Name: "aaa"})
	want := services.Spec{Name: "aaa", DisplayName: "aaa", StartType: win.ServiceDemandStart}
	if diff := cmp.Diff(want, sys.Services().List()[0]); diff != "" {
		t.Errorf("service with defaults (-want +got):\n%s", diff)
	}
}

func TestISCSIAndServiceErrors(t *testing.T) {
	_, sim := start(t)
	target := &simv1.IscsiTarget{Iqn: iqn, Portals: []*simv1.IscsiPortal{{Address: "a"}}}
	sim.do("AddIscsiTarget", target)
	tooHigh := &simv1.IscsiPortal{Address: "a", Port: 1 << 16}
	sim.refused(csiproxy.ErrInvalidArgument, "AddIscsiTarget",
		&simv1.IscsiTarget{}, &simv1.IscsiTarget{Iqn: "iqn.x", Portals: []*simv1.IscsiPortal{tooHigh}})
	sim.refused(csiproxy.ErrAlreadyExists, "AddIscsiTarget", target)
	sim.refused(csiproxy.ErrNotFound, "RemoveIscsiTarget", &simv1.IscsiTarget{Iqn: "iqn.x"})
	sim.refused(csiproxy.ErrNotFound, "AddIscsiLun", &simv1.AddIscsiLunRequest{Iqn: "iqn.x"})
	sim.refused(csiproxy.ErrInvalidArgument, "AddIscsiLun", &simv1.AddIscsiLunRequest{Iqn: iqn})
	sim.refused(csiproxy.ErrInvalidArgument, "SetIscsiPortal",
		&simv1.IscsiPortalState{}, &simv1.IscsiPortalState{Portal: tooHigh})
	sim.refused(csiproxy.ErrInvalidArgument, "AddService", &simv1.WindowsService{})
	sim.refused(csiproxy.ErrAlreadyExists, "AddService", &simv1.WindowsService{Name: "kubelet"})
	sim.refused(csiproxy.ErrNotFound, "RemoveService", &simv1.WindowsService{Name: "x"})
	sim.refused(csiproxy.ErrInvalidArgument, "SetBiosSerial", &simv1.SerialNumber{SerialNumber: "\n"})
}
