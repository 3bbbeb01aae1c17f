// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Each calls f for 0 to n-1, with at most atOnce calls at one time, and returns their errors
// when all have ended. A panic of f is the caller's: on another goroutine it would end the
// process.
func Each(n, atOnce int, f func(i int) error) error {
	errs := make([]error, n)
	panics := make(chan any, n)
	room := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
				<-room
			}()
			errs[i] = f(i)
		})
	}
	wg.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
	return errors.Join(errs...)
}

// InTurn begins n pieces of work, each when the one before has ended, or after overlap. begin
// returns how to run one, which may be nil, and what is to be known of it. InTurn returns that of
// all, in their order, once the last one has ended or has taken overlap. One goroutine runs as many
// as end in time: to start one for each may take as long as the work. If ctx ends, nothing is
// returned.
func InTurn[T any](ctx context.Context, n int, overlap time.Duration, begin func(i int) (run func(), begun T)) []T {
	var mu sync.Mutex // guards the next two
	var begun []T
	var last time.Time // when the last one was begun
	all := make(chan struct{})
	allBegun := sync.OnceFunc(func() { close(all) })
	work := func() {
		for ctx.Err() == nil {
			mu.Lock()
			if len(begun) == n {
				mu.Unlock()
				allBegun()
				return
			}
			run, one := begin(len(begun))
			begun, last = append(begun, one), time.Now()
			mu.Unlock()
			if run != nil {
				run()
			}
		}
	}
	go work()
	late := time.NewTimer(overlap)
	defer late.Stop()
	for {
		select {
		case <-all:
			return begun
		case <-ctx.Done():
			return nil
		case <-late.C:
			mu.Lock()
			left := overlap - time.Since(last)
			mu.Unlock()
			if left <= 0 {
				go work()
				left = overlap
			}
			late.Reset(left)
		}
	}
}
