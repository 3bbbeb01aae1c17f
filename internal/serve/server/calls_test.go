// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A call that is too many is refused at once, and told what to do.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting()
		r := startWith(t, Config{MaxCalls: 3}, w.say)
		for range 3 {
			client := r.dial() // of whichever client they are
			defer client.Close()
			go say(t.Context(), client, "")
		}
		time.Sleep(time.Second)
		client := r.dial()
		defer client.Close()
		for range 3 {
			_, err := say(t.Context(), client, "at once")
			wantCode(t, err, codes.ResourceExhausted)
			if got, want := status.Convert(err).Message(), "Say: 3 calls are under way, and -max-calls is 3: try again when "+
				"some of them have ended; if none ends, the metric csi_proxy_windows_hanging_call_start_time_seconds names the "+
				"calls that Windows doesn't answer"; got != want {
				t.Errorf("the error says %q, want %q", got, want)
			}
		}
		if got := len(r.logged("refusing calls")); got != 1 {
			t.Errorf("%d log lines about 3 refused calls, want 1", got)
		}
		want := Calls{Running: 3, Limit: 3, Oldest: time.Second, Refused: map[string]int{RefusedCalls: 3, RefusedStreams: 0}}
		if diff := cmp.Diff(want, r.server.Calls()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		close(w.release)
		synctest.Wait()
		if _, err := say(t.Context(), client, "at once"); err != nil {
			t.Errorf("when the others have ended, a call gives %v", err)
		}
		if calls := r.server.Calls(); calls.Running != 0 || calls.Oldest != 0 {
			t.Errorf("in the end, the server counts %+v", calls)
		}
		r.end()
	})
}

// The requests of all calls under way are bounded together.
func TestRequestsOfCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length = 100 << 10
		w := newWaiting()
		r := start(t, w.say)
		client := r.dial()
		defer client.Close()
		for range maxRequestsBytes / length {
			go say(t.Context(), client, strings.Repeat("x", length-8)) // 4 bytes are added
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := say(ctx, client, strings.Repeat("x", length))
		wantCode(t, err, codes.ResourceExhausted)
		if _, err := say(t.Context(), client, "at once"); err != nil {
			t.Errorf("a small request gives %v", err)
		}
		if calls := r.server.Calls(); calls.Running != maxRequestsBytes/length || calls.Refused[RefusedCalls] != 1 {
			t.Errorf("the server counts %+v", calls)
		}
		close(w.release)
		synctest.Wait()
		if _, err := say(t.Context(), client, strings.Repeat("x", length)); err != nil {
			t.Errorf("when the others have ended, a large request gives %v", err)
		}
		r.end()
	})
}

// The calls of one connection, all of which hang, leave room for others.
func TestHungCallsOfOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting()
		r := start(t, w.say)
		client, other := r.dial(), r.dial()
		defer client.Close()
		defer other.Close()
		for range 2 * DefaultMaxCalls {
			go say(t.Context(), client, "")
		}
		synctest.Wait()
		if got := r.server.Calls().Running; got != maxCallsOfConnection {
			t.Errorf("%d calls of a connection are under way, want %d", got, maxCallsOfConnection)
		}
		if _, err := say(t.Context(), other, "at once"); err != nil {
			t.Errorf("a call of another client gives %v", err)
		}
		close(w.release)
		synctest.Wait()
		r.end()
	})
}

// What a real node needs: five drivers that make a call for each of 110 volumes at one time.
func TestCallsOfARealNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting()
		r := start(t, w.say)
		for range 5 {
			client := r.dial()
			defer client.Close()
			for range 110 {
				go say(t.Context(), client, "")
			}
		}
		synctest.Wait()
		if got := r.server.Calls(); got.Running != 550 || got.Refused[RefusedCalls] != 0 {
			t.Errorf("of 550 calls: %+v", got)
		}
		close(w.release)
		synctest.Wait()
		r.end()
	})
}
