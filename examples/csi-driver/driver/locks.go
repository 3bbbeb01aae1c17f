// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// locks are locks by name, such as that of a volume or a share. In the zero value, none
// is locked.
type locks struct {
	mu   sync.Mutex // guards held; held only briefly
	held map[string]chan struct{}
}

// try locks name. If it is locked, a call on the same volume is under way, and the error
// is the one that CSI requires for that; the CO then tries again.
func (l *locks) try(name string) (unlock func(), err error) {
	unlock, busy := l.lock(name)
	if busy != nil {
		return nil, status.Errorf(codes.Aborted, "another call on %s is under way", name)
	}
	return unlock, nil
}

// wait waits until name isn't locked, and locks it.
func (l *locks) wait(ctx context.Context, name string) (unlock func(), err error) {
	for {
		unlock, busy := l.lock(name)
		if busy == nil {
			return unlock, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lock locks name. If it is locked already, lock returns a channel that is closed when it
// is unlocked.
func (l *locks) lock(name string) (unlock func(), busy chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if busy, ok := l.held[name]; ok {
		return nil, busy
	}
	if l.held == nil {
		l.held = make(map[string]chan struct{})
	}
	free := make(chan struct{})
	l.held[name] = free
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
		close(free)
	}, nil
}
