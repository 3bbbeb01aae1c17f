// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
)

// wantConnections checks how many connections the server says are open, and that it has closed
// all others.
func (r *running) wantConnections(want int) {
	r.t.Helper()
	synctest.Wait()
	if got := r.listener.open.Load(); got != int64(want) {
		r.t.Errorf("%d connections (of %d) aren't closed, want %d", got, r.listener.accepted.Load(), want)
	}
	if got := r.server.Connections(); got != want {
		r.t.Errorf("the server counts %d connections, want %d", got, want)
	}
}

// waiting is a service whose calls wait until release is closed, whatever becomes of
// their clients, as calls of Windows do.
type waiting struct{ release chan struct{} }

func newWaiting() *waiting { return &waiting{make(chan struct{})} }

func (w *waiting) say(_ context.Context, said string) (string, error) {
	if said != "at once" {
		<-w.release
	}
	return said, nil
}

// The connection that each published Go client leaves behind is closed, without a line in the
// log. A client that makes no calls is another matter: its HTTP/2 answers pings.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		silent := r.silent()
		idle := r.dial(grpc.WithIdleTimeout(0))
		defer idle.Close()
		idle.Connect()
		r.wantConnections(2)
		begun := time.Now()
		if _, err := io.Copy(io.Discard, silent); err != nil { // until the server closes it
			t.Fatal(err)
		}
		if got := time.Since(begun); got != prefaceTimeout {
			t.Errorf("closed after %v, want %v", got, prefaceTimeout)
		}
		time.Sleep(240 * time.Hour)
		r.wantConnections(1)
		idle.Close()
		r.end()
		if got := r.logged(""); len(got) != 0 {
			t.Errorf("the log says %q", got)
		}
	})
}

// What begins as HTTP/2 and then answers no ping is closed: its client has gone, or hangs.
func TestDeadPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		var hangs atomic.Bool
		client := r.dial(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := r.listener.DialContext(ctx)
			return hanging{c, &hangs}, err
		}))
		defer client.Close()
		if _, err := say(t.Context(), client, "hello"); err != nil {
			t.Fatal(err)
		}
		hangs.Store(true)
		time.Sleep(2*quietTimeout + pingTimeout) // it is looked at every quietTimeout
		r.wantConnections(0)
		r.end()
	})
}

// hanging is a connection on which nothing is sent any more once hangs is true.
type hanging struct {
	net.Conn
	hangs *atomic.Bool
}

func (c hanging) Write(p []byte) (int, error) {
	if c.hangs.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Answers that nobody reads go with their connection.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, func(context.Context, string) (string, error) { return strings.Repeat("x", 60<<10), nil })
		read := make(chan struct{})
		client := r.dial(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := r.listener.DialContext(ctx)
			return unread{c, read}, err
		}), grpc.WithStaticConnWindowSize(1<<24), grpc.WithStaticStreamWindowSize(1<<20))
		for range 20 {
			go say(t.Context(), client, "hello")
		}
		time.Sleep(writeTimeout + time.Second)
		r.wantConnections(0)
		close(read)
		client.Close()
		r.end()
	})
}

// unread is a connection that nobody reads after the handshake, until read is closed.
type unread struct {
	net.Conn
	read chan struct{}
}

func (c unread) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 1<<10 { // more than the handshake: the first answers
		<-c.read
	}
	return n, err
}

// Of too many connections, the new one is closed.
func TestTooManyConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		busy := r.dial()
		if _, err := say(t.Context(), busy, "hello"); err != nil {
			t.Fatal(err)
		}
		var conns []net.Conn
		for range maxConnections - 1 {
			conns = append(conns, r.silent())
		}
		r.wantConnections(maxConnections)
		for range 2 {
			if _, err := io.Copy(io.Discard, r.silent()); err != nil {
				t.Fatal(err)
			}
		}
		r.wantConnections(maxConnections)
		if got := len(r.logged("too many are open")); got != 1 {
			t.Errorf("%d log lines, want 1", got)
		}
		if _, err := say(t.Context(), busy, "hello"); err != nil {
			t.Errorf("a call of an older client gives %v", err)
		}
		conns[0].Close()
		synctest.Wait()
		late := r.dial()
		if _, err := say(t.Context(), late, "hello"); err != nil {
			t.Errorf("when one is closed, a new client gets %v", err)
		}
		busy.Close()
		late.Close()
		r.end()
	})
}

// A client that takes the daemon's right to its pipe ends no server.
func TestRefusedAfterConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		client := r.dial()
		defer client.Close()
		r.listener.wrap = func(c net.Conn) net.Conn {
			r.listener.refused.Store(true)
			return c
		}
		if _, err := say(t.Context(), client, "hello"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*logInterval - 1)
		if got := len(r.logged("permission denied")); got < 5 || got > 10 {
			t.Errorf("%d log lines in ten minutes, want one a minute", got)
		}
		if _, err := say(t.Context(), client, "hello"); err != nil {
			t.Error(err)
		}
		client.Close()
		r.end()
	})
}

// Errors of accepting that pass don't end the server.
func TestAcceptTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooMany := errors.New("too many open files")
		l := newCountingListener()
		r := &running{t: t, listener: l, served: make(chan error, 1)}
		script := newScript(tooMany, tooMany, tooMany)
		r.server = New(Config{
			Endpoints: []Endpoint{{Name: "echo", Service: echo(upper), Listener: failingFirst{l, script}}},
			Log:       r.logger(),
		})
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		go func() { r.served <- r.server.Serve(ctx) }()
		client := r.dial()
		defer client.Close()
		if _, err := say(t.Context(), client, "hello"); err != nil {
			t.Error(err)
		}
		client.Close()
		r.end()
		if got := len(r.logged("too many open files")); got != 1 {
			t.Errorf("%d log lines for one trouble, want 1", got)
		}
	})
}

// failingFirst is a listener that has the errors of a script first.
type failingFirst struct {
	net.Listener
	script script
}

func (l failingFirst) Accept() (net.Conn, error) {
	select {
	case err := <-l.script.errs:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

// A stop takes no longer than its grace period and a second, beside a silent connection and a
// call that hangs in Windows, and none at all beside the silent connection alone.
func TestStopBesideSilentConnectionAndHungCall(t *testing.T) {
	for name, hangs := range map[string]bool{"silent": false, "silent and hung": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWaiting()
				r := start(t, w.say)
				r.server.grace = 500 * time.Millisecond
				silent := r.silent()
				var want time.Duration
				if hangs {
					client := r.dial()
					defer client.Close()
					go say(t.Context(), client, "")
					want = r.server.grace + cancelPeriod
				}
				synctest.Wait()
				stopped := time.Now()
				r.end()
				if got := time.Since(stopped); got != want || got > 2*time.Second {
					t.Errorf("stopping took %v, want %v", got, want)
				}
				if _, err := io.Copy(io.Discard, silent); err != nil {
					t.Error(err)
				}
				late, err := r.listener.DialContext(t.Context())
				if err == nil {
					late.Close()
					t.Error("a connection is made after the stop")
				}
				close(w.release)
			})
		})
	}
}
