// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"math"

	csiproxy "github.com/csi-proxy/csi-proxy"
	iscsiv1alpha2 "github.com/csi-proxy/csi-proxy/api/iscsi/v1alpha2"
	"github.com/csi-proxy/csi-proxy/published"
)

func iscsiVersions(ops published.ISCSIOperations) versions {
	first := methods{
		"AddTargetPortal": action(func(ctx context.Context, req *iscsiv1alpha2.AddTargetPortalRequest) error {
			p, err := portal(req.TargetPortal)
			if err != nil {
				return err
			}
			return ops.AddTargetPortal(ctx, p)
		}),
		"DiscoverTargetPortal": unary(func(ctx context.Context,
			req *iscsiv1alpha2.DiscoverTargetPortalRequest) (*iscsiv1alpha2.DiscoverTargetPortalResponse, error) {
			p, err := portal(req.TargetPortal)
			if err != nil {
				return nil, err
			}
			targets, err := ops.DiscoverTargetPortal(ctx, p)
			resp := &iscsiv1alpha2.DiscoverTargetPortalResponse{}
			for _, iqn := range targets {
				resp.Iqns = append(resp.Iqns, string(iqn))
			}
			return resp, err
		}),
		"RemoveTargetPortal": action(func(ctx context.Context, req *iscsiv1alpha2.RemoveTargetPortalRequest) error {
			p, err := portal(req.TargetPortal)
			if err != nil {
				return err
			}
			return ops.RemoveTargetPortal(ctx, p)
		}),
		"ListTargetPortals": unary(func(ctx context.Context,
			_ *iscsiv1alpha2.ListTargetPortalsRequest) (*iscsiv1alpha2.ListTargetPortalsResponse, error) {
			portals, err := ops.ListTargetPortals(ctx)
			resp := &iscsiv1alpha2.ListTargetPortalsResponse{}
			for _, p := range portals {
				resp.TargetPortals = append(resp.TargetPortals, &iscsiv1alpha2.TargetPortal{
					TargetAddress: p.Address,
					TargetPort:    uint32(p.Port),
				})
			}
			return resp, err
		}),
		"ConnectTarget": action(func(ctx context.Context, req *iscsiv1alpha2.ConnectTargetRequest) error {
			p, err := portal(req.TargetPortal)
			if err != nil {
				return err
			}
			a := csiproxy.ISCSIAuthentication{Username: req.ChapUsername, Secret: csiproxy.NewSecret(req.ChapSecret)}
			switch req.AuthType {
			case iscsiv1alpha2.AuthenticationType_NONE:
				a.Type = csiproxy.ISCSINoAuth
			case iscsiv1alpha2.AuthenticationType_ONE_WAY_CHAP:
				a.Type = csiproxy.ISCSIOneWayCHAP
			case iscsiv1alpha2.AuthenticationType_MUTUAL_CHAP:
				a.Type = csiproxy.ISCSIMutualCHAP
			default:
				return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown authentication type %d", req.AuthType)
			}
			return ops.ConnectTarget(ctx, p, csiproxy.IQN(req.Iqn), a)
		}),
		"DisconnectTarget": action(func(ctx context.Context, req *iscsiv1alpha2.DisconnectTargetRequest) error {
			p, err := portal(req.TargetPortal)
			if err != nil {
				return err
			}
			return ops.DisconnectTarget(ctx, p, csiproxy.IQN(req.Iqn))
		}),
		"GetTargetDisks": unary(func(ctx context.Context,
			req *iscsiv1alpha2.GetTargetDisksRequest) (*iscsiv1alpha2.GetTargetDisksResponse, error) {
			p, err := portal(req.TargetPortal)
			if err != nil {
				return nil, err
			}
			disks, err := ops.GetTargetDisks(ctx, p, csiproxy.IQN(req.Iqn))
			resp := &iscsiv1alpha2.GetTargetDisksResponse{}
			for _, n := range disks {
				resp.DiskIDs = append(resp.DiskIDs, n.String())
			}
			return resp, err
		}),
	}
	mutualCHAP := methods{
		"SetMutualChapSecret": action(func(ctx context.Context, req *iscsiv1alpha2.SetMutualChapSecretRequest) error {
			return ops.SetMutualCHAPSecret(ctx, csiproxy.NewSecret(req.MutualChapSecret))
		}),
	}

	return versions{
		"v1alpha2": {first, mutualCHAP},
		"v1alpha1": {first},
	}
}

// portal returns the portal of a request. A missing portal is an error.
func portal(p *iscsiv1alpha2.TargetPortal) (csiproxy.ISCSIPortal, error) {
	switch {
	case p == nil:
		return csiproxy.ISCSIPortal{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the target portal is missing")
	case p.TargetPort > math.MaxUint16:
		return csiproxy.ISCSIPortal{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%d is no TCP port", p.TargetPort)
	}
	return csiproxy.ISCSIPortal{Address: p.TargetAddress, Port: uint16(p.TargetPort)}, nil
}
