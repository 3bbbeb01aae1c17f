// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawClient sends HTTP/2 frames as it likes.
type rawClient struct {
	t      testing.TB
	conn   net.Conn
	framer *http2.Framer
	next   uint32 // the id of the next stream

	block   bytes.Buffer
	headers *hpack.Encoder
}

// newRawClient begins HTTP/2 on a connection, and reads nothing from it.
func newRawClient(t testing.TB, conn net.Conn, settings ...http2.Setting) *rawClient {
	t.Helper()
	c := &rawClient{t: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	c.headers = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.framer.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return c
}

// begin sends the headers of a call and returns its stream, or 0 when the server has
// closed the connection.
func (c *rawClient) begin(method string, more ...hpack.HeaderField) uint32 {
	c.block.Reset()
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: method},
		{Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		if err := c.headers.WriteField(field); err != nil {
			c.t.Fatal(err)
		}
	}
	stream := c.next
	c.next += 2
	if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.block.Bytes(),
		EndHeaders: true}); err != nil {
		return 0
	}
	return stream
}

// call begins a call and sends its request. It reports whether the connection is open.
func (c *rawClient) call(method string, request []byte) bool {
	stream := c.begin(method)
	return stream != 0 && c.framer.WriteData(stream, true, frameOf(request, len(request))) == nil
}

// frameOf returns a gRPC message, with a header that says it has size bytes.
func frameOf(message []byte, size int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), message...)
}
