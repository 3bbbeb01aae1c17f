// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"math"

	csiproxy "github.com/csi-proxy/csi-proxy"
	iscsiv1alpha2 "github.com/csi-proxy/csi-proxy/api/iscsi/v1alpha2"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
)

func iscsiVersions(ops iscsi.Operations) versions {
	h := iscsiHandler{ops}
	first := methods{
		"AddTargetPortal":      unary(h.AddTargetPortal),
		"DiscoverTargetPortal": unary(h.DiscoverTargetPortal),
		"RemoveTargetPortal":   unary(h.RemoveTargetPortal),
		"ListTargetPortals":    unary(h.ListTargetPortals),
		"ConnectTarget":        unary(h.ConnectTarget),
		"DisconnectTarget":     unary(h.DisconnectTarget),
		"GetTargetDisks":       unary(h.GetTargetDisks),
	}
	mutualCHAP := methods{
		"SetMutualChapSecret": unary(h.SetMutualChapSecret),
	}

	return versions{
		"v1alpha2": {first, mutualCHAP},
		"v1alpha1": {first},
	}
}

// iscsiHandler answers the messages of v1alpha2.
type iscsiHandler struct{ ops iscsi.Operations }

func (h iscsiHandler) AddTargetPortal(ctx context.Context,
	req *iscsiv1alpha2.AddTargetPortalRequest) (*iscsiv1alpha2.AddTargetPortalResponse, error) {
	p, err := portal("AddTargetPortal", req.TargetPortal)
	if err != nil {
		return nil, err
	}
	return &iscsiv1alpha2.AddTargetPortalResponse{}, h.ops.AddTargetPortal(ctx, p)
}

func (h iscsiHandler) DiscoverTargetPortal(ctx context.Context,
	req *iscsiv1alpha2.DiscoverTargetPortalRequest) (*iscsiv1alpha2.DiscoverTargetPortalResponse, error) {
	p, err := portal("DiscoverTargetPortal", req.TargetPortal)
	if err != nil {
		return nil, err
	}
	targets, err := h.ops.DiscoverTargetPortal(ctx, p)
	if err != nil {
		return nil, err
	}
	resp := &iscsiv1alpha2.DiscoverTargetPortalResponse{}
	for _, iqn := range targets {
		resp.Iqns = append(resp.Iqns, string(iqn))
	}
	return resp, nil
}

func (h iscsiHandler) RemoveTargetPortal(ctx context.Context,
	req *iscsiv1alpha2.RemoveTargetPortalRequest) (*iscsiv1alpha2.RemoveTargetPortalResponse, error) {
	p, err := portal("RemoveTargetPortal", req.TargetPortal)
	if err != nil {
		return nil, err
	}
	return &iscsiv1alpha2.RemoveTargetPortalResponse{}, h.ops.RemoveTargetPortal(ctx, p)
}

func (h iscsiHandler) ListTargetPortals(ctx context.Context,
	_ *iscsiv1alpha2.ListTargetPortalsRequest) (*iscsiv1alpha2.ListTargetPortalsResponse, error) {
	portals, err := h.ops.ListTargetPortals(ctx)
	if err != nil {
		return nil, err
	}
	resp := &iscsiv1alpha2.ListTargetPortalsResponse{}
	for _, p := range portals {
		resp.TargetPortals = append(resp.TargetPortals, &iscsiv1alpha2.TargetPortal{
			TargetAddress: p.Address,
			TargetPort:    uint32(p.Port),
		})
	}
	return resp, nil
}

func (h iscsiHandler) ConnectTarget(ctx context.Context,
	req *iscsiv1alpha2.ConnectTargetRequest) (*iscsiv1alpha2.ConnectTargetResponse, error) {
	const op = "ConnectTarget"
	p, err := portal(op, req.TargetPortal)
	if err != nil {
		return nil, err
	}
	a := iscsi.Authentication{Username: req.ChapUsername, Secret: secret.New(req.ChapSecret)}
	switch req.AuthType {
	case iscsiv1alpha2.AuthenticationType_NONE:
		a.Type = iscsi.NoAuth
	case iscsiv1alpha2.AuthenticationType_ONE_WAY_CHAP:
		a.Type = iscsi.OneWayCHAP
	case iscsiv1alpha2.AuthenticationType_MUTUAL_CHAP:
		a.Type = iscsi.MutualCHAP
	default:
		return nil, &csiproxy.Error{
			Op: op, Kind: csiproxy.ErrInvalidArgument, Detail: fmt.Sprintf("unknown authentication type %d", req.AuthType),
		}
	}
	return &iscsiv1alpha2.ConnectTargetResponse{}, h.ops.ConnectTarget(ctx, p, iscsi.IQN(req.Iqn), a)
}

func (h iscsiHandler) DisconnectTarget(ctx context.Context,
	req *iscsiv1alpha2.DisconnectTargetRequest) (*iscsiv1alpha2.DisconnectTargetResponse, error) {
	p, err := portal("DisconnectTarget", req.TargetPortal)
	if err != nil {
		return nil, err
	}
	return &iscsiv1alpha2.DisconnectTargetResponse{}, h.ops.DisconnectTarget(ctx, p, iscsi.IQN(req.Iqn))
}

func (h iscsiHandler) GetTargetDisks(ctx context.Context,
	req *iscsiv1alpha2.GetTargetDisksRequest) (*iscsiv1alpha2.GetTargetDisksResponse, error) {
	p, err := portal("GetTargetDisks", req.TargetPortal)
	if err != nil {
		return nil, err
	}
	disks, err := h.ops.GetTargetDisks(ctx, p, iscsi.IQN(req.Iqn))
	if err != nil {
		return nil, err
	}
	resp := &iscsiv1alpha2.GetTargetDisksResponse{}
	for _, n := range disks {
		resp.DiskIDs = append(resp.DiskIDs, n.String())
	}
	return resp, nil
}

func (h iscsiHandler) SetMutualChapSecret(ctx context.Context,
	req *iscsiv1alpha2.SetMutualChapSecretRequest) (*iscsiv1alpha2.SetMutualChapSecretResponse, error) {
	return &iscsiv1alpha2.SetMutualChapSecretResponse{}, h.ops.SetMutualCHAPSecret(ctx, secret.New(req.MutualChapSecret))
}

// portal returns the portal of a request, which may be missing from it.
func portal(op string, p *iscsiv1alpha2.TargetPortal) (iscsi.Portal, error) {
	detail := ""
	switch {
	case p == nil:
		detail = "the target portal is missing"
	case p.TargetPort > math.MaxUint16:
		detail = fmt.Sprintf("%d is no TCP port", p.TargetPort)
	default:
		return iscsi.Portal{Address: p.TargetAddress, Port: uint16(p.TargetPort)}, nil
	}
	return iscsi.Portal{}, &csiproxy.Error{Op: op, Kind: csiproxy.ErrInvalidArgument, Detail: detail}
}
