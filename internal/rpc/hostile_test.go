// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/wire"
)

// Bytes that are no message reach no operation of any version.
func TestUndecodableRequests(t *testing.T) {
	node := new(fakeNode)
	served := endpoints(t, node, withErrors...)
	for name, request := range map[string]string{
		"tag without value":     "\x08",
		"varint without end":    strings.Repeat("\xff", 11),
		"field number 0":        "\x02\x00",
		"length beyond the end": "\x0a\xff\xff\xff\xff\x07a",
		"groups without end":    strings.Repeat("\x0b", 20000),
		"end of no group":       "\x0c",
		"unknown wire type":     "\x0e",
	} {
		for _, e := range served {
			for method := range e.methods {
				var resp []byte
				err := e.conn.Invoke(t.Context(), method, []byte(request), &resp, grpc.ForceCodec(rawCodec{}))
				if status.Code(err) != codes.Internal {
					t.Errorf("%s: %s: error %v, want what gRPC sends itself, Internal", name, method, err)
				}
			}
		}
	}
	if len(node.calls) > 0 {
		t.Errorf("calls = %q, want none", node.calls)
	}
}

// Messages that no proper client sends are refused, without an operation.
func TestHostileRequests(t *testing.T) {
	node := new(fakeNode)
	served := endpoints(t, node, withErrors...)
	for _, test := range []struct {
		name, endpoint, method string
		request                string
		want                   codes.Code
	}{
		{"number for a portal", "iscsi v1alpha2", "AddTargetPortal", "\x08\x01", codes.InvalidArgument},
		{"portal in another field", "iscsi v1alpha2", "ConnectTarget", "\x7a\x03\x0a\x01a", codes.InvalidArgument},
		{"portal longer than the request", "iscsi v1alpha2", "DisconnectTarget", "\x0a\x03\x0a\x01", codes.Internal},
		{"address longer than the portal", "iscsi v1alpha2", "GetTargetDisks", "\x0a\x02\x0a\x05", codes.Internal},
		{"address that isn't UTF-8", "iscsi v1alpha2", "RemoveTargetPortal", "\x0a\x03\x0a\x01\xff", codes.Internal},
		{"greatest port", "iscsi v1alpha1", "DiscoverTargetPortal", "\x0a\x06\x10\xff\xff\xff\xff\x0f",
			codes.InvalidArgument},
		{"port of 64 bits", "iscsi v1alpha2", "AddTargetPortal", "\x0a\x0b\x10" + strings.Repeat("\xff", 9) + "\x01",
			codes.InvalidArgument},
		{"portals merged to one of a bad port", "iscsi v1alpha2", "AddTargetPortal",
			"\x0a\x03\x0a\x01a\x0a\x04\x10\x80\x80\x04", codes.InvalidArgument},
		{"greatest authentication type", "iscsi v1alpha2", "ConnectTarget", "\x0a\x03\x0a\x01a\x18\xff\xff\xff\xff\x07",
			codes.InvalidArgument},
		{"secret that isn't UTF-8", "iscsi v1alpha2", "SetMutualChapSecret", "\x0a\x01\xff", codes.Internal},
		{"password that isn't UTF-8", "smb v1", "NewSmbGlobalMapping", "\x22\x01\xff", codes.Internal},
		{"password that isn't UTF-8", "smb v1alpha1", "NewSmbGlobalMapping", "\x22\x01\xff", codes.Internal},
		{"path that isn't UTF-8", "smb v1beta1", "RemoveSmbGlobalMapping", "\x0a\x02\xc3\x28", codes.Internal},
		{"name that isn't UTF-8", "system v1alpha1", "StopService", "\x0a\x01\xc0\x10\x01", codes.Internal},
	} {
		t.Run(test.name+" "+test.endpoint, func(t *testing.T) {
			node.calls = nil
			e := served[test.endpoint]
			var resp []byte
			err := e.conn.Invoke(t.Context(), "/"+e.Names()[0]+"/"+test.method, []byte(test.request), &resp,
				grpc.ForceCodec(rawCodec{}))
			if status.Code(err) != test.want {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if len(node.calls) > 0 {
				t.Errorf("calls = %q, want none", node.calls)
			}
		})
	}
}

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
		for i := range s.descriptor.Methods().Len() {
			all = append(all, s.methods[s.descriptor.Methods().Get(i).Name()])
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
		decode := func(m any) error { return wire.Decode(request, m.(proto.Message)) }
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
			if !utf8.ValidString(call) {
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

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

// oddHardware has texts that aren't UTF-8.
type oddHardware struct{ *fakeNode }

func (oddHardware) ListDiskIDs(context.Context) (map[disk.Number]disk.IDs, error) {
	return map[disk.Number]disk.IDs{1: {Page83: "id\xff", SerialNumber: "vol\xff"}}, nil
}

func (oddHardware) GetBIOSSerialNumber(context.Context) (string, error) { return "bios\xff", nil }

// One odd disk doesn't hide the others from drivers.
func TestHardwareTextThatIsNotUTF8(t *testing.T) {
	node, ctx := oddHardware{new(fakeNode)}, t.Context()
	ids, err := diskHandler{node}.ListDiskIDs(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	oldIDs, err := diskByStringHandler{node}.ListDiskIDs(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	bios, err := systemHandler{node}.GetBIOSSerialNumber(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, resp := range []proto.Message{ids, oldIDs, bios} {
		if _, err := proto.Marshal(resp); err != nil {
			t.Errorf("%v can't be sent: %v", resp, err)
		}
	}
	if got, want := ids.DiskIDs[1].SerialNumber, "vol\uFFFD"; got != want {
		t.Errorf("serial number %q, want %q", got, want)
	}
}
