// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
)

// TargetLocks serialises the calls about each target. A driver has sessions through its own portals only, so a call
// of a driver waits for no other driver that names the same target. The node's own calls see all sessions, and exclude
// the calls of all drivers. The zero value is that of a node without drivers.
type TargetLocks struct {
	drivers []string
	locks   operation.Locks[targetOfDriver]
}

// targetOfDriver is a target, by its name in lower case, as one driver, or the node if that is "", sees it.
type targetOfDriver struct{ driver, target string }

// NewTargetLocks returns the locks of a node whose drivers have operations of their own.
func NewTargetLocks(drivers []string) *TargetLocks { return &TargetLocks{drivers: drivers} }

// Lock locks a target for a driver, or for the node if driver is "". Its errors are those of [operation.Locks.Lock].
func (l *TargetLocks) Lock(ctx context.Context, driver string, iqn csiproxy.IQN) (unlock func(), _ error) {
	owners := []string{driver}
	if driver == "" {
		owners = append(owners, l.drivers...)
	}
	var unlocks []func()
	unlock = func() {
		for _, unlockOne := range slices.Backward(unlocks) {
			unlockOne()
		}
	}
	for _, owner := range owners {
		unlockOne, err := l.locks.Lock(ctx, targetOfDriver{owner, strings.ToLower(string(iqn))}, targetObject(iqn))
		if err != nil {
			unlock()
			return nil, err
		}
		unlocks = append(unlocks, unlockOne)
	}
	return unlock, nil
}
