// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"context"
	"fmt"
	"math"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// AddIscsiTarget implements simv1.SimServer.
func (s *Service) AddIscsiTarget(_ context.Context, r *simv1.AddIscsiTargetRequest) (*simv1.AddIscsiTargetResponse, error) {
	target := iscsitarget.Target{
		IQN:          r.GetTarget().GetIqn(),
		CHAPUser:     r.GetTarget().GetChapUser(),
		CHAPSecret:   secret.New(r.ChapSecret),
		MutualSecret: secret.New(r.MutualChapSecret),
	}
	for _, p := range r.GetTarget().GetPortals() {
		portal, err := portalOf("AddIscsiTarget", p)
		if err != nil {
			return nil, err
		}
		target.Portals = append(target.Portals, portal)
	}
	var luns []winsim.DiskSpec
	for _, lun := range r.GetTarget().GetLuns() {
		luns = append(luns, lunOf(lun))
	}
	return &simv1.AddIscsiTargetResponse{}, classify(s.sys.ISCSI().AddTarget(target, luns...))
}

// portalOf reads the portal of a request to op.
func portalOf(op string, p *simv1.IscsiPortal) (win.ISCSIPortal, error) {
	if p.GetPort() > math.MaxUint16 {
		return win.ISCSIPortal{}, invalid(op, fmt.Sprintf("a port is below %d", math.MaxUint16+1))
	}
	return win.ISCSIPortal{Address: p.GetAddress(), Port: uint16(p.GetPort())}, nil
}

func lunOf(lun *simv1.IscsiLun) winsim.DiskSpec {
	return winsim.DiskSpec{
		SizeBytes:   lun.GetSizeBytes(),
		SectorSize:  lun.GetSectorSize(),
		Serial:      lun.GetSerialNumber(),
		Page83:      page83Of(lun.GetPage83()),
		Offline:     lun.GetOffline(),
		ReadOnly:    lun.GetReadOnly(),
		NeedsRescan: lun.GetNeedsRescan(),
	}
}

// RemoveIscsiTarget implements simv1.SimServer.
func (s *Service) RemoveIscsiTarget(_ context.Context, r *simv1.RemoveIscsiTargetRequest) (*simv1.RemoveIscsiTargetResponse, error) {
	return &simv1.RemoveIscsiTargetResponse{}, classify(s.sys.ISCSI().RemoveTarget(r.Iqn))
}

// AddIscsiLun implements simv1.SimServer.
func (s *Service) AddIscsiLun(_ context.Context, r *simv1.AddIscsiLunRequest) (*simv1.AddIscsiLunResponse, error) {
	return &simv1.AddIscsiLunResponse{}, classify(s.sys.ISCSI().AddLUN(r.Iqn, lunOf(r.Lun)))
}

// SetIscsiPortal implements simv1.SimServer.
func (s *Service) SetIscsiPortal(_ context.Context, r *simv1.SetIscsiPortalRequest) (*simv1.SetIscsiPortalResponse, error) {
	portal, err := portalOf("SetIscsiPortal", r.Portal)
	if err != nil {
		return nil, err
	}
	return &simv1.SetIscsiPortalResponse{}, classify(s.sys.ISCSI().SetPortal(portal, r.Reachable))
}

// ListIscsiTargets implements simv1.SimServer.
func (s *Service) ListIscsiTargets(context.Context, *simv1.ListIscsiTargetsRequest) (*simv1.ListIscsiTargetsResponse, error) {
	response := &simv1.ListIscsiTargetsResponse{}
	for _, t := range s.sys.ISCSI().Targets() {
		target := &simv1.IscsiTarget{Iqn: t.IQN, ChapUser: t.CHAPUser}
		for _, p := range t.Portals {
			target.Portals = append(target.Portals, toPortal(p))
		}
		for _, lun := range s.sys.ISCSI().LUNs(t.IQN) {
			target.Luns = append(target.Luns, &simv1.IscsiLun{
				SizeBytes:    lun.SizeBytes,
				SectorSize:   lun.SectorSize,
				SerialNumber: lun.Serial,
				Offline:      lun.Offline,
				ReadOnly:     lun.ReadOnly,
				NeedsRescan:  lun.NeedsRescan,
			})
		}
		response.Targets = append(response.Targets, target)
	}
	for _, p := range s.sys.ISCSI().Portals() {
		response.Portals = append(response.Portals, &simv1.IscsiPortalState{Portal: toPortal(p.ISCSIPortal), Reachable: p.Reachable})
	}
	return response, nil
}

func toPortal(p win.ISCSIPortal) *simv1.IscsiPortal {
	return &simv1.IscsiPortal{Address: p.Address, Port: uint32(p.Port)}
}
