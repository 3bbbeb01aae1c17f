// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Who comes after a flight has ended doesn't get its answer, even if it isn't forgotten
// yet: something may have changed since.
func TestFlightThatHasEnded(t *testing.T) {
	old := &work[string]{done: make(chan struct{}), value: "before"}
	close(old.done)
	flights := Flights[int, string]{flights: map[int]*work[string]{1: old}}
	got, err := flights.Do(t.Context(), 1, time.Minute, func(context.Context) (string, error) { return "now", nil })
	if got != "now" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// The end of a flight that was forgotten leaves the one after it to be shared.
func TestForgottenFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights Flights[int, int]
		begun, end := 0, make(chan struct{})
		join := func() {
			_, _ = flights.Do(t.Context(), 1, time.Hour, func(context.Context) (int, error) {
				begun++
				<-end
				return 0, nil
			})
		}
		go join()
		synctest.Wait()
		flights.Forget(func(int) bool { return true })
		go join()
		synctest.Wait()
		if begun != 2 {
			t.Fatal("the second caller has joined the flight that was forgotten")
		}
		end <- struct{}{}
		synctest.Wait()
		go join() // of the second, if that is there
		synctest.Wait()
		if begun != 2 {
			t.Errorf("%d flights have begun, want 2", begun)
		}
		close(end)
		synctest.Wait()
		if len(flights.flights) != 0 {
			t.Errorf("%d flights are remembered", len(flights.flights))
		}
	})
}
