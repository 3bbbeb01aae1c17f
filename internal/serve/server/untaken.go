// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// Bounds on untaken answers. A client's HTTP/2 window decides how much gRPC sends of them; the calls
// have ended before.
const (
	// untakenBytes is what an untaken answer counts besides its bytes: gRPC keeps its call.
	untakenBytes = 4 << 10
	// shortAnswer is how much an answer counts that never waits for room: of most calls.
	shortAnswer = 2 * untakenBytes
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

// newAnswer counts an answer for its connection, a long one as soon as there is room, before it is encoded.
// If ctx ends before, the error is codes.ResourceExhausted.
func newAnswer(ctx context.Context, message any) (*answer, error) {
	size := int64(protobuf.Size(message.(protobuf.Message)))
	a := &answer{message: message, conn: infoOf(ctx).conn, bytes: size + untakenBytes}
	if size > wire.MaxResponseBytes {
		return nil, exhausted(ctx, "the answer has %d bytes, more than clients take, which is %d", size, int64(wire.MaxResponseBytes))
	}
	for {
		freed := a.conn.owe(a.bytes)
		if freed == nil {
			return a, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, exhausted(ctx, "the clients haven't taken their answers, and one of %d bytes has no room: try again later", size)
		}
	}
}

func exhausted(ctx context.Context, format string, args ...any) error {
	method, _ := grpc.Method(ctx)
	return wire.ToStatusOf(path.Base(method), csiproxy.Errorf(csiproxy.ErrResourceExhausted, format, args...))
}

// Marshal appends the mark to the encoded message, with the answer as its pool.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a := v.(*answer)
	data, err := c.CodecV2.Marshal(a.message)
	if err != nil {
		a.Put(nil)
		return nil, err
	}
	return append(data, mem.NewBuffer(&mark, a)), nil
}

// Put implements mem.BufferPool: gRPC needs the answer no more.
func (a *answer) Put(*[]byte) {
	c := a.conn
	c.all.change(c, func() {
		c.addAnswer(-a.bytes)
		if c.untaken == 0 {
			c.late.Stop()
		}
	})
}

// owe counts the bytes of an untaken answer. For a long answer without room, or if the connection has been closed,
// owe counts nothing, and returns a channel that is closed when bytes are freed. If the client takes next to nothing
// of its answers for writeTimeout, the connection is closed.
func (c *conn) owe(bytes int64) (freed <-chan struct{}) {
	c.all.change(c, func() {
		room := c.all.maxHeldBytes * 2 / 3
		_, isOpen := c.all.open[c]
		if bytes > shortAnswer && (c.all.held.answers+bytes > room || c.untaken+bytes > room/2 || !isOpen) {
			if c.all.freed == nil {
				c.all.freed = make(chan struct{})
			}
			freed = c.all.freed
			return
		}
		if c.untaken == 0 {
			c.watchAnswers()
		}
		c.addAnswer(bytes)
	})
	return freed
}

func (c *conn) addAnswer(bytes int64) {
	c.untaken += bytes
	if max(bytes, -bytes) > shortAnswer {
		c.untakenLong += bytes
	}
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
