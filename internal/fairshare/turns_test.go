// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fairshare

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A process that has hundreds of pieces of work, on as many connections, lets one of another
// process run at once, and those of its own by turns of their connections.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processors := ofProcess()
		var turns Turns
		var mu sync.Mutex
		var order []int // of the connections
		release := make(chan struct{})
		begin := func(process, connection int) {
			turn, err := turns.Begin(t.Context(), process, connection)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, connection)
			mu.Unlock()
			<-release
			turn.End()
		}
		for i := range 100 {
			go begin(1, i)
			synctest.Wait()
		}
		go begin(1, 0) // of a connection that has had its turn
		synctest.Wait()
		if len(order) != processors {
			t.Errorf("%d pieces of work of a process run, want %d", len(order), processors)
		}
		go begin(2, 1000)
		synctest.Wait()
		if len(order) != processors+1 || order[processors] != 1000 {
			t.Errorf("beside those of a greedy process, %v run", order)
		}
		for range 102 {
			release <- struct{}{}
			synctest.Wait()
		}
		if last := order[len(order)-1]; len(order) != 102 || last != 0 ||
			!slices.IsSorted(slices.DeleteFunc(slices.Clone(order[:101]), func(c int) bool { return c == 1000 })) {
			t.Errorf("the turns of connections came as %v", order)
		}
		if len(turns.processes) != 0 || len(turns.connections) != 0 || len(turns.running) != 0 {
			t.Errorf("in the end there are %+v", &turns)
		}
	})
}

// Processes take turns, however much work each has waiting.
func TestTurnsOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var mu sync.Mutex
		var order []int
		release := make(chan struct{})
		for process := range 8 {
			for range 20 {
				go func() {
					turn, err := turns.Begin(t.Context(), process, process)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, process)
					mu.Unlock()
					<-release
					turn.End()
				}()
				synctest.Wait()
			}
		}
		atOnce := len(order)
		if atOnce != 2*ofProcess() {
			t.Errorf("%d pieces of work run at one time", atOnce)
		}
		for range 32 {
			release <- struct{}{}
			synctest.Wait()
		}
		counts := make(map[int]int)
		for _, process := range order {
			counts[process]++
		}
		for process := range 8 {
			if counts[process] < len(order)/8-2 {
				t.Errorf("after %d turns, process %d had %d", len(order), process, counts[process])
			}
		}
		for range 8*20 - 32 {
			release <- struct{}{}
		}
		synctest.Wait()
	})
}

// Work that waits for something keeps no turn from other work of its process for long.
func TestWorkThatWaitsHasNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var waiting []*Turn
		begun := time.Now()
		for range 1000 {
			turn, err := turns.Begin(t.Context(), "process", "connection")
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, turn)
		}
		if took, limit := time.Since(begun), 2*lookInterval*time.Duration(1+1000/ofProcess()); took > limit {
			t.Errorf("1,000 pieces of work that wait began in %v, want %v at most", took, limit)
		}
		for _, turn := range waiting {
			turn.End()
		}
		if len(turns.processes) != 0 || len(turns.running) != 0 {
			t.Errorf("in the end there are %+v", &turns)
		}
	})
}

// Who gives up waiting leaves nothing behind, also when the turn comes just then.
func TestGivingUpATurn(t *testing.T) {
	for range 32 {
		synctest.Test(t, func(t *testing.T) {
			var turns Turns
			var held []*Turn
			for range ofProcess() {
				turn, err := turns.Begin(t.Context(), 1, 1)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, turn)
			}
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() {
				turn, err := turns.Begin(ctx, 1, 1)
				if err == nil {
					turn.End()
				}
				result <- err
			}()
			for turns.mu.Lock(); len(turns.waiting) == 0; turns.mu.Lock() {
				turns.mu.Unlock()
				runtime.Gosched()
			}
			turns.mu.Unlock()
			cancel()
			held[0].End()
			if err := <-result; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			for _, turn := range held[1:] {
				turn.End()
			}
			if len(turns.processes) != 0 || len(turns.connections) != 0 || len(turns.running) != 0 || len(turns.waiting) != 0 {
				t.Errorf("in the end there are %+v", &turns)
			}
		})
	}
}
