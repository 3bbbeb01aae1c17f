// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that takes no answers loses its connection, whatever else it sends.
func TestUntakenAnswersAreLate(t *testing.T) {
	for _, method := range []string{sayMethod, shoutMethod} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, func(context.Context, string) (string, error) { return strings.Repeat("x", minTaken), nil })
			client := r.dial()
			late := r.slow()
			late.call(1, method)
			late.flush()
			time.Sleep(writeTimeout / 2)
			late.must(late.WritePing(false, [8]byte{}))
			late.flush()
			if _, err := say(t.Context(), client, "hello"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(writeTimeout/2 - 1)
			r.wantConnections(2)
			time.Sleep(time.Nanosecond)
			r.wantConnections(1)
			if got := len(r.logged("takes no answers")); got != 1 {
				t.Errorf("%s: %d log lines, want 1", method, got)
			}
			if _, err := say(t.Context(), client, "hello"); err != nil {
				t.Errorf("%s: a call of another client gives %v", method, err)
			}
			client.Close()
			r.end()
		})
	}
}

// A client that takes its answer slowly keeps its connection, and may pause between answers.
func TestAnswersAreTakenSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 5
		r := start(t, func(context.Context, string) (string, error) { return strings.Repeat("x", pieces*minTaken), nil })
		client := r.slow()
		for call := range uint32(2) {
			stream := 2*call + 1
			client.call(stream, sayMethod)
			for range pieces + 1 { // the answer has a header
				client.flush()
				time.Sleep(writeTimeout - 1)
				client.must(client.WriteWindowUpdate(stream, minTaken))
			}
			client.flush()
			r.wantConnections(1)
			if got := r.server.connections.heldBytes; got != 0 {
				t.Errorf("after the answer, %d bytes count", got)
			}
			time.Sleep(2 * writeTimeout)
			r.wantConnections(1)
		}
		client.conn.Close()
		r.end()
	})
}
