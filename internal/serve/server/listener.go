// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

const (
	// maxConnections limits the connections of all endpoints together. Drivers have one or two for
	// each group in use.
	maxConnections = 1024

	// writeTimeout bounds a write to a client that has stopped reading.
	writeTimeout = 30 * time.Second

	// logInterval is the least time between two log lines about the same problem.
	logInterval = time.Minute
)

// connections are the open connections of all endpoints.
type connections struct {
	log *slog.Logger

	mu       sync.Mutex // guards all below
	open     map[*conn]struct{}
	stopping bool // new connections are closed
	tooMany  throttle

	maxHeldBytes int64
	held         heldBytes     // of all connections together
	freed        chan struct{} // closed when held.answers falls; nil if no long answer waits for room
	unfinished   throttle      // has a lock of its own
}

// add adds a connection, up to the limit.
func (all *connections) add(c *conn) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.stopping {
		return false
	}
	if len(all.open) >= maxConnections {
		if all.tooMany.allows() {
			all.log.Warn("closing a new connection, since too many are open", "limit", maxConnections)
		}
		return false
	}
	all.open[c] = struct{}{}
	return true
}

func (all *connections) remove(c *conn) {
	all.change(c, func() { delete(all.open, c) })
}

func (all *connections) isStopping() bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.stopping
}

func (all *connections) count() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.open)
}

// stop closes all silent connections, and all later ones. A graceful stop of gRPC would wait for
// their handshakes.
func (all *connections) stop() {
	all.closeIf(func(c *conn) bool { return !c.spoke.Load() })
}

// cut closes all connections, which cancels their calls.
func (all *connections) cut() {
	all.closeIf(func(*conn) bool { return true })
}

func (all *connections) closeIf(due func(*conn) bool) {
	var closed []*conn
	all.mu.Lock()
	all.stopping = true
	for c := range all.open {
		if due(c) {
			closed = append(closed, c)
		}
	}
	all.mu.Unlock()
	for _, c := range closed {
		c.Close() // an error doesn't matter: nobody uses it any more
	}
}

// listener accepts the connections of an endpoint.
//
// Every published Go client opens two connections, and never uses, reads or closes the first. gRPC
// closes the unused connection after prefaceTimeout, unnoticed. A connection to an HTTP/2 client
// stays for as long as the client answers pings, with calls or without: drivers connect at startup,
// and may make their first call days later.
type listener struct {
	net.Listener
	log    *slog.Logger
	all    *connections
	errors *throttle    // of the log lines about errors of accepting
	works  *atomic.Bool // a client has connected
}

// Accept implements net.Listener. gRPC retries after a temporary error.
func (l listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, l.temporaryOr(err)
		}
		l.works.Store(true)
		c := &conn{Conn: inner, all: l.all, in: bufio.NewReaderSize(inner, bufferBytes), frames: frames{left: len(http2.ClientPreface)}}
		if l.all.add(c) {
			return c, nil
		}
		inner.Close() // nothing was sent on it
	}
}

// temporaryOr marks an error of accepting as temporary, such as too many open files. Two errors are
// permanent: a closed listener, and a permission error before the first connection. On Windows, the
// latter means that the daemon's account may not use its own pipes; later, a client has changed the
// access list of its pipe.
func (l listener) temporaryOr(err error) error {
	isRefused := errors.Is(err, fs.ErrPermission) && !l.works.Load()
	if l.all.isStopping() || errors.Is(err, net.ErrClosed) || isRefused {
		return err
	}
	if l.errors.allows() {
		l.log.Error("accepting connections; trying again", "err", err)
	}
	return temporary{err}
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }

// conn is a connection. If the client reads nothing for writeTimeout, the connection is closed, and
// pending answers are dropped.
type conn struct {
	net.Conn
	all   *connections
	spoke atomic.Bool // something has come

	in              *bufio.Reader
	frames          frames   // of what was read
	unbegun         uint32   // the stream of a request whose headers ended with the last Read, until beginRequest; 0 for none
	unfinished      sync.Map // of *unfinished, by the stream
	unfinishedBytes int64    // guarded by all.mu

	sent          atomic.Int64 // in bytes
	isWriting     atomic.Bool
	untaken       int64       // of answers, in bytes, guarded by all.mu like the fields below
	untakenLong   int64       // the part of untaken in long answers
	sentBefore    int64       // sent when late was set
	untakenErrors int64       // of failed calls that gRPC may not have written, in bytes
	late          *time.Timer // looks at untaken; nil before the first answer
}

// Read reads no further than to the end of a frame's header or payload.
func (c *conn) Read(p []byte) (int, error) {
	if c.unbegun != 0 { // gRPC has refused the request: it is malformed
		c.unbegun = 0
		c.all.change(c, func() { c.untakenErrors += maxHeaderBytes })
	}
	n, err := c.in.Read(p[:min(len(p), c.frames.rest())])
	if n > 0 {
		c.spoke.Store(true)
	}
	isHeader, isFrame := c.frames.add(p[:n])
	if isHeader && c.frames.kind() == http2.FrameData {
		if r, ok := c.unfinished.Load(c.frames.stream()); ok {
			c.all.change(c, func() { r.(*unfinished).count(int64(frameHeaderBytes + c.frames.length())) })
		}
	}
	if isFrame && c.frames.endsHeaders() {
		c.unbegun = c.frames.stream()
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if len(p) < bufferBytes { // gRPC's queue is empty: with more to write, gRPC fills its buffer
		c.all.change(c, func() { c.untakenErrors = 0 })
	}
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	c.isWriting.Store(true)
	n, err := c.Conn.Write(p)
	c.isWriting.Store(false)
	c.sent.Add(int64(n))
	if err != nil {
		c.Close() // gRPC would wait until reading fails, too
	}
	return n, err
}

func (c *conn) Close() error {
	c.all.remove(c)
	return c.Conn.Close()
}

// caller is the process at the other end of a connection, for the log.
type caller struct {
	process uint32 // 0 if the system doesn't tell
	program string // its path; "" if the system doesn't tell
}

// infoOf returns information about the connection of ctx's call. Every call has this information,
// because Server.options sets plaintext as the credentials of each server.
func infoOf(ctx context.Context) connInfo {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(connInfo)
}

// plaintext are credentials without encryption and authentication: the endpoints provide both.
// plaintext adds the process at the other end to the contexts of handlers, as the peer.
type plaintext struct {
	credentials.TransportCredentials
}

func newPlaintext() plaintext { return plaintext{insecure.NewCredentials()} }

// ServerHandshake implements credentials.TransportCredentials. Connections of package pipe know
// their callers.
func (plaintext) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var info connInfo
	info.SecurityLevel = credentials.NoSecurity
	info.conn = c.(*conn)
	if knowing, ok := info.conn.Conn.(interface{ Caller() (uint32, string) }); ok {
		info.caller.process, info.caller.program = knowing.Caller()
	}
	return c, info, nil
}

// Clone implements credentials.TransportCredentials.
func (p plaintext) Clone() credentials.TransportCredentials { return p }

type connInfo struct {
	credentials.CommonAuthInfo
	conn   *conn
	caller caller
}

// AuthType implements credentials.AuthInfo.
func (connInfo) AuthType() string { return "none" }

// throttle allows one log line in each logInterval.
type throttle struct {
	mu   sync.Mutex
	last time.Time
}

func (t *throttle) allows() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.last.IsZero() && time.Since(t.last) < logInterval {
		return false
	}
	t.last = time.Now()
	return true
}
