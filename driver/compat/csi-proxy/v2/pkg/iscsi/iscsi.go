// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iscsi has the published library's methods for the node's iSCSI initiator, over CSI Proxy's operations.
package iscsi

import (
	"cmp"
	"context"
	"fmt"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	api "github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi/hostapi"
)

// Interface is the node's iSCSI initiator.
type Interface interface {
	// AddTargetPortal makes a portal known to Windows.
	AddTargetPortal(context.Context, *AddTargetPortalRequest) (*AddTargetPortalResponse, error)
	// ConnectTarget logs in to a target.
	ConnectTarget(context.Context, *ConnectTargetRequest) (*ConnectTargetResponse, error)
	// DisconnectTarget logs out of a target.
	DisconnectTarget(context.Context, *DisconnectTargetRequest) (*DisconnectTargetResponse, error)
	// DiscoverTargetPortal returns the targets of a portal.
	DiscoverTargetPortal(context.Context, *DiscoverTargetPortalRequest) (*DiscoverTargetPortalResponse, error)
	// GetTargetDisks returns the numbers of a target's disks.
	GetTargetDisks(context.Context, *GetTargetDisksRequest) (*GetTargetDisksResponse, error)
	// ListTargetPortals returns the portals that Windows knows.
	ListTargetPortals(context.Context, *ListTargetPortalsRequest) (*ListTargetPortalsResponse, error)
	// RemoveTargetPortal has Windows forget a portal.
	RemoveTargetPortal(context.Context, *RemoveTargetPortalRequest) (*RemoveTargetPortalResponse, error)
	// SetMutualChapSecret sets the secret with which targets prove themselves to this node.
	SetMutualChapSecret(context.Context, *SetMutualChapSecretRequest) (*SetMutualChapSecretResponse, error)
}

// AuthenticationType tells who proves whom with CHAP.
type AuthenticationType uint32

// Authentication types.
const (
	NONE         = 0 // nobody
	ONE_WAY_CHAP = 1 // the node to the target
	MUTUAL_CHAP  = 2 // each to the other
)

const defaultPort = 3260

// AuthTypeToString returns the name that the host side knows a type by.
func AuthTypeToString(authType AuthenticationType) (string, error) {
	switch authType {
	case NONE:
		return "NONE", nil
	case ONE_WAY_CHAP:
		return "ONEWAYCHAP", nil
	case MUTUAL_CHAP:
		return "MUTUALCHAP", nil
	}
	return "", fmt.Errorf("the authentication type %d is none of 0, 1 and 2", authType)
}

// ISCSI implements [Interface] over a HostAPI.
type ISCSI struct{ hostAPI api.HostAPI }

var _ Interface = (*ISCSI)(nil)

// New returns the node's iSCSI initiator. The error is always nil.
func New(hostAPI api.HostAPI) (*ISCSI, error) { return &ISCSI{hostAPI}, nil }

func (i *ISCSI) host(ctx context.Context) api.HostAPI { return host.WithContext(ctx, i.hostAPI) }

func (i *ISCSI) AddTargetPortal(ctx context.Context,
	request *AddTargetPortalRequest) (*AddTargetPortalResponse, error) {
	return &AddTargetPortalResponse{}, i.host(ctx).AddTargetPortal(portal(request.TargetPortal))
}

func (i *ISCSI) DisconnectTarget(ctx context.Context,
	request *DisconnectTargetRequest) (*DisconnectTargetResponse, error) {
	return &DisconnectTargetResponse{}, i.host(ctx).DisconnectTarget(portal(request.TargetPortal), request.IQN)
}

func (i *ISCSI) DiscoverTargetPortal(ctx context.Context,
	request *DiscoverTargetPortalRequest) (*DiscoverTargetPortalResponse, error) {
	iQNs, err := i.host(ctx).DiscoverTargetPortal(portal(request.TargetPortal))
	return &DiscoverTargetPortalResponse{iQNs}, err
}

func (i *ISCSI) GetTargetDisks(ctx context.Context, request *GetTargetDisksRequest) (*GetTargetDisksResponse, error) {
	diskIDs, err := i.host(ctx).GetTargetDisks(portal(request.TargetPortal), request.IQN)
	return &GetTargetDisksResponse{diskIDs}, err
}

func (i *ISCSI) RemoveTargetPortal(ctx context.Context,
	request *RemoveTargetPortalRequest) (*RemoveTargetPortalResponse, error) {
	return &RemoveTargetPortalResponse{}, i.host(ctx).RemoveTargetPortal(portal(request.TargetPortal))
}

func (i *ISCSI) SetMutualChapSecret(ctx context.Context,
	request *SetMutualChapSecretRequest) (*SetMutualChapSecretResponse, error) {
	return &SetMutualChapSecretResponse{}, i.host(ctx).SetMutualChapSecret(request.MutualChapSecret)
}

func (i *ISCSI) ConnectTarget(ctx context.Context, request *ConnectTargetRequest) (*ConnectTargetResponse, error) {
	auth, err := AuthTypeToString(request.AuthType)
	if err != nil {
		return nil, err
	}
	err = i.host(ctx).ConnectTarget(portal(request.TargetPortal), request.IQN, auth, request.ChapUsername,
		request.ChapSecret)
	return &ConnectTargetResponse{}, err
}

func (i *ISCSI) ListTargetPortals(ctx context.Context,
	_ *ListTargetPortalsRequest) (*ListTargetPortalsResponse, error) {
	known, err := i.host(ctx).ListTargetPortals()
	if err != nil {
		return nil, err
	}
	portals := make([]*TargetPortal, len(known))
	for at, p := range known {
		portals[at] = &TargetPortal{p.Address, p.Port}
	}
	return &ListTargetPortalsResponse{portals}, nil
}

// portal returns a portal as the host side has it. One without a port has the default one.
func portal(p *TargetPortal) *api.TargetPortal {
	if p == nil {
		return nil
	}
	return &api.TargetPortal{Address: p.TargetAddress, Port: cmp.Or(p.TargetPort, defaultPort)}
}
