// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the host side of package iscsi, over CSI Proxy's operations.
package api

import (
	"context"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/published"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

// TargetPortal is the address of a portal.
type TargetPortal struct {
	Address string `json:"TargetPortalAddress"`
	Port    uint32 `json:"TargetPortalPortNumber"`
}

// HostAPI is what package iscsi needs of the node.
type HostAPI interface {
	AddTargetPortal(portal *TargetPortal) error
	DiscoverTargetPortal(portal *TargetPortal) ([]string, error)
	ListTargetPortals() ([]TargetPortal, error)
	RemoveTargetPortal(portal *TargetPortal) error
	ConnectTarget(portal *TargetPortal, iqn string, authType string, chapUser string, chapSecret string) error
	DisconnectTarget(portal *TargetPortal, iqn string) error
	GetTargetDisks(portal *TargetPortal, iqn string) ([]string, error)
	SetMutualChapSecret(mutualChapSecret string) error
}

type iscsiAPI struct{ in host.API }

// New returns the node's iSCSI initiator.
func New() HostAPI { return iscsiAPI{} }

// WithContext returns the same initiator, for calls that end with ctx.
func (iscsiAPI) WithContext(ctx context.Context) HostAPI { return iscsiAPI{host.In(ctx)} }

func (i iscsiAPI) do(f func(ctx context.Context, initiator published.ISCSIOperations) error) error {
	return host.Do(i.in, func(ctx context.Context, n *node.Node) error { return f(ctx, n.ISCSI) })
}

// at calls f with a portal.
func (i iscsiAPI) at(p *TargetPortal,
	f func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error) error {
	switch {
	case p == nil:
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the portal is missing")
	case p.Port > 65535:
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the port %d is more than 65535", p.Port)
	}
	return i.do(func(ctx context.Context, initiator published.ISCSIOperations) error {
		return f(ctx, initiator, csiproxy.ISCSIPortal{Address: p.Address, Port: uint16(p.Port)})
	})
}

func (i iscsiAPI) AddTargetPortal(portal *TargetPortal) error {
	return i.at(portal, func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error {
		return initiator.AddTargetPortal(ctx, p)
	})
}

func (i iscsiAPI) DiscoverTargetPortal(portal *TargetPortal) (iqns []string, err error) {
	err = i.at(portal, func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error {
		found, err := initiator.DiscoverTargetPortal(ctx, p)
		iqns = host.Strings(found)
		return err
	})
	return iqns, err
}

func (i iscsiAPI) ListTargetPortals() (portals []TargetPortal, err error) {
	err = i.do(func(ctx context.Context, initiator published.ISCSIOperations) error {
		known, err := initiator.ListTargetPortals(ctx)
		for _, p := range known {
			portals = append(portals, TargetPortal{p.Address, uint32(p.Port)})
		}
		return err
	})
	return portals, err
}

func (i iscsiAPI) RemoveTargetPortal(portal *TargetPortal) error {
	return i.at(portal, func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error {
		return initiator.RemoveTargetPortal(ctx, p)
	})
}

// The published names of the ways to log in.
var authTypes = map[string]csiproxy.ISCSIAuthType{
	"NONE": csiproxy.ISCSINoAuth, "ONEWAYCHAP": csiproxy.ISCSIOneWayCHAP, "MUTUALCHAP": csiproxy.ISCSIMutualCHAP,
}

func (i iscsiAPI) ConnectTarget(portal *TargetPortal, iqn string, authType string, chapUser string,
	chapSecret string) error {
	auth, ok := authTypes[strings.ToUpper(authType)]
	if !ok {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"the authentication type is %q; it must be NONE, ONEWAYCHAP or MUTUALCHAP", authType)
	}
	return i.at(portal, func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error {
		a := csiproxy.ISCSIAuthentication{Type: auth, Username: chapUser, Secret: csiproxy.NewSecret(chapSecret)}
		return initiator.ConnectTarget(ctx, p, csiproxy.IQN(iqn), a)
	})
}

func (i iscsiAPI) DisconnectTarget(portal *TargetPortal, iqn string) error {
	return i.at(portal, func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error {
		return initiator.DisconnectTarget(ctx, p, csiproxy.IQN(iqn))
	})
}

// GetTargetDisks returns the numbers of a target's disks, in decimal.
func (i iscsiAPI) GetTargetDisks(portal *TargetPortal, iqn string) (numbers []string, err error) {
	err = i.at(portal, func(ctx context.Context, initiator published.ISCSIOperations, p csiproxy.ISCSIPortal) error {
		disks, err := initiator.GetTargetDisks(ctx, p, csiproxy.IQN(iqn))
		for _, n := range disks {
			numbers = append(numbers, n.String())
		}
		return err
	})
	return numbers, err
}

func (i iscsiAPI) SetMutualChapSecret(mutualChapSecret string) error {
	return i.do(func(ctx context.Context, initiator published.ISCSIOperations) error {
		return initiator.SetMutualCHAPSecret(ctx, csiproxy.NewSecret(mutualChapSecret))
	})
}
