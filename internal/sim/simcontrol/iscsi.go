// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"fmt"
	"math"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func (s *Service) AddIscsiTarget(r *simv1.IscsiTarget) error {
	target := iscsitarget.Target{
		IQN:          r.Iqn,
		CHAPUser:     r.ChapUser,
		CHAPSecret:   csiproxy.NewSecret(r.ChapSecret),
		MutualSecret: csiproxy.NewSecret(r.MutualChapSecret),
	}
	for _, p := range r.Portals {
		portal, err := portalOf("AddIscsiTarget", p)
		if err != nil {
			return err
		}
		target.Portals = append(target.Portals, portal)
	}
	var luns []winsim.DiskSpec
	for _, lun := range r.Luns {
		spec, err := specOf("AddIscsiTarget", lun)
		if err != nil {
			return err
		}
		luns = append(luns, spec)
	}
	return s.sys.ISCSI().AddTarget(target, luns...)
}

// portalOf reads the portal of a request to op.
func portalOf(op string, p *simv1.IscsiPortal) (win.ISCSIPortal, error) {
	if p.GetPort() > math.MaxUint16 {
		return win.ISCSIPortal{}, invalid(op, fmt.Sprintf("a port is below %d", math.MaxUint16+1))
	}
	return win.ISCSIPortal{Address: p.GetAddress(), Port: uint16(p.GetPort())}, nil
}

func (s *Service) RemoveIscsiTarget(r *simv1.IscsiTarget) error {
	return s.sys.ISCSI().RemoveTarget(r.Iqn)
}

func (s *Service) AddIscsiLun(r *simv1.AddIscsiLunRequest) error {
	spec, err := specOf("AddIscsiLun", r.Lun)
	if err != nil {
		return err
	}
	return s.sys.ISCSI().AddLUN(r.Iqn, spec)
}

func (s *Service) SetIscsiPortal(r *simv1.IscsiPortalState) error {
	portal, err := portalOf("SetIscsiPortal", r.Portal)
	if err != nil {
		return err
	}
	return s.sys.ISCSI().SetPortal(portal, r.Reachable)
}

func (s *Service) ListIscsiTargets() (*simv1.ListIscsiTargetsResponse, error) {
	response := &simv1.ListIscsiTargetsResponse{}
	for _, t := range s.sys.ISCSI().Targets() {
		target := &simv1.IscsiTarget{Iqn: t.IQN, ChapUser: t.CHAPUser}
		for _, p := range t.Portals {
			target.Portals = append(target.Portals, toPortal(p))
		}
		for _, lun := range s.sys.ISCSI().LUNs(t.IQN) {
			target.Luns = append(target.Luns, &simv1.DiskHardware{
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
		response.Portals = append(response.Portals,
			&simv1.IscsiPortalState{Portal: toPortal(p.ISCSIPortal), Reachable: p.Reachable})
	}
	return response, nil
}

func toPortal(p win.ISCSIPortal) *simv1.IscsiPortal {
	return &simv1.IscsiPortal{Address: p.Address, Port: uint32(p.Port)}
}
