// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
)

// TargetLocks serialises the calls about each target. A driver has sessions through its own portals only, so a call
// of a driver waits for no other driver that names the same target. The node's own calls see all sessions, and exclude
// the calls of all drivers.
type TargetLocks struct {
	locks *operation.DriverLocks[string]
}

// NewTargetLocks returns the locks of a node whose drivers have operations of their own.
func NewTargetLocks(drivers []string) *TargetLocks {
	return &TargetLocks{operation.NewDriverLocks[string](drivers)}
}

// Lock locks a target for a driver, or for the node if driver is "". Its errors are those of [operation.Locks.Lock].
func (l *TargetLocks) Lock(ctx context.Context, driver string, iqn csiproxy.IQN) (unlock func(), _ error) {
	return l.locks.Lock(ctx, l.locks.Owners(driver, driver, driver != ""), strings.ToLower(string(iqn)), targetObject(iqn))
}
