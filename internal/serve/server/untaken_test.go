// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
			if got := r.server.connections.held.answers; got != 0 {
				t.Errorf("after the answer, %d bytes count", got)
			}
			time.Sleep(2 * writeTimeout)
			r.wantConnections(1)
		}
		client.conn.Close()
		r.end()
	})
}

// Clients that take their answers keep their connections, and get more answers at a time than there is room for.
func TestAnswersWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, clients, fitting = 100 << 10, 8, 2
		var making sync.WaitGroup
		making.Add(clients)
		r := start(t, func(context.Context, string) (string, error) {
			making.Done()
			making.Wait()
			return strings.Repeat("x", size), nil
		})
		r.server.connections.maxHeldBytes = 3 * fitting * (size + 2*untakenBytes) / 2
		var ended sync.WaitGroup
		for range clients {
			client := r.dial()
			defer client.Close()
			ended.Go(func() {
				if answer, err := say(t.Context(), client, "hello"); err != nil || len(answer) != size {
					t.Errorf("an answer of %d bytes, %v", len(answer), err)
				}
			})
		}
		ended.Wait()
		r.wantConnections(clients)
		if got := r.server.connections.held.answers; got != 0 {
			t.Errorf("after the answers, %d bytes count", got)
		}
		r.end()
	})
}

// While clients take no answers, a call that finds no room fails shortly before its deadline, and no other call.
func TestAnswersWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100 << 10
		r := start(t, func(_ context.Context, said string) (string, error) { return strings.Repeat("x", size*len(said)), nil })
		r.server.connections.maxHeldBytes = 6 * (size + untakenBytes + 10)
		client, deaf := r.dial(), []*slow{r.slow(), r.slow()}
		for _, s := range deaf { // each has two answers, of four that fit
			for i := range uint32(3) {
				s.begin(2*i+1, sayMethod, 3)
				s.must(s.WriteData(2*i+1, true, []byte("\x0a\x01x")))
			}
			s.flush()
		}
		if got, want := r.server.connections.held.answers, int64(4*size); got < want || got >= want+size {
			t.Errorf("%d bytes count, want those of four answers", got)
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := say(ctx, client, "x")
			wantCode(t, err, codes.ResourceExhausted)
			if text := status.Convert(err).Message(); !strings.HasPrefix(text, "Say: the clients haven't taken their answers") {
				t.Errorf("the error says %q", text)
			}
			if _, err := say(ctx, client, ""); err != nil { // short
				t.Errorf("another call: %v", err)
			}
			cancel()
		}
		r.wantConnections(3)
		if _, err := say(t.Context(), client, "x"); err != nil { // waits until the other clients have lost their connections
			t.Error(err)
		}
		r.wantConnections(1)
		if got := r.server.connections.held.answers; got != 0 {
			t.Errorf("after the answers, %d bytes count", got)
		}
		client.Close()
		r.end()
	})
}

// Errors that clients don't take are bounded, also if the clients reset their calls, or send malformed ones.
func TestUntakenErrorsAreBounded(t *testing.T) {
	for _, kind := range []string{"ended", "reset", "canceled", "malformed"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const taken, fitting = 40, 60 // the connection takes less than 40 errors
				var failed atomic.Int64
				r := start(t, func(ctx context.Context, said string) (string, error) {
					if kind == "canceled" && said == "" && failed.Load() > taken {
						<-ctx.Done()
					}
					// HTTP/2 would compress a text that is repeated to a byte.
					return "", status.Error(codes.NotFound, fmt.Sprint(failed.Add(1), strings.Repeat("x", 2000)))
				})
				r.server.connections.maxHeldBytes = fitting * maxHeaderBytes
				untaken := r.deaf()
				r.wantConnections(1)
				calls := uint32(0)
				for ; r.server.Connections() == 1 && calls < 3*fitting; calls++ {
					id := 2*calls + 1
					if kind == "malformed" {
						untaken.headers(id, sayMethod, [2]string{"x-bin", strings.Repeat("\xff", 1100)})
					} else {
						untaken.call(id, sayMethod)
					}
					untaken.flush()
					if isOpen := r.server.Connections() == 1; isOpen && (kind == "reset" || kind == "canceled") {
						untaken.must(untaken.WriteRSTStream(id, http2.ErrCodeCancel))
					}
				}
				r.wantConnections(0)
				if calls <= fitting {
					t.Errorf("the connection was closed after %d calls", calls)
				}
				if got := len(r.logged("take too much memory")); got != 1 {
					t.Errorf("%d log lines, want 1", got)
				}
				client := r.dial()
				for range 10 * fitting { // this client takes its errors
					_, err := say(t.Context(), client, "hello")
					wantCode(t, err, codes.NotFound)
				}
				synctest.Wait()
				if got := r.server.connections.held.others; got != 0 {
					t.Errorf("after errors were taken, %d bytes count", got)
				}
				client.Close()
				r.end()
			})
		})
	}
}
