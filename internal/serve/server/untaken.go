// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// Bounds on untaken answers. A client's HTTP/2 window decides how much gRPC sends of them; the calls
// have ended before.
const (
	// untakenBytes is what an untaken answer counts besides its bytes: gRPC keeps its call.
	untakenBytes = 4 << 10
	// minTaken is how much a client that takes its answers lets the server send in writeTimeout.
	// Answers to pings and settings are smaller.
	minTaken = 1 << 10
)

// answer is a message for a client. It counts for its connection until gRPC has sent it, or the call is
// canceled.
type answer struct {
	mem.BufferPool // nil, since gRPC only calls Put
	message        any
	conn           *conn
	bytes          int64
}

// codec is gRPC's codec for requests, and for messages of type *answer.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal decodes a request without its unknown fields, since calls with the same request share long answers.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return protobuf.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(buffer.ReadOnlyData(), v.(protobuf.Message))
}

// mark is an empty buffer, with the least capacity that makes gRPC return a buffer to its pool: package
// mem of gRPC pools only buffers of more than 1 KiB.
var mark = make([]byte, 0, 1<<10+1)

// Marshal appends the mark to the encoded message, with the answer as its pool. The answer counts before it
// is encoded: answers beyond maxHeldBytes are never made.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a := v.(*answer)
	a.bytes = int64(protobuf.Size(a.message.(protobuf.Message))) + untakenBytes
	a.conn.owe(a.bytes)
	if !a.conn.isOpen() {
		return nil, net.ErrClosed
	}
	data, err := c.CodecV2.Marshal(a.message)
	if err != nil {
		a.conn.owe(-a.bytes)
		return nil, err
	}
	return append(data, mem.NewBuffer(&mark, a)), nil
}

// Put implements mem.BufferPool: gRPC needs the answer no more.
func (a *answer) Put(*[]byte) { a.conn.owe(-a.bytes) }

// owe adds to the bytes of the connection's untaken answers. If the client takes next to nothing of them
// for writeTimeout, the connection is closed.
func (c *conn) owe(bytes int64) {
	c.all.change(c, func() {
		if c.untaken == 0 {
			c.watchAnswers()
		}
		c.untaken += bytes
		if c.untaken == 0 {
			c.late.Stop()
		}
	})
}

// countError counts the error of a call, until gRPC has written it. An error counts as much as headers: the
// status is in it twice, with texts of up to 2 KiB. gRPC drops the error of a canceled call, but keeps the
// call's headers while a write to the client doesn't end.
func (c *conn) countError(ctx context.Context, err *error) {
	if *err != nil && (ctx.Err() == nil || c.isWriting.Load()) {
		c.all.change(c, func() { c.untakenErrors += maxHeaderBytes })
	}
}

// watchAnswers looks at the connection after writeTimeout. The caller holds c.all.mu.
func (c *conn) watchAnswers() {
	c.sentBefore = c.sent.Load()
	if c.late == nil {
		c.late = time.AfterFunc(writeTimeout, c.checkAnswers)
		return
	}
	c.late.Reset(writeTimeout)
}

func (c *conn) checkAnswers() {
	if c.takesNothing() {
		c.closeFor("its client takes no answers")
	}
}

// takesNothing also has checkAnswers called again while answers of an open connection are untaken.
func (c *conn) takesNothing() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if _, isOpen := c.all.open[c]; !isOpen || c.untaken == 0 {
		return false
	}
	sent := c.sent.Load() - c.sentBefore
	c.watchAnswers()
	return sent < minTaken
}
