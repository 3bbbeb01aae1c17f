// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// ISCSIOperations are the operations on the iSCSI initiator of the node.
//
// For a target with a session, ConnectTarget, DisconnectTarget and GetTargetDisks take only
// a portal of that target: one that the session leads to, or at which the target was found.
// Another one is csiproxy.ErrFailedPrecondition, and nothing is changed.
type ISCSIOperations interface {
	// AddTargetPortal makes a portal known to the initiator, for good, and discovers the
	// targets there. A known portal is asked for its targets anew, and is a success even if it
	// can't be reached. A new one that can't be reached is csiproxy.ErrUnavailable.
	AddTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) error
	// DiscoverTargetPortal asks a portal for its targets and returns their names, sorted.
	// A portal that AddTargetPortal hasn't made known is csiproxy.ErrNotFound, one that
	// can't be reached csiproxy.ErrUnavailable.
	DiscoverTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) ([]csiproxy.IQN, error)
	// ListTargetPortals returns the portals that the initiator knows.
	ListTargetPortals(ctx context.Context) ([]csiproxy.ISCSIPortal, error)
	// RemoveTargetPortal makes the initiator forget a portal. Sessions with targets found
	// there go on. An unknown portal is csiproxy.ErrNotFound.
	RemoveTargetPortal(ctx context.Context, p csiproxy.ISCSIPortal) error
	// ConnectTarget logs in to a target of a known portal, and waits for its disks, as
	// long as these usually take. A target with a session already is a success. The
	// session ends with a restart of the node.
	//
	// A target that isn't known is csiproxy.ErrNotFound; credentials that it refuses, or
	// its own that the node doesn't accept, csiproxy.ErrUnauthenticated; one that can't be
	// reached csiproxy.ErrUnavailable.
	ConnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN, a csiproxy.ISCSIAuthentication) error
	// DisconnectTarget ends the sessions with a target, and removes logins through the
	// portal that would be repeated when the node starts. A target without a session is a
	// success. Disks that are in use for some seconds on end are csiproxy.ErrUnavailable:
	// their volumes have to be unmounted first.
	DisconnectTarget(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) error
	// GetTargetDisks returns the numbers of the disks of a target, sorted; none if there is
	// no session. Disks that are about to arrive are waited for, as long as these usually
	// take. Disks that multipath I/O has taken over aren't among them: Windows doesn't list
	// these with their sessions.
	GetTargetDisks(ctx context.Context, p csiproxy.ISCSIPortal, iqn csiproxy.IQN) ([]csiproxy.DiskNumber, error)
	// SetMutualCHAPSecret sets the secret with which targets prove themselves to this
	// node, 12 to 16 bytes, for all logins with MutualCHAP from now on.
	SetMutualCHAPSecret(ctx context.Context, s csiproxy.Secret) error
}
