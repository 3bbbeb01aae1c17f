// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
)

// DriverLocks is [Locks] on a node whose drivers have operations of their own. What a key names may change hands: another
// driver's disk may get the number of a disk that has left. So each driver has a lock of each key, and the node, as "", has one,
// too. A call takes the locks of all owners that its object may have. It excludes the calls that take one of these. The zero value is
// that of a node without drivers.
type DriverLocks struct {
	drivers []string
	locks   Locks
}

// NewDriverLocks returns the locks of a node with drivers.
func NewDriverLocks(drivers []string) *DriverLocks {
	return &DriverLocks{drivers: drivers}
}

// Owners returns the owners that a call of a driver, or of the node if driver is "", excludes. owner is that of the call's object;
// it counts only if isKnown is true. The node's calls exclude each other, and those of the owner or, if that isn't known, of all drivers.
// A driver's calls exclude the driver's other ones and, if the driver only presumes to own the object, the node's.
func (l *DriverLocks) Owners(driver, owner string, isKnown bool) []string {
	if isKnown && owner == driver {
		return []string{driver}
	}
	if isKnown {
		return []string{driver, owner}
	}
	if driver != "" {
		return []string{driver, ""}
	}
	return append([]string{""}, l.drivers...)
}

// Lock is [Locks.Lock] for a call that excludes the calls of all owners. While it waits for one lock it holds none: else one driver
// would wait for another by way of the node.
func (l *DriverLocks) Lock(ctx context.Context, owners []string, key, object string) (unlock func(), _ error) {
	awaited := owners[0]
	for {
		unlockAwaited, err := l.locks.Lock(ctx, awaited+"\x00"+key, object)
		if err != nil {
			return nil, err
		}
		unlocks := []func(){unlockAwaited}
		unlock = func() {
			for _, unlockOne := range unlocks {
				unlockOne()
			}
		}
		busy := slices.IndexFunc(owners, func(owner string) bool {
			if owner == awaited {
				return false
			}
			unlockOne, isFree := l.locks.tryLock(ctx, owner+"\x00"+key)
			if isFree {
				unlocks = append(unlocks, unlockOne)
			}
			return !isFree
		})
		if busy < 0 {
			return unlock, nil
		}
		unlock()
		awaited = owners[busy]
	}
}
