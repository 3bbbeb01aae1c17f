// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"math"
	"strconv"

	csiproxy "github.com/csi-proxy/csi-proxy"
	iscsiv1alpha2 "github.com/csi-proxy/csi-proxy/api/iscsi/v1alpha2"
)

// ISCSI calls the iscsi group. A [Client] has one.
type ISCSI struct{ group *group }

// Version returns the version in use, such as "v1alpha2". If there is none yet, Version chooses the
// newest version served.
func (i *ISCSI) Version(ctx context.Context) (string, error) { return i.group.version(ctx) }

// AddTargetPortal implements [published.ISCSIOperations]: makes a portal known to the node's
// initiator.
func (i *ISCSI) AddTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) error {
	return i.group.act(ctx, "AddTargetPortal", portalObject(p),
		&iscsiv1alpha2.AddTargetPortalRequest{TargetPortal: portal(p)})
}

// DiscoverTargetPortal implements [published.ISCSIOperations]: asks a known portal for its targets.
func (i *ISCSI) DiscoverTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) (targets []csiproxy.IQN, err error) {
	return ask(ctx, i.group, "DiscoverTargetPortal", portalObject(p),
		&iscsiv1alpha2.DiscoverTargetPortalRequest{TargetPortal: portal(p)},
		func(r *iscsiv1alpha2.DiscoverTargetPortalResponse) (targets []csiproxy.IQN) {
			for _, iqn := range r.Iqns {
				targets = append(targets, csiproxy.IQN(iqn))
			}
			return targets
		})
}

// ListTargetPortals implements [published.ISCSIOperations]: returns the portals known to the
// initiator.
func (i *ISCSI) ListTargetPortals(ctx context.Context) (portals []csiproxy.ISCSIPortal, err error) {
	err = i.group.call(ctx, "ListTargetPortals", "",
		checkedResult("ListTargetPortals", &iscsiv1alpha2.ListTargetPortalsRequest{},
			func(r *iscsiv1alpha2.ListTargetPortalsResponse) error {
				var listed []csiproxy.ISCSIPortal
				for _, p := range r.TargetPortals {
					if p.TargetPort > math.MaxUint16 {
						return malformedError("the invalid TCP port %d", p.TargetPort)
					}
					listed = append(listed, csiproxy.ISCSIPortal{Address: p.TargetAddress, Port: uint16(p.TargetPort)})
				}
				portals = listed
				return nil
			}),
	)
	return portals, err
}

// RemoveTargetPortal implements [published.ISCSIOperations]: the initiator forgets a portal.
func (i *ISCSI) RemoveTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) error {
	return i.group.act(ctx, "RemoveTargetPortal", portalObject(p),
		&iscsiv1alpha2.RemoveTargetPortalRequest{TargetPortal: portal(p)})
}

// ConnectTarget implements [published.ISCSIOperations]: logs the node in to a target.
func (i *ISCSI) ConnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN, a csiproxy.ISCSIAuthentication) error {
	const op = "ConnectTarget"
	request := &iscsiv1alpha2.ConnectTargetRequest{
		TargetPortal: portal(p), Iqn: string(iqn), ChapUsername: a.Username, ChapSecret: a.Secret.Reveal(),
	}
	switch a.Type {
	case csiproxy.ISCSINoAuth:
		request.AuthType = iscsiv1alpha2.AuthenticationType_NONE
	case csiproxy.ISCSIOneWayCHAP:
		request.AuthType = iscsiv1alpha2.AuthenticationType_ONE_WAY_CHAP
	case csiproxy.ISCSIMutualCHAP:
		request.AuthType = iscsiv1alpha2.AuthenticationType_MUTUAL_CHAP
	default:
		return &csiproxy.Error{
			Op: op, Object: targetObject(iqn), Kind: csiproxy.ErrInvalidArgument,
			Detail: fmt.Sprintf("unknown authentication type %d", a.Type),
		}
	}
	return i.group.act(ctx, op, targetObject(iqn), request)
}

// DisconnectTarget implements [published.ISCSIOperations]: logs the node out of a target.
func (i *ISCSI) DisconnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) error {
	return i.group.act(ctx, "DisconnectTarget", targetObject(iqn),
		&iscsiv1alpha2.DisconnectTargetRequest{TargetPortal: portal(p), Iqn: string(iqn)})
}

// GetTargetDisks implements [published.ISCSIOperations]: returns the disks provided by a target.
func (i *ISCSI) GetTargetDisks(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) (disks []csiproxy.DiskNumber, err error) {
	request := &iscsiv1alpha2.GetTargetDisksRequest{TargetPortal: portal(p), Iqn: string(iqn)}
	err = i.group.call(ctx, "GetTargetDisks", targetObject(iqn),
		checkedResult("GetTargetDisks", request, func(r *iscsiv1alpha2.GetTargetDisksResponse) error {
			var numbers []csiproxy.DiskNumber
			for _, id := range r.DiskIDs {
				n, err := parseNumber(id)
				if err != nil {
					return err
				}
				numbers = append(numbers, n)
			}
			disks = numbers
			return nil
		}),
	)
	return disks, err
}

// SetMutualCHAPSecret implements [published.ISCSIOperations]: sets the secret with which targets
// prove their identity. Needs v1alpha2.
func (i *ISCSI) SetMutualCHAPSecret(ctx context.Context, s csiproxy.Secret) error {
	return i.group.call(ctx, "SetMutualCHAPSecret", "",
		noResult("SetMutualChapSecret", &iscsiv1alpha2.SetMutualChapSecretRequest{MutualChapSecret: s.Reveal()}),
	)
}

func portal(p csiproxy.ISCSIPortal) *iscsiv1alpha2.TargetPortal {
	return &iscsiv1alpha2.TargetPortal{TargetAddress: p.Address, TargetPort: uint32(p.Port)}
}

func portalObject(p csiproxy.ISCSIPortal) string { return "portal " + strconv.Quote(p.String()) }

func targetObject(iqn csiproxy.IQN) string { return "target " + strconv.Quote(string(iqn)) }
