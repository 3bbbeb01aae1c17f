// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"sync"
)

// Each calls f for 0 to n-1, with at most atOnce calls at one time. When all have ended, it
// returns their errors, joined. If a call panics, Each panics with the same value: a panic that
// isn't recovered on its own goroutine ends the process.
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
