// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// waiting is a service whose calls wait until release is closed, whatever becomes of
// their clients, as calls of Windows do.
type waiting struct {
	release chan struct{}
	calls   atomic.Int64 // under way
	most    atomic.Int64 // under way at one time
}

func newWaiting() *waiting { return &waiting{release: make(chan struct{})} }

func (w *waiting) say(_ context.Context, said string) (string, error) {
	if said == "at once" {
		return said, nil
	}
	n := w.calls.Add(1)
	defer w.calls.Add(-1)
	for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
	}
	<-w.release
	return said, nil
}

// A request holds what the API knows of, for as long as its call lasts, and not one
// byte more.
func TestUnknownFieldsAreDiscarded(t *testing.T) {
	held := make(chan int, 1)
	r := start(t, upper, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		held <- len(req.(*wrapperspb.StringValue).ProtoReflect().GetUnknown())
		return handler(ctx, req)
	})
	defer r.end()
	request := wrapperspb.String("hello")
	request.ProtoReflect().SetUnknown(append([]byte{0x7a, 0x80, 0x08}, make([]byte, 1024)...))
	var answer wrapperspb.StringValue
	if err := r.dial().Invoke(t.Context(), sayMethod, request, &answer); err != nil || answer.GetValue() != "hello!" {
		t.Fatalf("answer %q, %v", answer.GetValue(), err)
	}
	if n := <-held; n != 0 {
		t.Errorf("the request holds %d bytes of unknown fields", n)
	}
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (bytesCodec) Name() string                       { return "proto" }

func TestUndecodableRequests(t *testing.T) {
	var counted []codes.Code // as metrics do
	r := start(t, func(context.Context, string) (string, error) {
		t.Error("the handler was called")
		return "", nil
	}, func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		counted = append(counted, status.Code(err))
		return resp, err
	})
	client := r.dial()
	for request, want := range map[string]string{
		"\x0a\x08secret \xff": "Say: field value isn't valid UTF-8",
		"\x0a\x7fsecret":      "Say: the StringValue can't be decoded: it isn't a valid protobuf message",
	} {
		err := client.Invoke(t.Context(), sayMethod, []byte(request), new([]byte), grpc.ForceCodec(bytesCodec{}))
		wantCode(t, err, codes.InvalidArgument)
		if got := status.Convert(err).Message(); got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	r.end()
	if len(counted) != 2 || counted[0] != codes.InvalidArgument || counted[1] != codes.InvalidArgument {
		t.Errorf("the interceptor saw %v", counted)
	}
	if got := len(r.logged("call failed")); got != 2 {
		t.Errorf("%d failed calls in the log, want 2", got)
	}
	if leaked := r.logged("secret"); len(leaked) > 0 {
		t.Errorf("the log has contents of messages: %q", leaked)
	}
}

// A client with too many calls is told so at once, and others can make theirs.
func TestTooManyCallsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting()
		r := start(t, w.say)
		client, other := r.dial(), r.dial()
		defer client.Close()
		defer other.Close()
		for range DefaultMaxCallsPerClient {
			go say(t.Context(), client, "")
		}
		time.Sleep(time.Second) // they begin some at a time
		for range 3 {
			_, err := say(t.Context(), client, "at once")
			wantCode(t, err, codes.ResourceExhausted)
			if text := status.Convert(err).Message(); !strings.HasPrefix(text,
				"Say: this client has 256 calls under way, and -max-calls-per-client is 256") {
				t.Errorf("the error says %q", text)
			}
		}
		if got := len(r.logged("refusing calls")); got != 1 {
			t.Errorf("%d log lines about 3 refused calls, want 1", got)
		}
		if _, err := say(t.Context(), other, "at once"); err != nil {
			t.Errorf("a call of another client gives %v", err)
		}
		calls := r.server.Calls()
		if calls.Running != DefaultMaxCallsPerClient || calls.Refused[RefusedCallsPerClient] != 3 {
			t.Errorf("the server counts %+v", calls)
		}
		close(w.release)
		synctest.Wait()
		if _, err := say(t.Context(), client, "at once"); err != nil {
			t.Errorf("when the others have ended, a call gives %v", err)
		}
		if calls := r.server.Calls(); calls.Running != 0 || calls.Bytes != 0 {
			t.Errorf("in the end, the server counts %+v", calls)
		}
		r.end()
	})
}

// A client that resets its calls at once can't have more of them run than others, and
// is slowed down.
func TestRapidReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting()
		r := start(t, w.say)
		c := newRawClient(t, r.silent())
		go io.Copy(io.Discard, c.conn)
		begun := time.Now()
		const resets = 5000
		for range resets {
			stream := c.begin(sayMethod)
			if stream == 0 || c.framer.WriteData(stream, true, frameOf(nil, 0)) != nil ||
				c.framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
				t.Fatal("the connection is closed")
			}
		}
		synctest.Wait()
		if most := w.most.Load(); most > DefaultMaxCallsPerClient {
			t.Errorf("%d calls ran at the same time", most)
		}
		if took := time.Since(begun); took < 10*maxPause {
			t.Errorf("%d resets took %v: nothing slows them down", resets, took)
		}
		other := r.dial()
		defer other.Close()
		if _, err := say(t.Context(), other, "at once"); err != nil {
			t.Errorf("a call of another client gives %v", err)
		}
		close(w.release)
		c.conn.Close()
		synctest.Wait()
		if calls := r.server.Calls(); calls.Running+calls.Receiving != 0 {
			t.Errorf("in the end, the server counts %+v", calls)
		}
		r.end()
	})
}

// What begins as HTTP/2 and then says nothing is closed. A client that makes no calls is
// another matter: its HTTP/2 answers pings.
func TestQuietConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		silent := r.silent()
		idle := r.dial(grpc.WithIdleTimeout(0))
		defer idle.Close()
		idle.Connect()
		c := newRawClient(t, r.silent())
		synctest.Wait()
		r.wantConnections(Connections{Open: 2, Silent: 1})
		begun := time.Now()
		if _, err := io.Copy(io.Discard, c.conn); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(begun), quietTimeout+pingTimeout; got > want {
			t.Errorf("closed after %v, want %v", got, want)
		}
		time.Sleep(240 * time.Hour)
		r.wantConnections(Connections{Open: 1, Silent: 1})
		silent.Close()
		idle.Close()
		r.end()
	})
}

// A call whose request doesn't come ends, with its connection.
func TestHalfRequests(t *testing.T) {
	for name, half := range map[string]func(*rawClient){
		"no request":      func(c *rawClient) { c.begin(sayMethod) },
		"half a header":   func(c *rawClient) { c.framer.WriteData(c.begin(sayMethod), false, []byte{0, 0}) },
		"half a request":  func(c *rawClient) { c.framer.WriteData(c.begin(sayMethod), false, frameOf([]byte("abc"), 1000)) },
		"no end":          func(c *rawClient) { c.framer.WriteData(c.begin(sayMethod), false, frameOf(nil, 0)) },
		"one byte at all": func(c *rawClient) { c.framer.WriteData(c.begin(sayMethod), false, []byte{0}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, upper)
				c := newRawClient(t, r.silent())
				half(c)
				begun := time.Now()
				if _, err := io.Copy(io.Discard, c.conn); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(begun); got != requestTimeout {
					t.Errorf("closed after %v, want %v", got, requestTimeout)
				}
				synctest.Wait()
				if calls := r.server.Calls(); calls.Receiving != 0 || calls.Bytes != 0 {
					t.Errorf("the server counts %+v", calls)
				}
				r.end()
			})
		})
	}
}

// Connections with calls whose requests don't come make room for others.
func TestHalfRequestsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		for range maxOpen {
			c := newRawClient(t, r.silent())
			go io.Copy(io.Discard, c.conn)
			c.begin(sayMethod)
			synctest.Wait()
		}
		client := r.dial()
		defer client.Close()
		if _, err := say(t.Context(), client, "hello"); err != nil {
			t.Errorf("a call of one more client gives %v", err)
		}
		client.Close()
		time.Sleep(requestTimeout)
		r.wantConnections(Connections{Closed: 1})
		r.end()
	})
}

// Answers that nobody reads go with their connection.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(context.Context, string) (string, error) { return strings.Repeat("x", 60<<10), nil })
		c := newRawClient(t, r.silent(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		if err := c.framer.WriteWindowUpdate(0, 1<<30); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			c.call(sayMethod, nil)
		}
		synctest.Wait()
		time.Sleep(writeTimeout + time.Second)
		r.wantConnections(Connections{})
		r.end()
	})
}

// Of too many connections, the one longest without a call makes room.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaiting()
		r := start(t, w.say)
		busy := r.dial()
		defer busy.Close()
		go say(t.Context(), busy, "")
		synctest.Wait()
		var idle []*rawClient
		for range maxOpen - 1 {
			time.Sleep(time.Millisecond)
			c := newRawClient(t, r.silent())
			go io.Copy(io.Discard, c.conn)
			synctest.Wait()
			idle = append(idle, c)
		}
		r.wantConnections(Connections{Open: maxOpen})
		late := r.dial()
		defer late.Close()
		if _, err := say(t.Context(), late, "at once"); err != nil {
			t.Errorf("a call of one more client gives %v", err)
		}
		r.wantConnections(Connections{Open: maxOpen, Closed: 1})
		if _, err := idle[0].conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection longest without calls is open")
		}
		if got := len(r.logged("too many")); got != 1 {
			t.Errorf("%d log lines, want 1", got)
		}
		close(w.release)
		for _, c := range idle {
			c.conn.Close()
		}
		busy.Close()
		late.Close()
		r.end()
	})
}
