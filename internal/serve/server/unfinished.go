// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
)

// Bounds on unfinished requests, whose messages have not yet arrived in full. gRPC counts their
// calls only afterwards, and keeps each piece of a message apart: a byte in a frame of its own takes
// ten bytes on the connection, and more than 40 in memory.
const (
	// maxHeldBytes limits the bytes of unfinished requests, and of untaken answers and errors, of all
	// connections together. Each unfinished request counts maxHeaderBytes in addition, each untaken answer
	// untakenBytes, and each error maxHeaderBytes. Beyond the limit, the connection with the most bytes is
	// closed, whatever its long answers take.
	// Long answers take two thirds at most, those of one connection one third: further ones wait.
	maxHeldBytes = DefaultMaxCalls*maxHeaderBytes + 8<<20
	// messageTimeout is how long the first message of a call may take; clients send it at once.
	// Afterwards, the connection is closed.
	messageTimeout = 10 * time.Second
)

// heldBytes are the bytes that count towards maxHeldBytes: of long answers, and of everything else.
type heldBytes struct{ answers, others int64 }

// unfinished is an unfinished request.
type unfinished struct {
	conn    *conn
	stream  uint32      // of HTTP/2
	bytes   int64       // what counts, guarded by conn.all.mu
	late    *time.Timer // closes the connection
	unwatch func() bool // of the call's end
}

type unfinishedKey struct{}

// beginRequest implements tap.ServerInHandle: gRPC calls it when the headers of a call have come, before the next Read.
func (s *Server) beginRequest(ctx context.Context, info *tap.Info) (context.Context, error) {
	clear(info.Header) // nobody reads it, and a call may last
	c := infoOf(ctx).conn
	r := &unfinished{conn: c, stream: c.unbegun}
	c.unbegun = 0
	c.all.change(c, func() {
		c.unfinished.Store(r.stream, r)
		r.count(maxHeaderBytes)
	})
	r.late = time.AfterFunc(messageTimeout, func() { c.closeFor("a request takes too long to arrive") })
	r.unwatch = context.AfterFunc(ctx, func() {
		r.remove()
		err := ctx.Err()
		c.countError(ctx, &err)
	})
	return context.WithValue(ctx, unfinishedKey{}, r), nil
}

func unfinishedOf(ctx context.Context) *unfinished { return ctx.Value(unfinishedKey{}).(*unfinished) }

// begun is called when the first message of a call has come.
func (r *unfinished) begun() { r.late.Stop() }

// received is called when a message has come, and more may come: with its frame, the message counts no more.
func (r *unfinished) received(message any) {
	size := int64(frameHeaderBytes + messageHeaderBytes + proto.Size(message.(proto.Message)))
	r.conn.all.change(r.conn, func() { r.count(-max(0, min(size, r.bytes-maxHeaderBytes))) })
}

// finish is called when the last message of a call has come.
func (r *unfinished) finish() {
	r.unwatch()
	r.remove()
}

func (r *unfinished) remove() {
	r.late.Stop()
	r.conn.all.change(r.conn, func() {
		r.conn.unfinished.Delete(r.stream)
		r.count(-r.bytes)
	})
}

func (r *unfinished) count(bytes int64) {
	r.bytes += bytes
	r.conn.unfinishedBytes += bytes
}

// heldBytes is what counts of an open connection. The caller holds c.all.mu.
func (c *conn) heldBytes() (held heldBytes) {
	if _, isOpen := c.all.open[c]; !isOpen {
		return held
	}
	held.answers, held.others = c.untakenLong, c.untaken-c.untakenLong+c.untakenErrors+c.unfinishedBytes
	return held
}

// change makes a change to what counts of a connection.
func (all *connections) change(c *conn, f func()) {
	if largest := all.changeAndFindLargest(c, f); largest != nil {
		largest.closeFor("unfinished requests, and untaken errors and short answers, of all clients take too much memory; this client's take the most")
	}
}

// changeAndFindLargest returns the connection to be closed, or nil within the limit.
func (all *connections) changeAndFindLargest(c *conn, f func()) (largest *conn) {
	all.mu.Lock()
	defer all.mu.Unlock()
	before := c.heldBytes()
	f()
	after := c.heldBytes()
	all.held.answers += after.answers - before.answers
	all.held.others += after.others - before.others
	if after.answers < before.answers && all.freed != nil {
		close(all.freed)
		all.freed = nil
	}
	if all.held.answers+all.held.others <= all.maxHeldBytes {
		return nil
	}
	for other := range all.open {
		if largest == nil || other.heldBytes().others > largest.heldBytes().others {
			largest = other
		}
	}
	return largest
}

func (c *conn) closeFor(reason string) {
	if c.all.unfinished.allows() {
		c.all.log.Warn("closing a connection", "reason", reason)
	}
	c.Close() // an error doesn't matter: nobody uses it any more
}

// frames follows the HTTP/2 frames that a client sends.
type frames struct {
	header [frameHeaderBytes]byte // of the latest frame
	has    int                    // bytes of the next header that have come
	left   int                    // bytes to come of the frame's payload, or of the connection's preface
}

const (
	frameHeaderBytes   = 9
	messageHeaderBytes = 5 // of gRPC
)

// rest returns how many bytes are to come of a header or a payload.
func (f *frames) rest() int {
	if f.left > 0 {
		return f.left
	}
	return frameHeaderBytes - f.has
}

// add adds at most rest bytes, and reports whether a frame's header or the whole frame ends with them.
func (f *frames) add(data []byte) (isHeader, isFrame bool) {
	if f.left > 0 {
		f.left -= len(data)
		return false, f.left == 0
	}
	f.has += copy(f.header[f.has:], data)
	if f.has < frameHeaderBytes {
		return false, false
	}
	f.has, f.left = 0, f.length()
	return true, f.left == 0
}

func (f *frames) length() int { return int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2]) }

func (f *frames) kind() http2.FrameType { return http2.FrameType(f.header[3]) }

func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31) }

// endsHeaders reports whether the headers of a request end with the frame.
func (f *frames) endsHeaders() bool {
	return (f.kind() == http2.FrameHeaders || f.kind() == http2.FrameContinuation) &&
		http2.Flags(f.header[4]).Has(http2.FlagHeadersEndHeaders)
}
