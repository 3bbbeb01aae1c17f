// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
)

// DriverLocks is [Locks] on a node whose drivers have their own operations. The object of a key may
// change hands: another driver's disk may get the number of a disk that has left. Each driver
// therefore has a lock for each key, and the node, as "", has one too. A call takes the locks of
// all possible owners of its object, and excludes other calls with any of these locks. The zero
// value is for a node without drivers.
type DriverLocks struct {
	drivers []string
	locks   Locks
}

// NewDriverLocks returns the locks of a node with drivers.
func NewDriverLocks(drivers []string) *DriverLocks {
	return &DriverLocks{drivers: drivers}
}

// Owners returns the owners excluded by a call of a driver, or of the node if driver is "". owner
// is the owner of the call's object, and counts only if isKnown is true. The node's calls exclude
// each other, and the calls of the owner; if the owner is unknown, the calls of all drivers. A
// driver's calls exclude each other and, if the driver only presumes to own the object, the node's
// calls.
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

// Lock is [Locks.Lock] for a call that excludes the calls of all owners. While waiting for one
// lock, Lock holds none: otherwise one driver would wait for another by way of the node.
func (l *DriverLocks) Lock(ctx context.Context, owners []string, key, object string) (unlock func(), _ error) {
	awaited := owners[0]
	if awaited != "" {
		ctx = ForDriver(ctx) // the node's call with the lock may be busy with another driver's object
	}
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
