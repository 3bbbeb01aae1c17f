// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keylock gives one mutual exclusion lock per key, waited for under a
// context.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of locks, one for each key in use. The zero value is ready.
type Locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*entry
}

type entry struct {
	slot  chan struct{} // holds a token while the lock is taken
	users int           // holders and waiters; guarded by Locks.mu
}

// Lock takes the lock of key. It returns the function that releases it, to be
// called once, or ctx's error if ctx ends first.
func (l *Locks[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[K]*entry)
	}
	e := l.held[key]
	if e == nil {
		e = &entry{slot: make(chan struct{}, 1)}
		l.held[key] = e
	}
	e.users++
	l.mu.Unlock()

	select {
	case e.slot <- struct{}{}:
		return func() { <-e.slot; l.leave(key, e) }, nil
	case <-ctx.Done():
		l.leave(key, e)
		return nil, ctx.Err()
	}
}

func (l *Locks[K]) leave(key K, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(l.held, key)
	}
}
