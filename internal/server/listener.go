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
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/fairshare"
)

const (
	// maxSilent is how many silent connections an endpoint keeps. A process that
	// uses the published client has one for each client that it made.
	maxSilent = 256

	// maxOpen is how many connections that have sent something an endpoint keeps.
	// Drivers have one or two each.
	maxOpen = 1024

	// writeTimeout is how long a client may leave a full connection unread.
	writeTimeout = 30 * time.Second

	// slowDownBy is how long reading from a connection pauses for each call on it
	// that was refused, or given up by its client, in all up to maxPause. So a client
	// that repeats a refused call at once makes 50 calls in a second, and not thousands.
	slowDownBy = 20 * time.Millisecond
	maxPause   = 5 * time.Second

	// maxWithoutCall is how many bytes a connection may send without the whole request of a
	// call among them, before it is read slowly: in pieces of slowRead, with a pause of
	// slowDownBy before each. Clients send pings and the like, a few bytes for a call. Far
	// more would keep all processors busy.
	maxWithoutCall = 256 << 10
	slowRead       = 1 << 10

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
	Closed  int // others that the server closed, since it started, to make room
}

// listener hands connections on when their first byte has arrived.
//
// Every published Go client opens a connection that it never uses and never
// closes, before the one that it uses. A gRPC server would start a transport for
// it, wait for the HTTP/2 preface, and end in a complaint; here it is a goroutine
// in a read. Beyond maxSilent such connections the oldest is closed, which its
// client doesn't notice.
//
// A connection that has sent something is another matter: an HTTP/2 client is behind
// it. It stays for as long as that answers gRPC's pings, with calls or without: drivers
// connect when they start, and may make their first call days later. Beyond maxOpen,
// one without calls makes room: one that never had any, else the one that has been
// without for longest. Its client connects again when it needs to. A call whose request
// hasn't come doesn't count. If all have calls, or a half of them are of the new one's
// process, the new one is closed.
type listener struct {
	net.Listener
	log   *slog.Logger
	calls *calls

	first   chan *conn    // connections whose first byte has arrived
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed by run
	failure error         // why run ended; to be read after that
	close   func() error

	waiting sync.WaitGroup // for awaitFirstByte

	mu          sync.Mutex // guards all below
	open        map[*conn]struct{}
	openTrouble complaints
	silent      list.List // of *conn, oldest first
	evicted     int
	closed      int
}

// newListener returns a listener that does nothing until run is called.
func newListener(inner net.Listener, calls *calls, log *slog.Logger) *listener {
	l := &listener{
		Listener: inner,
		log:      log,
		calls:    calls,
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
			if oldest := l.add(&conn{Conn: inner, listener: l, closed: make(chan struct{})}); oldest != nil {
				oldest.Close()
				if silentTrouble.due() {
					l.log.Warn("closing the oldest of too many connections that never sent a byte", "limit", maxSilent)
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

// awaitFirstByte hands c on when its first byte is there, and its process may have it looked at.
func (l *listener) awaitFirstByte(c *conn) {
	_, err := io.ReadFull(c.Conn, c.first[:])
	if err == nil {
		c.unread = true
		c.caller = callerOf(c.Conn)
	}
	l.mu.Lock()
	l.silent.Remove(c.silent)
	tooMany := c // if the client has gone
	if err == nil && !c.isClosed() {
		c.client = l.calls.connect(processOf(c.Conn))
		var process any = c.client
		if c.caller.process != 0 {
			process = c.caller.process
		}
		c.turns = l.calls.turns.Connect(process)
		tooMany = l.addOpen(c)
	}
	l.mu.Unlock()
	if tooMany != nil {
		tooMany.Close()
	}
	if tooMany == c {
		return
	}
	c.turns.Pass(c.closed)
	select {
	case l.first <- c:
	case <-l.closing:
		c.Close()
	}
}

// addOpen adds a connection that has sent something. It returns the one to close for it,
// if there are too many, which may be c.
func (l *listener) addOpen(c *conn) (tooMany *conn) {
	c.lastCall.Store(time.Now().UnixNano())
	if len(l.open) < maxOpen {
		l.open[c] = struct{}{}
		return nil
	}
	tooMany = c
	ofClient := 0
	for open := range l.open {
		if open.client == c.client {
			ofClient++
		}
		if open.calls.Load() == 0 && (tooMany == c || open.lessUsed(tooMany)) {
			tooMany = open
		}
	}
	if ofClient >= maxOpen/2 { // of one process: the others are for others
		tooMany = c
	}
	l.closed++
	if l.openTrouble.due() {
		l.log.Warn("closing a connection, for there are too many", "limit", maxOpen, "new", tooMany == c)
	}
	if tooMany != c {
		delete(l.open, tooMany)
		l.open[c] = struct{}{}
	}
	return tooMany
}

// lessUsed reports whether c, which has no calls under way, is the one to close rather
// than other: one that never had any, else the one that has been without for longer.
func (c *conn) lessUsed(other *conn) bool {
	if used := c.used.Load(); used != other.used.Load() {
		return !used
	}
	return c.lastCall.Load() < other.lastCall.Load()
}

// processOf returns the id of the process at the other end of a connection, 0 if the
// system doesn't tell. A named pipe of Windows does: see package pipe.
func processOf(c net.Conn) uint32 {
	if p, ok := c.(interface{ ClientProcess() uint32 }); ok {
		return p.ClientProcess()
	}
	return 0
}

// caller is the process at the other end of a connection, for the log.
type caller struct {
	process uint32 // 0 if the system doesn't tell
	program string // its path; "" if the system doesn't tell
}

// callerOf asks the system for it. Package pipe has the connections that it tells of.
func callerOf(c net.Conn) (who caller) {
	if p, ok := c.(interface{ Caller() (uint32, string) }); ok {
		who.process, who.program = p.Caller()
	}
	return who
}

// connections counts the connections.
func (l *listener) connections() Connections {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Connections{Open: len(l.open), Silent: l.silent.Len(), Evicted: l.evicted, Closed: l.closed}
}

// conn is a connection that gives its first byte, read already, once more.
//
// Reading pauses when its calls are refused or given up, and when it sends much without making
// calls. So a client that makes and resets calls as fast as it can, repeats what was refused, or
// sends nothing but pings leaves the processors to others. It pauses too while many calls of its
// process wait for the processors: see fairshare.Connection.Pass. If the client reads nothing
// for writeTimeout, the connection is closed, and the answers that wait to be written are dropped.
type conn struct {
	net.Conn
	listener *listener
	silent   *list.Element // in listener.silent, under its lock
	first    [1]byte
	unread   bool

	client   *client               // nil while it is silent
	turns    *fairshare.Connection // nil while it is silent
	caller   caller                // unknown while it is silent
	calls    atomic.Int32          // under way, with their requests
	used     atomic.Bool           // it has had calls
	lastCall atomic.Int64          // when one began or ended last, or the first byte came; in Unix nanoseconds
	pause    atomic.Int64          // before the next read, a time.Duration

	withoutCall atomic.Int64 // bytes that were read since a call began with its whole request

	close  sync.Once
	closed chan struct{}
}

func (c *conn) Read(p []byte) (int, error) {
	if c.unread && len(p) > 0 {
		c.unread = false
		return copy(p, c.first[:]), nil
	}
	if c.withoutCall.Load() > maxWithoutCall {
		c.slowDown()
		p = p[:min(len(p), slowRead)]
	}
	if pause := c.pause.Swap(0); pause > 0 {
		select {
		case <-time.After(min(time.Duration(pause), maxPause)):
		case <-c.closed:
		}
	}
	// The calls that came with the last read run first, and those of other connections.
	// Otherwise a connection that always has more to read would fill the memory with calls.
	runtime.Gosched()
	n, err := c.Conn.Read(p)
	if err == nil {
		c.turns.Pass(c.closed)
	}
	c.withoutCall.Add(int64(n))
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err != nil {
		c.Close() // gRPC waits until reading fails too, which it needn't
	}
	return n, err
}

func (c *conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// slowDown makes the next Read wait.
func (c *conn) slowDown() { c.pause.Add(int64(slowDownBy)) }

// begin and end count the calls under way.
func (c *conn) begin() {
	c.used.Store(true)
	c.withoutCall.Store(0)
	c.calls.Add(1)
	c.lastCall.Store(time.Now().UnixNano())
}

func (c *conn) end() {
	c.lastCall.Store(time.Now().UnixNano())
	c.calls.Add(-1)
}

func (c *conn) Close() error {
	c.close.Do(func() {
		close(c.closed) // before the lock: what isn't counted yet isn't from now on
		c.listener.mu.Lock()
		delete(c.listener.open, c)
		client := c.client
		c.listener.mu.Unlock()
		if client != nil {
			c.turns.Close()
			c.listener.calls.disconnect(client)
		}
	})
	return c.Conn.Close()
}

// complaints lets one complaint pass in each complaintInterval.
type complaints struct {
	mu   sync.Mutex
	last time.Time
}

func (c *complaints) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && time.Since(c.last) < complaintInterval {
		return false
	}
	c.last = time.Now()
	return true
}
