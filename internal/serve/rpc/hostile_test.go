// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/published"
)

// Whatever the bytes, a method answers, and gives no operation a text that isn't
// UTF-8.
func FuzzRequests(f *testing.F) {
	node := new(fakeNode)
	services, err := Services(operations(node))
	if err != nil {
		f.Fatal(err)
	}
	var all []method
	for _, s := range services {
		for _, name := range slices.Sorted(maps.Keys(s.methods)) {
			all = append(all, s.methods[name])
		}
	}
	for i := range all {
		f.Add(uint(i), []byte("\x0a\x05\x0a\x01a\x10\x01\x12\x01i\x18\x02\x22\x01u\x2a\x01s"))
		f.Add(uint(i), []byte("\x0a\x01\xff"))
		f.Add(uint(i), []byte("\x08\x01\x10\x01"))
	}
	f.Fuzz(func(t *testing.T, index uint, request []byte) {
		node.calls = nil
		m := all[index%uint(len(all))]
		decode := func(m any) error { return proto.Unmarshal(request, m.(proto.Message)) }
		var resp any
		var err error
		if m.stream != nil {
			stream := &oneRequest{ctx: t.Context(), decode: decode}
			err = m.streamDesc("M").Handler(nil, stream)
			resp = stream.sent
		} else {
			resp, err = m.desc("S", "M").Handler(nil, t.Context(), decode, nil)
		}
		if err == nil && resp == nil {
			t.Error("neither an answer nor an error")
		}
		for _, call := range node.calls {
			if !utf8.ValidString(fmt.Sprint(call)) {
				t.Errorf("call %q", call)
			}
		}
	})
}

// oneRequest is a stream with one request.
type oneRequest struct {
	grpc.ServerStream
	ctx    context.Context
	decode func(any) error
	sent   any // the last response
}

func (s *oneRequest) Context() context.Context { return s.ctx }
func (s *oneRequest) RecvMsg(m any) error      { return s.decode(m) }
func (s *oneRequest) SendMsg(m any) error      { s.sent = m; return nil }

// oddHardware has texts that aren't UTF-8.
type oddHardware struct{ *fakeNode }

func (oddHardware) ListDiskIDs(context.Context) (map[csiproxy.DiskNumber]published.DiskIDs, error) {
	return map[csiproxy.DiskNumber]published.DiskIDs{1: {Page83: "id\xff", SerialNumber: "vol\xff"}}, nil
}

func (oddHardware) GetBIOSSerialNumber(context.Context) (string, error) { return "bios\xff", nil }

// One odd disk doesn't hide the others from drivers.
func TestHardwareTextThatIsNotUTF8(t *testing.T) {
	node := oddHardware{new(fakeNode)}
	for _, m := range []method{
		diskVersions(node)["v1"][0]["ListDiskIDs"],
		diskVersions(node)["v1beta1"][1]["ListDiskIDs"],
		systemVersions(node)["v1alpha1"][0]["GetBIOSSerialNumber"],
	} {
		resp, err := m.call(t.Context(), m.newRequest())
		must(t, err)
		text, err := proto.Marshal(resp.(proto.Message))
		if err != nil || !bytes.Contains(text, []byte("\uFFFD")) {
			t.Errorf("%v is sent as %q, error %v", resp, text, err)
		}
	}
}
