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

// TargetLocks serialises the calls about each target. Calls of two owners, which are drivers or the node, don't exclude each other,
// since each has the sessions through its own portals only.
type TargetLocks struct {
	locks *operation.DriverLocks
	count int // of the owners
}

// NewTargetLocks returns the locks of a node whose drivers have operations of their own.
func NewTargetLocks(drivers []string) *TargetLocks {
	return &TargetLocks{operation.NewDriverLocks(drivers), len(drivers) + 1}
}

// Lock locks a target for a call that excludes the calls of owners. Its errors are those of [operation.Locks.Lock].
func (l *TargetLocks) Lock(ctx context.Context, owners []string, iqn csiproxy.IQN) (unlock func(), _ error) {
	return l.locks.Lock(ctx, owners, strings.ToLower(string(iqn)), targetObject(iqn))
}

// Owners returns the owners whose calls about a target exclude those of the initiator at a portal: a driver, or "" for the node. The
// node's calls at a portal are about sessions through portals of the same owner. If that isn't known, they are about all sessions.
func (i *Initiator) Owners(p csiproxy.ISCSIPortal) []string {
	portal, err := win.ParsePortal(p)
	owner, isKnown := i.options.OwnerOf(portal)
	return i.options.Targets.locks.Owners(i.options.Driver, owner, err == nil && isKnown)
}

// place is where a call is made: at a portal, and about the sessions of owners, whose calls it excludes.
type place struct {
	portal win.ISCSIPortal
	owners []string
}

// areAll reports whether calls of all owners are excluded.
func (i *Initiator) areAll(owners []string) bool { return len(owners) == i.options.Targets.count }

// isOf reports whether a session is that of owners. One that has lost its portal may be.
func (i *Initiator) isOf(s win.ISCSISession, owners []string) bool {
	return i.areAll(owners) || !slices.ContainsFunc(s.Portals, func(portal win.ISCSIPortal) bool {
		owner, isKnown := i.options.OwnerOf(portal)
		return !isKnown || !slices.Contains(owners, owner)
	})
}
