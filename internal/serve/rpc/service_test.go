// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/api"
)

// endpoint is a served version and a connection to it.
type endpoint struct {
	*Service
	conn *grpc.ClientConn
	// methods describe the methods by their full name: "/v1.Disk/Rescan".
	methods map[string]protoreflect.MethodDescriptor
}

// endpoints serves all versions of the node, each as the daemon does, by
// "group version".
func endpoints(t *testing.T, node *fakeNode, options ...grpc.ServerOption) map[string]endpoint {
	t.Helper()
	served := make(map[string]endpoint)
	for _, service := range services(t, node) {
		files, err := service.Files()
		must(t, err)
		conn := connect(t, func(server *grpc.Server) { service.Register(server) }, options...)
		e := endpoint{service, conn, make(map[string]protoreflect.MethodDescriptor)}
		for _, name := range service.Names() {
			descriptor, err := files.FindDescriptorByName(protoreflect.FullName(name))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			described := descriptor.(protoreflect.ServiceDescriptor).Methods()
			for i := range described.Len() {
				e.methods["/"+name+"/"+string(described.Get(i).Name())] = described.Get(i)
			}
		}
		served[service.Group+" "+service.Version] = e
	}
	return served
}

// call calls a method with a request in JSON, and returns the response, the only one of a
// streaming call, and its descriptor.
func (e endpoint) call(t *testing.T, fullMethod, request string) (*dynamicpb.Message, error) {
	t.Helper()
	method, ok := e.methods[fullMethod]
	if !ok {
		t.Fatalf("no descriptor of %s", fullMethod)
	}
	resp := dynamicpb.NewMessage(method.Output())
	return resp, e.conn.Invoke(t.Context(), fullMethod, message(t, method.Input(), request), resp)
}

func message(t *testing.T, descriptor protoreflect.MessageDescriptor, text string) *dynamicpb.Message {
	t.Helper()
	m := dynamicpb.NewMessage(descriptor)
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s from %s: %v", descriptor.FullName(), text, err)
	}
	return m
}

// A group without operations isn't served. Each version of the others is, with the methods of its
// descriptor: TestEveryMethod calls them.
func TestServedVersions(t *testing.T) {
	node := new(fakeNode)
	for groups, ops := range map[string]Operations{
		"": {}, "disk": {Disk: node}, "filesystem volume": {Volume: node, Filesystem: node}, "smb": {SMB: node},
		"iscsi system": {ISCSI: node, System: node}, "storage": {Storage: node},
	} {
		var want, got []string
		for group := range strings.FieldsSeq(groups) {
			for _, version := range api.Versions(group) {
				want = append(want, group+" "+version)
			}
		}
		services, err := Services(ops)
		must(t, err)
		for _, service := range services {
			got = append(got, service.Group+" "+service.Version)
			names := []string{api.QualifiedServiceName(service.Group, service.Version)}
			if api.IsPublished(service.Group) {
				names = append([]string{api.ServiceName(service.Group, service.Version)}, names...)
			}
			if !slices.Equal(service.Names(), names) {
				t.Errorf("%s %s has the names %q, want %q", service.Group, service.Version, service.Names(), names)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with operations of %q, served is %q", groups, got)
		}
	}
}

// A request that can't be translated is refused before any operation is called.
func TestBadRequests(t *testing.T) {
	node := new(fakeNode)
	served := endpoints(t, node)
	tests := []struct{ group, versions, method, request string }{
		{"disk", "v1beta2 v1beta1 v1alpha1", "PartitionDisk", `{"diskID": "4294967296"}`},
		{"disk", "v1beta2 v1beta1 v1alpha1", "PartitionDisk", `{}`},
		{"disk", "v1beta2 v1beta1", "DiskStats", `{"diskID": "-1"}`},
		{"disk", "v1beta2", "SetAttachState", `{"diskID": " 1", "isOnline": true}`},
		{"disk", "v1beta2", "GetAttachState", `{"diskID": "0x1"}`},
		{"volume", "v1beta2 v1beta1 v1alpha1", "ListVolumesOnDisk", `{"disk_id": "4294967296"}`},
		{"filesystem", "v1beta1 v1alpha1", "PathExists", `{"path": "c:\\p", "context": 2}`},
		{"filesystem", "v1beta1 v1alpha1", "Mkdir", `{"path": "c:\\p", "context": -1}`},
		{"filesystem", "v1beta1 v1alpha1", "Rmdir", `{"path": "c:\\p", "context": 7, "force": true}`},
		{"iscsi", "v1alpha2 v1alpha1", "AddTargetPortal", `{}`},
		{"iscsi", "v1alpha2 v1alpha1", "DiscoverTargetPortal", `{}`},
		{"iscsi", "v1alpha2 v1alpha1", "RemoveTargetPortal", `{}`},
		{"iscsi", "v1alpha2 v1alpha1", "ConnectTarget", `{"iqn": "i"}`},
		{"iscsi", "v1alpha2 v1alpha1", "DisconnectTarget", `{"iqn": "i"}`},
		{"iscsi", "v1alpha2 v1alpha1", "GetTargetDisks", `{"iqn": "i"}`},
		{"iscsi", "v1alpha2 v1alpha1", "AddTargetPortal", `{"target_portal": {"target_address": "a", "target_port": 65536}}`},
		{"iscsi", "v1alpha2 v1alpha1", "GetTargetDisks",
			`{"target_portal": {"target_address": "a", "target_port": 4294967295}}`},
		{"iscsi", "v1alpha2 v1alpha1", "ConnectTarget",
			`{"target_portal": {"target_address": "a"}, "iqn": "i", "auth_type": 3}`},
		{"iscsi", "v1alpha2 v1alpha1", "ConnectTarget",
			`{"target_portal": {"target_address": "a"}, "iqn": "i", "auth_type": -1}`},
		{"storage", "v1alpha1", "ListDisks", `{"disk": {"iscsi": {"portal": {"port": 65536}}}}`},
		{"storage", "v1alpha1", "WatchDisks", `{"disk": {"iscsi": {"portal": {"port": 65536}}}}`},
		{"storage", "v1alpha1", "StageVolume", `{"disk": {"iscsi": {"portal": {"port": 65536}}}}`},
		{"storage", "v1alpha1", "StageVolume", `{"login": {"type": 3}}`},
		{"storage", "v1alpha1", "StageVolume", `{"wait_milliseconds": 9223372036854775807}`},
		{"storage", "v1alpha1", "UnstageVolume", `{"disk": {"iscsi": {"portal": {"port": 65536}}}}`},
		{"storage", "v1alpha1", "ExpandVolume", `{"wait_milliseconds": 9223372036854775807}`},
	}
	for _, test := range tests {
		for version := range strings.FieldsSeq(test.versions) {
			e := served[test.group+" "+version]
			name := "/" + e.Names()[0] + "/" + test.method
			node.calls = nil
			if resp, err := e.call(t, name, test.request); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s of %s = %v, %v, want InvalidArgument", name, test.request, resp, err)
			}
			if len(node.calls) > 0 {
				t.Errorf("%s of %s called %v", name, test.request, node.calls)
			}
		}
	}
}

// If the disk's volume can't be told, a resize by disk number resizes nothing.
func TestResizeByDiskNumberFails(t *testing.T) {
	node := &fakeNode{err: errors.New("two data volumes")}
	served := endpoints(t, node)
	if _, err := served["volume v1"].call(t, "/v1.Volume/ResizeVolume", `{"volume_id": "3"}`); err == nil {
		t.Error("resize succeeded")
	}
	if got := fmt.Sprint(node.calls); got != "[{DataVolumeOfDisk [3]}]" {
		t.Errorf("calls %s", got)
	}
}

// All of the daemon's start-up that this package does.
func BenchmarkServices(b *testing.B) {
	node := new(fakeNode)
	for b.Loop() {
		if _, err := Services(operations(node)); err != nil {
			b.Fatal(err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
