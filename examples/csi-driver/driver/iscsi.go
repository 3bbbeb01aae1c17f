// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Keys of the node-stage secret, for an SMB share and for an iSCSI target that requires
// CHAP.
const (
	secretUsername = "username"
	secretPassword = "password"
	// With this one an iSCSI target proves its identity to the node. Windows has one
	// for all targets.
	secretMutual = "mutualPassword"
)

// iscsiDisk is the only disk of an iSCSI target.
type iscsiDisk struct{ initiator ISCSI }

func (d iscsiDisk) attach(ctx context.Context, rec *record, secrets map[string]string) (disk.Number, error) {
	portal, iqn := rec.Source.Portal, rec.Source.IQN
	if err := d.initiator.AddTargetPortal(ctx, portal); err != nil {
		return 0, err
	}
	// Windows connects only to targets that it has discovered.
	if _, err := d.initiator.DiscoverTargetPortal(ctx, portal); err != nil {
		return 0, err
	}
	auth := authentication(secrets)
	if auth.Type == iscsi.MutualCHAP {
		if err := d.initiator.SetMutualCHAPSecret(ctx, secret.New(secrets[secretMutual])); err != nil {
			return 0, err
		}
	}
	if err := d.initiator.ConnectTarget(ctx, portal, iqn, auth); err != nil {
		return 0, err
	}
	disks, err := d.initiator.GetTargetDisks(ctx, portal, iqn)
	switch {
	case err != nil:
		return 0, err
	case len(disks) == 0:
		return 0, &csiproxy.Error{
			Op: "attach", Object: string(iqn), Kind: csiproxy.ErrUnavailable,
			Detail: "no disk of the target has arrived yet",
		}
	case len(disks) > 1:
		return 0, &csiproxy.Error{
			Op: "attach", Object: string(iqn), Kind: csiproxy.ErrFailedPrecondition,
			Detail: fmt.Sprintf("the target has %d disks, must have one", len(disks)),
		}
	}
	return disks[0], nil
}

// authentication returns the login for the given secrets.
func authentication(secrets map[string]string) iscsi.Authentication {
	a := iscsi.Authentication{Username: secrets[secretUsername]}
	switch {
	case secrets[secretPassword] == "":
		return iscsi.Authentication{}
	case secrets[secretMutual] == "":
		a.Type = iscsi.OneWayCHAP
	default:
		a.Type = iscsi.MutualCHAP
	}
	a.Secret = secret.New(secrets[secretPassword])
	return a
}

// detach disconnects the target. Its portal stays known, since other volumes may need it.
func (d iscsiDisk) detach(ctx context.Context, rec *record) error {
	return d.initiator.DisconnectTarget(ctx, rec.Source.Portal, rec.Source.IQN)
}
