// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// locks are locks by name: of volumes, of shares. The zero value has none locked.
type locks struct {
	mu   sync.Mutex // guards held, and is held for moments only
	held map[string]chan struct{}
}

// try locks name, or returns the error that CSI asks for if a call on the same
// volume is under way: the CO tries again.
func (l *locks) try(name string) (unlock func(), err error) {
	unlock, busy := l.lock(name)
	if busy != nil {
		return nil, status.Errorf(codes.Aborted, "another call on %s is under way", name)
	}
	return unlock, nil
}

// wait locks name, when nobody else has it any more.
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

// lock locks name, or returns a channel that is closed when it is worth another try.
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
