// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// ISCSIOperations are the operations on the iSCSI initiator of the node.
//
// For a target with a session, ConnectTarget, DisconnectTarget and GetTargetDisks accept only a
// portal of the target: the portal of the session, or a portal at which the target was found. For
// any other portal the error is csiproxy.ErrFailedPrecondition, and the node stays as it is.
type ISCSIOperations interface {
	// AddTargetPortal makes a portal permanently known to the initiator, and discovers the
	// portal's targets. For a known portal, it discovers the targets anew, and succeeds even if
	// the portal is unreachable. A new, unreachable portal is csiproxy.ErrUnavailable.
	AddTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) error
	// DiscoverTargetPortal asks a portal for its targets and returns their names, sorted. The
	// portal must be known by AddTargetPortal; otherwise the error is csiproxy.ErrNotFound. An
	// unreachable portal is csiproxy.ErrUnavailable.
	DiscoverTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) ([]csiproxy.IQN, error)
	// ListTargetPortals returns the portals known to the initiator.
	ListTargetPortals(ctx context.Context) ([]csiproxy.ISCSIPortal, error)
	// RemoveTargetPortal makes the initiator forget a portal. Sessions with the portal's targets
	// go on. An unknown portal is csiproxy.ErrNotFound.
	RemoveTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) error
	// ConnectTarget logs in to a target of a known portal, and waits for the target's disks for
	// their usual time. If the target has a session, ConnectTarget succeeds. The session ends
	// with a restart of the node.
	//
	// An unknown target is csiproxy.ErrNotFound, and an unreachable target
	// csiproxy.ErrUnavailable. If the target refuses the credentials, or the node refuses the
	// target's, the error is csiproxy.ErrUnauthenticated.
	ConnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN, a csiproxy.ISCSIAuthentication) error
	// DisconnectTarget ends the sessions with a target, and removes the logins through the
	// portal that Windows repeats when the node starts. A target without a session is a
	// success. If a disk of the target stays in use for some seconds, the error is
	// csiproxy.ErrUnavailable: unmount the disk's volumes first.
	DisconnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) error
	// GetTargetDisks returns the numbers of a target's disks, sorted; none without a session. It
	// waits for arriving disks for their usual time. Disks under multipath I/O are missing:
	// Windows doesn't list them with their sessions.
	GetTargetDisks(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) ([]csiproxy.DiskNumber, error)
	// SetMutualCHAPSecret sets the secret by which targets authenticate themselves to the node,
	// 12 to 16 bytes, for all later logins with MutualCHAP.
	SetMutualCHAPSecret(ctx context.Context, s csiproxy.Secret) error
}
