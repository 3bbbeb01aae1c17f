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
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const iqn = "iqn.2026-01.com.example:vol1"

// csi-proxyctl adds targets without disks.
func TestISCSITargetWithDisks(t *testing.T) {
	sys, sim := start(t)
	portal := &simv1.IscsiPortal{Address: "10.0.0.1", Port: 3260}
	sim.do("AddIscsiTarget", &simv1.IscsiTarget{
		Iqn: iqn, Portals: []*simv1.IscsiPortal{portal},
		Luns: []*simv1.DiskHardware{
			{
				SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "s0", Page83: "id0", Offline: true, ReadOnly: true,
				NeedsRescan: true,
			}, {SizeBytes: 2 << 30, SerialNumber: "s1"},
		},
	})
	want := &simv1.IscsiTarget{
		Iqn: iqn, Portals: []*simv1.IscsiPortal{portal},
		Luns: []*simv1.DiskHardware{
			{SizeBytes: 1 << 30, SectorSize: 4096, SerialNumber: "s0", Offline: true, ReadOnly: true, NeedsRescan: true},
			{SizeBytes: 2 << 30, SectorSize: 512, SerialNumber: "s1"},
		},
	}
	got := get[simv1.ListIscsiTargetsResponse](sim, "ListIscsiTargets").Targets
	if diff := cmp.Diff([]*simv1.IscsiTarget{want}, got, protocmp.Transform()); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	identifiers := []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte("id0")}}
	if diff := cmp.Diff(identifiers, sys.Disks()[1].Spec.Page83); diff != "" {
		t.Errorf("identifiers (-want +got):\n%s", diff)
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
	sim.refused(csiproxy.ErrNotFound, "AddIscsiLun", &simv1.AddIscsiLunRequest{Iqn: "iqn.x"})
	sim.refused(csiproxy.ErrInvalidArgument, "AddIscsiLun", &simv1.AddIscsiLunRequest{Iqn: iqn})
	sim.refused(csiproxy.ErrInvalidArgument, "SetIscsiPortal",
		&simv1.IscsiPortalState{}, &simv1.IscsiPortalState{Portal: tooHigh})
	sim.refused(csiproxy.ErrInvalidArgument, "AddService", &simv1.WindowsService{})
	sim.refused(csiproxy.ErrAlreadyExists, "AddService", &simv1.WindowsService{Name: "kubelet"})
	sim.refused(csiproxy.ErrInvalidArgument, "SetBiosSerial", &simv1.SerialNumber{SerialNumber: "\n"})
}
