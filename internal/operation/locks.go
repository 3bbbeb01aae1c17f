// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
)

// maxLockWaiters bounds how many wait for one lock.
const maxLockWaiters = 64

// Locks is a set of locks, one for each key in use: a disk, a server, a target. The zero
// value is ready.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*lock
}

type lock struct {
	token chan struct{} // has a value while the lock is free
	users int           // the holder and those who wait; guarded by Locks.mu

	mu     sync.Mutex
	holder *wincalls.Tracker // of the operation that has the lock
}

// Lock takes the lock of key. It returns the function that releases it, to be called
// once. It returns ctx's error if ctx ends first. It returns csiproxy.ErrUnavailable if
// the holder waits for a call that Windows doesn't answer, or if too many wait already.
func (l *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	k, err := l.enter(key)
	if err != nil {
		return nil, err
	}
	if err := k.take(ctx); err != nil {
		l.leave(key, k)
		return nil, err
	}
	return func() {
		k.setHolder(nil)
		k.token <- struct{}{}
		l.leave(key, k)
	}, nil
}

func (k *lock) take(ctx context.Context) error {
	err := awaitWork(ctx, k.token, k.tracker)
	if err == nil {
		k.setHolder(wincalls.TrackerOf(ctx))
	}
	return err
}

func (k *lock) tracker() *wincalls.Tracker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holder
}

func (k *lock) setHolder(t *wincalls.Tracker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holder = t
}

func (l *Locks[K]) enter(key K) (*lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[K]*lock)
	}
	k := l.held[key]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		k.token <- struct{}{}
		l.held[key] = k
	}
	if k.users > maxLockWaiters {
		return nil, csiproxy.Errorf(csiproxy.ErrUnavailable,
			"%d other calls already use or wait for this object; try again later", k.users)
	}
	k.users++
	return k, nil
}

func (l *Locks[K]) leave(key K, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
