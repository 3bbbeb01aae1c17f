// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// slow is a client that sends its requests in pieces, and takes answers only as far as it gives a window.
type slow struct {
	*http2.Framer
	t    *testing.T
	conn net.Conn
	out  *bufio.Writer
}

func (r *running) slow() *slow {
	r.t.Helper()
	s := r.deaf()
	go io.Copy(io.Discard, s.conn)
	return s
}

// deaf returns a client that reads nothing at all.
func (r *running) deaf() *slow {
	r.t.Helper()
	s := &slow{t: r.t, conn: r.silent()}
	s.out = bufio.NewWriterSize(s.conn, 32<<10)
	s.Framer = http2.NewFramer(s.out, nil)
	s.out.WriteString(http2.ClientPreface)
	s.must(s.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	return s
}

// must takes errors of writing, which come after the server has closed the connection.
func (s *slow) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// headers sends the headers of a call.
func (s *slow) headers(stream uint32, method string, more ...[2]string) {
	s.t.Helper()
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	usual := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}}
	for _, field := range append(usual, more...) {
		s.must(encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	s.must(s.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers.Bytes(), EndHeaders: true}))
}

// begin sends the headers of a call, and the header of its message of length bytes, at most 255.
func (s *slow) begin(stream uint32, method string, length byte) {
	s.t.Helper()
	s.headers(stream, method)
	s.must(s.WriteData(stream, false, []byte{0, 0, 0, 0, length}))
}

// call sends a call with an empty message.
func (s *slow) call(stream uint32, method string) {
	s.t.Helper()
	s.begin(stream, method, 0)
	s.must(s.WriteData(stream, true, nil))
}

// flush sends what has been written, and lets the server read it.
func (s *slow) flush() {
	s.t.Helper()
	s.must(s.out.Flush())
	synctest.Wait()
}

// A request that doesn't arrive ends its connection, and no other one.
func TestUnfinishedRequestsAreLate(t *testing.T) {
	for _, method := range []string{sayMethod, shoutMethod} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, upper)
			client := r.dial()
			if _, err := say(t.Context(), client, "hello"); err != nil {
				t.Fatal(err)
			}
			late := r.slow()
			late.begin(1, method, 100)
			late.flush()
			time.Sleep(messageTimeout - 1)
			r.wantConnections(2)
			time.Sleep(time.Nanosecond)
			r.wantConnections(1)
			if got := len(r.logged("takes too long to arrive")); got != 1 {
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

// What arrives of requests that don't end, and what clients don't take of short answers, is bounded for all connections
// together. The one with the most is closed.
func TestHeldBytesAreBounded(t *testing.T) {
	const limit = 40 * maxHeaderBytes
	for name, send := range map[string]func(s *slow, times int){
		"many requests": func(s *slow, times int) {
			for i := range times {
				s.begin(uint32(2*i+1), sayMethod, 100)
			}
		},
		"a request in many pieces": func(s *slow, times int) {
			s.begin(1, shoutMethod, 200)
			for range times * maxHeaderBytes / 10 { // a frame has a header of nine bytes
				s.must(s.WriteData(1, false, []byte{}))
			}
		},
		"a later request in many pieces": func(s *slow, times int) {
			s.begin(1, reflectiongrpc.ServerReflection_ServerReflectionInfo_FullMethodName, 2)
			s.must(s.WriteData(1, false, []byte{7<<3 | 2, 0})) // list_services
			s.must(s.WriteData(1, false, []byte{0, 0, 0, 0, 200}))
			for range times * maxHeaderBytes / 10 {
				s.must(s.WriteData(1, false, []byte{}))
			}
		},
		"answers that aren't taken": func(s *slow, times int) {
			for i := range 2 * times { // each counts half of maxHeaderBytes
				s.call(uint32(2*i+1), sayMethod)
				s.flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := strings.Repeat("x", shortAnswer-untakenBytes-3)
				r := start(t, func(context.Context, string) (string, error) { return answer, nil })
				r.server.connections.maxHeldBytes = limit
				client := r.dial()
				large, small := r.slow(), r.slow()
				send(large, 20)
				send(small, 10)
				large.flush()
				small.flush()
				if _, err := say(t.Context(), client, "hello"); err != nil {
					t.Fatal(err)
				}
				r.wantConnections(3)
				last := r.slow()
				send(last, 15)
				last.flush()
				r.wantConnections(3)
				if _, err := large.conn.Write([]byte{0}); err == nil {
					t.Error("the connection that holds the most is still open")
				}
				if got := len(r.logged("take too much memory")); got != 1 {
					t.Errorf("%d log lines, want 1", got)
				}
				if _, err := say(t.Context(), client, "hello"); err != nil {
					t.Errorf("a call of another client gives %v", err)
				}
				client.Close()
				r.end()
			})
		})
	}
}

// Calls whose requests have come count no more, however they end, and have no time limit.
func TestFinishedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := func(ctx context.Context, said string) (string, error) {
			if said == "wait" {
				<-ctx.Done()
			}
			return said, nil
		}
		r := start(t, answers)
		client := r.dial()
		ctx, cancel := context.WithCancel(t.Context())
		go say(ctx, client, "wait")
		stream := shout(t, ctx, client, wrapperspb.String("wait"))
		if err := client.Invoke(ctx, sayMethod, []byte{0xff}, new([]byte), grpc.ForceCodec(bytesCodec{})); err == nil {
			t.Error("bytes that are no request are a success")
		}
		if err := client.Invoke(ctx, "/v1.Echo/None", wrapperspb.String(""), new(wrapperspb.StringValue)); err == nil {
			t.Error("a call of an unknown method is a success")
		}
		aborted := r.slow()
		aborted.begin(1, sayMethod, 100)
		aborted.must(aborted.WriteRSTStream(1, http2.ErrCodeCancel))
		aborted.flush()
		held := func() (bytes int64) {
			synctest.Wait()
			r.server.connections.mu.Lock()
			defer r.server.connections.mu.Unlock()
			return r.server.connections.held.answers + r.server.connections.held.others
		}
		if got := held(); got != 0 {
			t.Errorf("%d bytes count as unfinished", got)
		}
		untaken := r.slow()
		untaken.call(1, sayMethod)
		untaken.flush()
		if got := held(); got < untakenBytes {
			t.Errorf("an untaken answer counts %d bytes", got)
		}
		untaken.must(untaken.WriteRSTStream(1, http2.ErrCodeCancel))
		untaken.flush()
		if got := held(); got != 0 {
			t.Errorf("after the end of an untaken answer, %d bytes count", got)
		}
		// Reflection takes request after request. It counts until its end.
		reflect, err := reflectiongrpc.NewServerReflectionClient(client).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := reflect.Send(&reflectiongrpc.ServerReflectionRequest{
			MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{}}); err != nil {
			t.Fatal(err)
		}
		if _, err := reflect.Recv(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := held(); got < maxHeaderBytes || got > 2*maxHeaderBytes {
			t.Errorf("a stream of requests counts %d bytes as unfinished", got)
		}
		r.wantConnections(1) // the other one answers no pings
		cancel()
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); err == nil {
			t.Error("a canceled stream goes on")
		}
		if got := held(); got != 0 {
			t.Errorf("in the end, %d bytes count as unfinished", got)
		}
		client.Close()
		r.end()
	})
}

// Requests are found wherever the pieces end in which they come.
func TestFrames(t *testing.T) {
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&sent, nil)
	for _, err := range []error{
		framer.WriteSettings(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("headers"), EndHeaders: true}),
		framer.WriteData(1, true, make([]byte, 1000)),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte("headers")}),
		framer.WriteContinuation(3, false, []byte("more")),
		framer.WriteContinuation(3, true, nil),
		framer.WritePing(true, [8]byte{1, 2, 3, 4, 5}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: []byte("headers"), EndHeaders: true, EndStream: true}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for size := 1; size <= sent.Len(); size++ {
		f, left := frames{left: len(http2.ClientPreface)}, sent.Bytes()
		var requests []uint32
		data := 0
		for len(left) > 0 {
			n := min(size, len(left), f.rest())
			isHeader, isFrame := f.add(left[:n])
			if isHeader && f.kind() == http2.FrameData {
				data += f.length()
			}
			if isFrame && f.endsHeaders() {
				requests = append(requests, f.stream())
			}
			left = left[n:]
		}
		if !slices.Equal(requests, []uint32{1, 3, 5}) || data != 1000 {
			t.Errorf("in pieces of %d bytes, the requests %v, with %d bytes of messages", size, requests, data)
		}
	}
}

// Calls that have ended don't count for a stream that stays open on their connection, nor do requests that a stream has taken.
func TestEndedCallsBesideStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		r.server.connections.maxHeldBytes = 4 * maxHeaderBytes
		client := r.dial()
		reflect, err := reflectiongrpc.NewServerReflectionClient(client).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := reflect.Send(&reflectiongrpc.ServerReflectionRequest{Host: strings.Repeat("x", 1000),
				MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{}}); err != nil {
				t.Fatal(err)
			}
			if _, err := reflect.Recv(); err != nil {
				t.Fatal(err)
			}
			if _, err := say(t.Context(), client, strings.Repeat("x", 1000)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := r.server.connections.held; got != (heldBytes{others: maxHeaderBytes}) {
			t.Errorf("%+v counts, want the stream alone", got)
		}
		client.Close()
		r.end()
	})
}
