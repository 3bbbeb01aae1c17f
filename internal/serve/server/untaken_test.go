// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
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

// encoder counts the bytes that it encodes.
type encoder struct {
	encoding.CodecV2
	bytes int
}

func (e *encoder) Marshal(v any) (mem.BufferSlice, error) {
	data, err := e.CodecV2.Marshal(v)
	e.bytes += data.Len()
	return data, err
}

// An answer beyond the limit closes its connection, and is never encoded, nor are those that follow.
func TestAnswersCountBeforeTheyAreEncoded(t *testing.T) {
	const size, fitting = 100 << 10, 5
	all := &connections{log: slog.New(slog.DiscardHandler), open: make(map[*conn]struct{}), maxHeldBytes: fitting * (size + untakenBytes)}
	inner, _ := net.Pipe()
	c := &conn{Conn: inner, all: all}
	all.add(c)
	e := &encoder{CodecV2: newCodec().CodecV2}
	message := &wrapperspb.BytesValue{Value: make([]byte, size-4)} // its tag and length take 4 bytes
	for i := range 3 * fitting {
		_, err := codec{e}.Marshal(&answer{message: message, conn: c})
		if isFitting := i < fitting; isFitting != (err == nil) || isFitting != c.isOpen() {
			t.Errorf("answer %d: %v, with an open connection: %v", i, err, c.isOpen())
		}
	}
	if e.bytes != fitting*size {
		t.Errorf("answers of %d bytes were encoded, want %d", e.bytes, fitting*size)
	}
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
				if got := r.server.connections.heldBytes; got != 0 {
					t.Errorf("after errors were taken, %d bytes count", got)
				}
				client.Close()
				r.end()
			})
		})
	}
}
