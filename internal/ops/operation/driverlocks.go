// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import "context"

// DriverLocks is [Locks] on a node whose drivers have operations of their own. What a key names may change hands: another
// driver's disk may get the number of a disk that has left. So each driver has locks of its own, and a call of one waits for no
// other driver. The node's own calls exclude those of all drivers, and are excluded by them. The zero value is that of a node
// without drivers.
type DriverLocks[K comparable] struct {
	drivers []string
	locks   Locks[driverKey[K]]
}

// driverKey is a key of a driver, or of the node if driver is "".
type driverKey[K comparable] struct {
	driver string
	key    K
}

// NewDriverLocks returns the locks of a node with drivers.
func NewDriverLocks[K comparable](drivers []string) *DriverLocks[K] {
	return &DriverLocks[K]{drivers: drivers}
}

// Lock is [Locks.Lock] for a driver, or for the node if driver is "".
//
// The node's call needs the locks of all drivers. It holds none while it waits for one: else one driver would wait for another
// by way of the node.
func (l *DriverLocks[K]) Lock(ctx context.Context, driver string, key K, object string) (unlock func(), _ error) {
	if driver != "" {
		return l.locks.Lock(ctx, driverKey[K]{driver, key}, object)
	}
	awaited := ""
	for {
		unlockAwaited, err := l.locks.Lock(ctx, driverKey[K]{awaited, key}, object)
		if err != nil {
			return nil, err
		}
		unlocks, busy := []func(){unlockAwaited}, false
		for _, owner := range append([]string{""}, l.drivers...) {
			if owner == awaited {
				continue
			}
			unlockOne, isFree := l.locks.tryLock(ctx, driverKey[K]{owner, key})
			if !isFree {
				awaited, busy = owner, true
				break
			}
			unlocks = append(unlocks, unlockOne)
		}
		unlock = func() {
			for _, unlockOne := range unlocks {
				unlockOne()
			}
		}
		if !busy {
			return unlock, nil
		}
		unlock()
	}
}
