// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fairshare

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
		begin := func(connection *Connection, number int) {
			turn, err := connection.Begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, number)
			mu.Unlock()
			<-release
			turn.End()
		}
		greedy := make([]*Connection, 100)
		for i := range greedy {
			greedy[i] = turns.Connect(1)
			go begin(greedy[i], i)
			synctest.Wait()
		}
		go begin(greedy[0], 0) // which has had its turn
		synctest.Wait()
		if len(order) != processors {
			t.Errorf("%d pieces of work of a process run, want %d", len(order), processors)
		}
		other := turns.Connect(2)
		go begin(other, 1000)
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
		for _, c := range append(greedy, other) {
			c.Close()
		}
		if len(turns.processes) != 0 || len(turns.running) != 0 {
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
			c := turns.Connect(process)
			for range 20 {
				go func() {
					turn, err := c.Begin(t.Context())
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
		c := turns.Connect("process")
		var waiting []*Turn
		begun := time.Now()
		for range 1000 {
			turn, err := c.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			waiting = append(waiting, turn)
		}
		if took, limit := time.Since(begun), 2*lookInterval*time.Duration(1+1000/ofProcess()); took > limit {
			t.Errorf("1,000 pieces of work that wait began in %v, want %v at most", took, limit)
		}
		c.Close() // before its work ends
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
			c := turns.Connect(1)
			var held []*Turn
			for range ofProcess() {
				turn, err := c.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, turn)
			}
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() {
				turn, err := c.Begin(ctx)
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
			c.Close()
			if len(turns.processes) != 0 || len(turns.running) != 0 || len(turns.waiting) != 0 {
				t.Errorf("in the end there are %+v", &turns)
			}
		})
	}
}

// As much work as there may be waiting passes at once. The connections of more of it are
// stopped, and pass with the looks, in the order in which they came; those of another process
// pass at once.
func TestPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		atOnce := crowd * runtime.GOMAXPROCS(0)
		var connections []*Connection
		var passed []int
		var held []*Turn
		var mu sync.Mutex
		begin := func(c *Connection) {
			turn, err := c.Begin(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			held = append(held, turn)
		}
		other := turns.Connect(2)
		other.Pass(nil)
		for i := range 3 * atOnce {
			c := turns.Connect(1)
			connections = append(connections, c)
			go func() {
				c.Pass(nil)
				mu.Lock()
				passed = append(passed, i)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		if len(passed) != atOnce {
			t.Fatalf("%d connections passed at once, want %d", len(passed), atOnce)
		}
		start := time.Now()
		other.Pass(nil)
		if time.Since(start) != 0 {
			t.Error("a connection of another process was stopped")
		}
		for _, c := range connections[:atOnce] {
			go begin(c)
		}
		synctest.Wait()
		// Of their work, some has its turn, and makes room for as many.
		time.Sleep(lookInterval)
		synctest.Wait()
		mu.Lock()
		if want := atOnce + len(held); len(passed) != want || slices.Max(passed) != want-1 {
			t.Errorf("after a look, %v had passed, want the first %d", passed, want)
		}
		mu.Unlock()
		// What the others brought wasn't work, so they make room.
		time.Sleep(time.Second)
		synctest.Wait()
		if len(passed) != len(connections) || len(held) != atOnce {
			t.Errorf("in the end %d connections had passed, and %d had a turn, want %d and %d",
				len(passed), len(held), len(connections), atOnce)
		}
		for _, turn := range held {
			turn.End()
		}
		for _, c := range append(connections, other) {
			c.Close()
		}
		if len(turns.processes) != 0 || len(turns.running) != 0 {
			t.Errorf("in the end there are %+v", &turns)
		}
	})
}

// A connection that is closed while it is stopped goes on.
func TestPassOfAClosedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		turns.Connect(2).Pass(nil)
		for range crowd * runtime.GOMAXPROCS(0) {
			turns.Connect(1).Pass(nil)
		}
		c, closed := turns.Connect(1), make(chan struct{})
		start := time.Now()
		go close(closed)
		c.Pass(closed)
		if time.Since(start) != 0 || len(c.process.stopped) != 0 {
			t.Errorf("it was stopped for %v, and %d are still", time.Since(start), len(c.process.stopped))
		}
	})
}

// Nobody is stopped for others when there are none, or none any more.
func TestPassAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		turns.Connect(2).Pass(nil)
		turns.Connect(1).Pass(nil)
		time.Sleep(alone)
		start := time.Now()
		for range 1000 {
			turns.Connect(1).Pass(nil)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("1,000 connections passed in %v", took)
		}
	})
}

// Connections that are stopped pass when there are no other processes any more, however much
// work still waits.
func TestPassOnceAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		turns.Connect(2).Pass(nil)
		c := turns.Connect(1)
		c.Pass(nil)
		time.Sleep(alone - lookInterval)
		var passed atomic.Int32
		for range 1000 {
			go func() {
				turns.Connect(1).Pass(nil)
				passed.Add(1)
			}()
		}
		synctest.Wait()
		if got := passed.Load(); got == 1000 {
			t.Error("no connection was stopped")
		}
		time.Sleep(2 * lookInterval)
		synctest.Wait()
		if got := passed.Load(); got != 1000 {
			t.Errorf("%d of 1,000 connections passed once their process was alone", got)
		}
	})
}
