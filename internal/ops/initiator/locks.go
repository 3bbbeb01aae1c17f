// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// TargetLocks serialise the calls about each target. An owner is a driver or the node. Calls of two
// owners do not exclude each other: each owner has the sessions through its own portals only.
type TargetLocks struct {
	locks *operation.DriverLocks
	count int // of the owners
}

// NewTargetLocks returns the locks of a node whose drivers have their own operations.
func NewTargetLocks(drivers []string) *TargetLocks {
	return &TargetLocks{operation.NewDriverLocks(drivers), len(drivers) + 1}
}

// Lock locks a target for a call that excludes the calls of owners. The errors are the same as for
// [operation.Locks.Lock].
func (l *TargetLocks) Lock(ctx context.Context, owners []string, iqn csiproxy.IQN) (unlock func(), _ error) {
	return l.locks.Lock(ctx, owners, strings.ToLower(string(iqn)), targetObject(iqn))
}

// Owners returns the owners whose calls about a target exclude the initiator's calls at a portal: a
// driver, or "" for the node. The node's calls at a portal are about sessions through portals of
// the same owner. If the owner is unknown, they are about all sessions.
func (i *Initiator) Owners(p csiproxy.ISCSIPortal) []string {
	portal, err := win.ParsePortal(p)
	owner, isKnown := i.options.OwnerOf(portal)
	return i.options.Targets.locks.Owners(i.options.Driver, owner, err == nil && isKnown)
}

// place is the portal of a call, and the owners of the sessions. The call excludes other calls of
// the owners.
type place struct {
	portal win.ISCSIPortal
	owners []string
}

// areAll reports whether owners contains all owners.
func (i *Initiator) areAll(owners []string) bool { return len(owners) == i.options.Targets.count }

// isOf reports whether a session belongs to owners. A session that has lost its portal counts as
// theirs.
func (i *Initiator) isOf(s win.ISCSISession, owners []string) bool {
	return i.areAll(owners) || !slices.ContainsFunc(s.Portals, func(portal win.ISCSIPortal) bool {
		owner, isKnown := i.options.OwnerOf(portal)
		return !isKnown || !slices.Contains(owners, owner)
	})
}
