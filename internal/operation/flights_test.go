// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"testing"
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
