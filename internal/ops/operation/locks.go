// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Locks is a set of locks, one for each key in use: a disk, a server, a target. The zero value is
// ready.
type Locks struct {
	mu   sync.Mutex // guards all below, and what is in the locks
	held map[string]*lock
}

type lock struct {
	free   chan struct{} // has a value while the lock is free
	users  int           // the holder and the waiting callers
	holder *Tracker      // of the operation that holds the lock; may be nil
	since  time.Time     // when the holder took the lock
}

// Lock takes the lock of key and returns a function to release the lock. Call unlock once. Errors
// name the locked object by object, such as "disk 3". If ctx ends first, Lock returns ctx's error:
// the text names the operation that holds the lock, and the Windows call delaying the holder.
func (l *Locks) Lock(ctx context.Context, key, object string) (unlock func(), err error) {
	k := l.enter(key)
	select {
	case <-k.free:
	default:
		select {
		case <-k.free:
		case <-ctx.Done():
			return nil, l.giveUp(ctx, key, k, object)
		}
	}
	return l.hold(ctx, key, k), nil
}

// tryLock is Lock without waiting.
func (l *Locks) tryLock(ctx context.Context, key string) (unlock func(), isFree bool) {
	k := l.enter(key)
	select {
	case <-k.free:
		return l.hold(ctx, key, k), true
	default:
		l.leave(key, k)
		return nil, false
	}
}

// hold records the holder of a lock, and returns a function to release the lock.
func (l *Locks) hold(ctx context.Context, key string, k *lock) (unlock func()) {
	l.setHolder(k, TrackerOf(ctx))
	return func() {
		k.free <- struct{}{}
		l.leave(key, k)
	}
}

// giveUp ends the wait of a caller whose context has ended, and returns the caller's error.
func (l *Locks) giveUp(ctx context.Context, key string, k *lock, object string) error {
	l.mu.Lock()
	holder, since := k.holder, k.since
	l.mu.Unlock()
	l.leave(key, k)
	name := "another call"
	if holder != nil {
		name = holder.operation
	}
	return fmt.Errorf("%s is held by %s since %s: %w", object, name, since.UTC().Format(time.RFC3339),
		holder.late(ctx, ctx.Err()))
}

func (l *Locks) setHolder(k *lock, holder *Tracker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.holder, k.since = holder, time.Now()
}

func (l *Locks) enter(key string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(map[string]*lock)
	}
	k := l.held[key]
	if k == nil {
		k = &lock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.held[key] = k
	}
	k.users++
	return k
}

func (l *Locks) leave(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
