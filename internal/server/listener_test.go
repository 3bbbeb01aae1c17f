// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/fairshare"
)

// wantConnections checks what the server says of its connections, and that it
// has closed all other ones.
func (r *running) wantConnections(want Connections) {
	r.t.Helper()
	synctest.Wait()
	if got := r.listener.open.Load(); got != int64(want.Open+want.Silent) {
		r.t.Errorf("%d connections aren't closed, want %d", got, want.Open+want.Silent)
	}
	if diff := cmp.Diff(map[string]Connections{"csi-proxy-echo-v1": want}, r.server.Connections()); diff != "" {
		r.t.Errorf("connections (-want +got):\n%s", diff)
	}
}

// wantClosed checks that the server has closed its end of a connection.
func wantClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading gives %v, want EOF", err)
	}
}

func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		gone, kept := r.silent(), r.silent()
		r.wantConnections(Connections{Silent: 2})

		client := r.dial()
		if _, err := say(t.Context(), client, "hello"); err != nil {
			t.Fatal(err)
		}
		r.wantConnections(Connections{Silent: 2, Open: 1})
		gone.Close()
		r.wantConnections(Connections{Silent: 1, Open: 1})
		client.Close()
		r.wantConnections(Connections{Silent: 1})

		time.Sleep(240 * time.Hour) // longer than any time-out
		r.wantConnections(Connections{Silent: 1})
		stopped := time.Now()
		r.end()
		if got := time.Since(stopped); got != 0 {
			t.Errorf("stopping took %v, want nothing", got)
		}
		wantClosed(t, kept)
		r.wantConnections(Connections{})
		if got := r.logged(""); len(got) != 1 { // the call
			t.Errorf("the log has more than the call: %q", got)
		}
	})
}

func TestOldestSilentConnectionIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		var conns []net.Conn
		for range maxSilent {
			conns = append(conns, r.silent())
			synctest.Wait() // so that the oldest is the first here
		}
		for i, test := range []struct {
			after    time.Duration
			logLines int
		}{
			{0, 1},
			{complaintInterval - 1, 1},
			{1, 2},
		} {
			time.Sleep(test.after)
			r.silent()
			r.wantConnections(Connections{Silent: maxSilent, Evicted: i + 1})
			wantClosed(t, conns[i])
			if got := len(r.logged("too many connections")); got != test.logLines {
				t.Errorf("%d log lines after %d evictions, want %d", got, i+1, test.logLines)
			}
		}
		if _, err := say(t.Context(), r.dial(), "hello"); err != nil {
			t.Errorf("a call gives %v", err)
		}
		r.end()
	})
}

// A client that falls silent amid its handshake is a fault, unlike one that
// hasn't begun.
func TestHandshakeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		defer r.end()
		conn := r.silent()
		time.Sleep(time.Hour)
		begun := time.Now()
		go io.WriteString(conn, "P")
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begun); got != prefaceTimeout {
			t.Errorf("closed after %v, want %v", got, prefaceTimeout)
		}
		r.wantConnections(Connections{})
	})
}

func TestAcceptTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := slices.Repeat([]error{errors.New("too many open files")}, 10)
		r := &running{t: t}
		l := newListener(newScript(append(errs, net.ErrClosed)...), newCalls(Limits{}), r.logger())
		begun := time.Now()
		l.run()
		if !errors.Is(l.failure, net.ErrClosed) {
			t.Errorf("ended with %v", l.failure)
		}
		// 5, 10, 20, 40, 80, 160, 320, 640, 1000, 1000
		if got, want := time.Since(begun), 3275*time.Millisecond; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
		if got := len(r.logged("too many open files")); got != 1 {
			t.Errorf("%d log lines for one trouble, want 1", got)
		}
	})
}

func TestCloseBeforeAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &running{t: t, listener: newCountingListener()}
		l := newListener(r.listener, newCalls(Limits{}), r.logger())
		go l.run()
		go io.WriteString(r.silent(), "P")
		synctest.Wait() // until the first byte is there
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := r.listener.open.Load(); got != 0 {
			t.Errorf("%d connections are left", got)
		}
		if got := l.connections(); got != (Connections{}) {
			t.Errorf("connections are %+v", got)
		}
	})
}

func TestCloseWhileAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newScript(errors.New("too many open files"), errors.New("too many open files"))
		r := &running{t: t}
		l := newListener(inner, newCalls(Limits{}), r.logger())
		go l.run()
		synctest.Wait() // in a pause
		closed := time.Now()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(closed); got != 0 {
			t.Errorf("closing took %v, want nothing", got)
		}
	})
}

func TestConnGivesItsFirstByteOnce(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		defer client.Close()
		io.WriteString(client, "bc")
	}()
	c := &conn{Conn: server, first: [1]byte{'a'}, unread: true, turns: new(fairshare.Turns).Connect(1)}
	if n, err := c.Read(nil); n != 0 || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("reading nothing gives %d, %v", n, err)
	}
	got, err := io.ReadAll(c)
	if string(got) != "abc" || err != nil {
		t.Errorf("reading all gives %q, %v", got, err)
	}
}

// byteAfterClose is a connection of process 7 whose first byte comes when the test says so,
// closed or not.
type byteAfterClose struct {
	net.Conn
	comes chan struct{}
}

func (c byteAfterClose) Read(p []byte) (int, error) {
	<-c.comes
	p[0] = 'P'
	return 1, nil
}

func (byteAfterClose) Close() error          { return nil }
func (byteAfterClose) ClientProcess() uint32 { return 7 }

// A silent connection that is closed to make room just when its first byte comes isn't
// counted as open for good, nor is its process.
func TestEvictedAtItsFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(newScript(), newCalls(Limits{}), (&running{t: t}).logger())
		comes := make(chan struct{})
		add := func() *conn {
			return l.add(&conn{Conn: byteAfterClose{comes: comes}, listener: l, closed: make(chan struct{})})
		}
		for range maxSilent {
			if oldest := add(); oldest != nil {
				t.Fatal("a connection is closed before there are too many")
			}
		}
		evicted := add()
		evicted.Close()
		accepted := make(map[*conn]bool)
		go func() {
			for c := range l.first {
				accepted[c] = true
				c.Close()
			}
		}()
		close(comes)
		time.Sleep(time.Second) // they pass some at a time
		synctest.Wait()
		if len(accepted) != maxSilent || accepted[evicted] {
			t.Errorf("%d connections are handed on, want %d; the closed one: %v", len(accepted), maxSilent, accepted[evicted])
		}
		if got := l.connections(); got.Open != 0 || got.Silent != 0 {
			t.Errorf("after all are closed, the connections are %+v", got)
		}
		if len(l.calls.processes) != 0 {
			t.Errorf("%d processes are known, want none", len(l.calls.processes))
		}
		close(l.first)
	})
}

// A process that has half of all connections closes no other's by making more.
func TestConnectionsOfOneProcess(t *testing.T) {
	l := newListener(newScript(), newCalls(Limits{}), (&running{t: t}).logger())
	open := func(process uint32) (*conn, *conn) {
		c := &conn{listener: l, closed: make(chan struct{}), client: l.calls.connect(process)}
		return c, l.addOpen(c)
	}
	for i := range maxOpen / 2 {
		open(1)
		open(uint32(i + 2))
	}
	if c, tooMany := open(1); tooMany != c {
		t.Error("a process with half of the connections got one more")
	}
	if c, tooMany := open(2); tooMany == c || tooMany == nil {
		t.Error("a process with few connections got none")
	}
}

// A connection that sends much and makes no calls is read slowly, until it makes one.
func TestMuchWithoutCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, client := net.Pipe()
		defer client.Close()
		go func() {
			for {
				if _, err := client.Write(make([]byte, 1<<20)); err != nil {
					return // the test has ended
				}
			}
		}()
		c := &conn{Conn: inner, closed: make(chan struct{}), turns: new(fairshare.Turns).Connect(1)}
		read := func(bytes int) (took time.Duration) {
			begun := time.Now()
			for bytes > 0 {
				n, err := c.Read(make([]byte, 32<<10))
				if err != nil {
					t.Fatal(err)
				}
				bytes -= n
			}
			return time.Since(begun)
		}
		if took := read(maxWithoutCall); took != 0 {
			t.Errorf("the first bytes take %v", took)
		}
		read(1) // up to 32 KiB more
		if took, want := read(10*slowRead), 10*slowDownBy; took != want {
			t.Errorf("further %d bytes take %v, want %v", 10*slowRead, took, want)
		}
		c.begin()
		if took := read(maxWithoutCall); took != 0 {
			t.Errorf("after a call, they take %v", took)
		}
		inner.Close()
	})
}

// What has come on a connection waits if many other connections of its process have brought
// something at the same time.
func TestManyConnectionsThatBringSomething(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns fairshare.Turns
		read := func(process int) time.Duration {
			inner, client := net.Pipe()
			defer client.Close()
			go io.WriteString(client, "a")
			c := &conn{Conn: inner, closed: make(chan struct{}), turns: turns.Connect(process)}
			begun := time.Now()
			if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
				t.Fatalf("got %d bytes, %v", n, err)
			}
			return time.Since(begun)
		}
		read(2)
		waited := func() bool {
			for range 1000 {
				if read(1) > 0 {
					return true
				}
			}
			return false
		}
		if !waited() {
			t.Error("none of 1,000 connections of a process waited")
		}
		if took := read(2); took > 0 {
			t.Errorf("a connection of another process waited for %v", took)
		}
	})
}
