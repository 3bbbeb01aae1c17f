// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The daemon has an endpoint for each version that was published, and no other but
// our own storage group, and those for drains and the control of the simulated node.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	sockets, err := os.ReadDir(n.path("run"))
	must(t, err)
	var got []string
	for _, s := range sockets {
		if strings.HasSuffix(s.Name(), ".sock") {
			got = append(got, s.Name())
		}
	}
	want := []string{
		"csi-proxy-admin.sock", filepath.Base(n.socket("sim", "v1")), filepath.Base(n.socket("storage", "v1alpha1")),
	}
	for _, v := range versions {
		want = append(want, filepath.Base(n.socket(v.group, v.name)))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// The daemon describes each service as the published module does: what a driver
// puts on the wire means the same at both ends.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, v := range versions {
		t.Run(v.String(), func(t *testing.T) {
			published := v.service().ParentFile()
			served, err := n.reflected(v, string(v.service().FullName()))
			must(t, err)
			diff := cmp.Diff(protodesc.ToFileDescriptorProto(published), protodesc.ToFileDescriptorProto(served),
				protocmp.Transform(),
				protocmp.IgnoreFields(new(descriptorpb.FileDescriptorProto), "name", "options"), protocmp.IgnoreEmptyMessages(),
				protocmp.SortRepeated(func(a, b *descriptorpb.DescriptorProto) bool { return a.GetName() < b.GetName() }),
				protocmp.SortRepeated(func(a, b *descriptorpb.MethodDescriptorProto) bool { return a.GetName() < b.GetName() }))
			if diff != "" {
				t.Errorf("the daemon's description differs (-published +daemon):\n%s", diff)
			}
		})
	}
}

// reflected asks the endpoint of v for the file that declares a service.
func (n *node) reflected(v version, service string) (protoreflect.FileDescriptor, error) {
	conn, err := n.dial(v.group, v.name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
	}); err != nil {
		return nil, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	encoded := resp.GetFileDescriptorResponse().GetFileDescriptorProto()
	if len(encoded) != 1 {
		return nil, fmt.Errorf("%d files for %s, want one without imports: %v", len(encoded), service, resp)
	}
	file := new(descriptorpb.FileDescriptorProto)
	// The option debug_redact is newer than the published module.
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded[0], file); err != nil {
		return nil, err
	}
	return protodesc.NewFile(file, nil)
}
