// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
)

// eachMethod calls f with each exchange of [wiretest.Operations] that the server has a method for,
// in each version.
func eachMethod(f func(o wiretest.Operation, e wiretest.Exchange, version string)) {
	for _, o := range wiretest.Operations {
		for _, e := range o.Exchanges {
			for version := range strings.FieldsSeq(e.Versions) {
				if !o.ByClient(e) {
					f(o, e, version)
				}
			}
		}
	}
}

// Each method of each version, under both names, brings the values of its request
// to the operation and the operation's answer back.
func TestEveryMethod(t *testing.T) {
	var fullMethod string
	node := new(fakeNode)
	served := endpoints(t, node, grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		fullMethod = info.FullMethod
		return handler(ctx, req)
	}), grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) error {
		fullMethod = info.FullMethod
		return handler(srv, stream)
	}))

	called := make(map[string]bool)
	eachMethod(func(o wiretest.Operation, e wiretest.Exchange, version string) {
		endpoint := served[o.Group+" "+version]
		for _, service := range endpoint.Names() {
			name := "/" + service + "/" + e.Method
			node.calls, node.results = nil, map[string]any{o.Name: o.Result}
			resp, err := endpoint.call(t, name, e.Request)
			if err != nil {
				t.Errorf("%s of %s: %v", name, e.Request, err)
				continue
			}
			if len(node.calls) != 1 || node.calls[0].Operation != o.Name || !sameArgs(node.calls[0].Args, o.Args) {
				t.Errorf("%s of %s: calls %+v, want %s of %+v", name, e.Request, node.calls, o.Name, o.Args)
			}
			want := message(t, resp.Descriptor(), e.Response)
			if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
				t.Errorf("%s of %s: response (-want +got):\n%s", name, e.Request, diff)
			}
			if fullMethod != name {
				t.Errorf("%s of %s: interceptor ran for %s", name, e.Request, fullMethod)
			}
			called[name] = true
		}
	})
	for _, e := range served {
		for name := range e.methods {
			if !called[name] {
				t.Errorf("no test calls %s", name)
			}
		}
	}
}

// sameArgs reports whether an operation got the arguments of a [wiretest.Operation], whose numbers
// and texts have no types.
func sameArgs(got, want []any) bool {
	return slices.EqualFunc(got, want, func(got, want any) bool {
		v, to := reflect.ValueOf(want), reflect.TypeOf(got)
		return v.CanConvert(to) && cmp.Equal(got, v.Convert(to).Interface())
	})
}

// An error of the operation is the error of every method, under the method's name, also where a
// response goes with it.
func TestEveryMethodReturnsErrors(t *testing.T) {
	node := &fakeNode{err: &csiproxy.Error{Op: "Operation", Kind: context.DeadlineExceeded, Detail: "too late"}}
	served := endpoints(t, node)
	eachMethod(func(o wiretest.Operation, e wiretest.Exchange, version string) {
		endpoint := served[o.Group+" "+version]
		name := "/" + endpoint.Names()[0] + "/" + e.Method
		node.results = map[string]any{o.Name: o.Result}
		resp, err := endpoint.call(t, name, e.Request)
		if status.Code(err) != codes.DeadlineExceeded || status.Convert(err).Message() != e.Method+": too late" {
			t.Errorf("%s = %v, %v, want DeadlineExceeded", name, resp, err)
		}
	})
}

// Requests that our client doesn't send, but others do.
func TestOtherRequests(t *testing.T) {
	node := &fakeNode{results: map[string]any{"DataVolumeOfDisk": csiproxy.VolumeID("B")}}
	served := endpoints(t, node)
	for _, test := range []struct{ group, versions, method, request, calls string }{
		{"disk", "v1beta2", "SetAttachState", `{"diskID": "0"}`, "[{SetDiskState [0 false]}]"},

		// what Azure Disk's driver sends
		{"volume", "v2alpha1 v1 v1beta3", "ResizeVolume", `{"volume_id": "3", "size_bytes": 5000000000}`,
			"[{DataVolumeOfDisk [3]} {ResizeVolume [B 5000000000]}]"},
		{"volume", "v1beta2 v1beta1 v1alpha1", "ResizeVolume", `{"volume_id": "3", "size": 5000000000}`,
			"[{DataVolumeOfDisk [3]} {ResizeVolume [B 5000000000]}]"},
		// no disk number: the operation refuses it as a volume id
		{"volume", "v2alpha1 v1 v1beta3 v1beta2 v1beta1 v1alpha1", "ResizeVolume", `{"volume_id": "4294967296"}`,
			"[{ResizeVolume [4294967296 0]}]"},

		{"filesystem", "v1beta1 v1alpha1", "PathExists", `{"path": "c:\\p"}`, `[{PathExists [c:\p]}]`},
		{"filesystem", "v2alpha1 v1 v1beta2", "Rmdir", `{"path": "c:\\p"}`, `[{Rmdir [c:\p false]}]`},
		{"filesystem", "v1beta1 v1alpha1", "Rmdir", `{"path": "c:\\p", "context": "POD"}`, `[{Rmdir [c:\p false]}]`},

		// a portal without an address is one; the operation refuses it
		{"iscsi", "v1alpha2 v1alpha1", "RemoveTargetPortal", `{"target_portal": {}}`, "[{RemoveTargetPortal [:3260]}]"},

		{"storage", "v1alpha1", "ListDisks", `{}`, "[{ListDisks [any property]}]"},
		{"storage", "v1alpha1", "ListDisks", `{"disk": {"number": 0, "lun": 0, "vendor": "v"}}`,
			`[{ListDisks [the number 0, the LUN 0 and the vendor "v"]}]`},
	} {
		for version := range strings.FieldsSeq(test.versions) {
			e := served[test.group+" "+version]
			node.calls = nil
			if _, err := e.call(t, "/"+e.Names()[0]+"/"+test.method, test.request); err != nil {
				t.Errorf("%s of %s: %v", test.method, test.request, err)
			}
			if got := fmt.Sprint(node.calls); got != test.calls {
				t.Errorf("%s %s of %s: calls %s, want %s", version, test.method, test.request, got, test.calls)
			}
		}
	}
}

// [wiretest.Operations] has each field of each request and response of the storage group, but of
// three that the tests of package storagewire fill. A field that is new fails here until its method
// has it.
func TestEveryMethodHasAllStorageFields(t *testing.T) {
	methods := storagev1alpha1.File_csiproxy_storage_v1alpha1_storage_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		method := methods.Get(i)
		if slices.Contains([]protoreflect.Name{"StageVolume", "UnstageVolume", "ExpandVolume"}, method.Name()) {
			continue
		}
		request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
		eachMethod(func(o wiretest.Operation, e wiretest.Exchange, _ string) {
			if o.Group != "storage" || e.Method != string(method.Name()) {
				return
			}
			for message, text := range map[*dynamicpb.Message]string{request: e.Request, response: e.Response} {
				one := dynamicpb.NewMessage(message.Descriptor())
				must(t, protojson.Unmarshal([]byte(text), one))
				proto.Merge(message, one)
			}
		})
		for _, message := range []*dynamicpb.Message{request, response} {
			fields := message.Descriptor().Fields()
			for i := range fields.Len() {
				if f := fields.Get(i); !message.Has(f) {
					t.Errorf("no exchange of %s has %s", method.Name(), f.FullName())
				}
			}
		}
	}
}
