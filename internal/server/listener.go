// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// maxSilent is how many silent connections an endpoint keeps. A process that
	// uses the published client has one for each client that it made.
	maxSilent = 256

	// maxAcceptPause is the longest pause after an error of accept that may go
	// away, like too many open files.
	maxAcceptPause = time.Second

	// complaintInterval is the least time between two log lines of a listener
	// about the same trouble.
	complaintInterval = time.Minute
)

// Connections are the connections of an endpoint.
type Connections struct {
	Open    int // that have sent something
	Silent  int // that haven't
	Evicted int // silent ones that the server closed, since it started, to make room
}

// listener hands connections on when their first byte has arrived.
//
// Every published Go client opens a connection that it never uses and never
// closes, before the one that it uses. A gRPC server would start a transport for
// it, wait for the HTTP/2 preface, and end in a complaint; here it is a goroutine
// in a read. Beyond maxSilent such connections the oldest is closed, which its
// client doesn't notice.
type listener struct {
	net.Listener
	log *slog.Logger

	first   chan *conn    // connections whose first byte has arrived
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed by run
	failure error         // why run ended; to be read after that
	close   func() error

	waiting sync.WaitGroup // for awaitFirstByte

	mu      sync.Mutex
	open    map[*conn]struct{}
	silent  list.List // of *conn, oldest first
	evicted int
}

// newListener returns a listener that does nothing until run is called.
func newListener(inner net.Listener, log *slog.Logger) *listener {
	l := &listener{
		Listener: inner,
		log:      log,
		first:    make(chan *conn),
		closing:  make(chan struct{}),
		ended:    make(chan struct{}),
		open:     make(map[*conn]struct{}),
	}
	l.close = sync.OnceValue(l.closeOnce)
	return l
}

// Accept returns the next connection that has something to say.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.first:
		return c, nil
	case <-l.ended:
		return nil, l.failure
	}
}

// Close ends the listener and closes all silent connections. Those that Accept
// has returned are the caller's.
func (l *listener) Close() error { return l.close() }

func (l *listener) closeOnce() error {
	close(l.closing)
	err := l.Listener.Close()
	<-l.ended
	l.mu.Lock()
	var silent []*conn
	for e := l.silent.Front(); e != nil; e = e.Next() {
		silent = append(silent, e.Value.(*conn))
	}
	l.mu.Unlock()
	closeAll(silent)
	l.waiting.Wait()
	return err
}

// closeOpen closes the connections that Accept has returned.
func (l *listener) closeOpen() {
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.open))
	l.mu.Unlock()
	closeAll(open)
}

// closeAll closes connections. Errors don't matter: nobody uses them any more.
func closeAll(conns []*conn) {
	for _, c := range conns {
		c.Close()
	}
}

// run accepts connections until the listener is closed, or can't accept any more.
func (l *listener) run() {
	defer close(l.ended)
	var pause time.Duration
	var acceptTrouble, silentTrouble complaints
	for {
		inner, err := l.Listener.Accept()
		if err == nil {
			pause = 0
			if oldest := l.add(&conn{Conn: inner, listener: l}); oldest != nil {
				oldest.Close()
				if silentTrouble.due() {
					l.log.Info("closing the oldest of too many connections that never sent a byte", "limit", maxSilent)
				}
			}
			continue
		}
		// Errors of permission stay: on Windows, the daemon's account isn't one
		// that may use its own pipes.
		if l.isClosing() || errors.Is(err, net.ErrClosed) || errors.Is(err, fs.ErrPermission) {
			l.failure = err
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), maxAcceptPause)
		if acceptTrouble.due() {
			l.log.Error("accepting connections; trying again", "err", err)
		}
		select {
		case <-time.After(pause):
		case <-l.closing:
		}
	}
}

func (l *listener) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// add adds a silent connection, and removes and returns the oldest one if there
// are too many.
func (l *listener) add(c *conn) (oldest *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.silent = l.silent.PushBack(c)
	l.waiting.Go(func() { l.awaitFirstByte(c) })
	if l.silent.Len() <= maxSilent {
		return nil
	}
	l.evicted++
	return l.silent.Remove(l.silent.Front()).(*conn)
}

// awaitFirstByte hands c on when its first byte is there.
func (l *listener) awaitFirstByte(c *conn) {
	_, err := io.ReadFull(c.Conn, c.first[:])
	l.mu.Lock()
	l.silent.Remove(c.silent)
	if err == nil {
		c.unread = true
		l.open[c] = struct{}{}
	}
	l.mu.Unlock()
	if err != nil { // the client has gone, or the connection was closed by us
		c.Close()
		return
	}
	select {
	case l.first <- c:
	case <-l.closing:
		c.Close()
	}
}

// connections counts the connections.
func (l *listener) connections() Connections {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Connections{Open: len(l.open), Silent: l.silent.Len(), Evicted: l.evicted}
}

// conn is a connection that gives its first byte, read already, once more.
type conn struct {
	net.Conn
	listener *listener
	silent   *list.Element // in listener.silent, under its lock
	first    [1]byte
	unread   bool
}

func (c *conn) Read(p []byte) (int, error) {
	if c.unread && len(p) > 0 {
		c.unread = false
		return copy(p, c.first[:]), nil
	}
	return c.Conn.Read(p)
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// complaints lets one complaint pass in each complaintInterval.
type complaints struct{ last time.Time }

func (c *complaints) due() bool {
	if !c.last.IsZero() && time.Since(c.last) < complaintInterval {
		return false
	}
	c.last = time.Now()
	return true
}
