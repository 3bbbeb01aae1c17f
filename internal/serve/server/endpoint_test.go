// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 reflection v1alpha is deprecated, and what tools in the field still ask for

package server

import (
	"context"
	"net"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphagrpc "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// serve serves the echo service on a real pipe or socket until the test's end and
// returns its address.
func serve(t testing.TB) (*Server, string) {
	t.Helper()
	const name = "csi-proxy-echo-v1"
	dir := ""
	if runtime.GOOS != "windows" {
		dir = simtest.SocketDir(t)
	}
	claimed, err := pipe.Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := claimed.Listen(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Endpoints:   []Endpoint{{Name: name, Service: echo(upper), Listener: l}},
		GracePeriod: gracePeriod,
	})
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := claimed.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, pipe.Address(dir, name)
}

func dialPipe(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	client, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return pipe.Dial(ctx, address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestHealth(t *testing.T) {
	_, address := serve(t)
	client := healthgrpc.NewHealthClient(dialPipe(t, address))
	for _, service := range []string{"", "v1.Echo"} {
		resp, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetStatus(); got != healthgrpc.HealthCheckResponse_SERVING {
			t.Errorf("status of %q is %v", service, got)
		}
	}
	_, err := client.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: "v9.Echo"})
	wantCode(t, err, codes.NotFound)
}

func TestReflection(t *testing.T) {
	_, address := serve(t)
	client := dialPipe(t, address)
	stream, err := reflectiongrpc.NewServerReflectionClient(client).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(request *reflectiongrpc.ServerReflectionRequest) *reflectiongrpc.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}

	var services []string
	for _, service := range ask(&reflectiongrpc.ServerReflectionRequest{
		MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService() {
		services = append(services, service.GetName())
	}
	slices.Sort(services)
	if diff := cmp.Diff([]string{
		"grpc.health.v1.Health",
		"grpc.reflection.v1.ServerReflection",
		"grpc.reflection.v1alpha.ServerReflection",
		"v1.Echo",
	}, services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}

	for _, symbol := range []string{"v1.Echo", "grpc.health.v1.Health"} {
		files := ask(&reflectiongrpc.ServerReflectionRequest{
			MessageRequest: &reflectiongrpc.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
		}).GetFileDescriptorResponse().GetFileDescriptorProto()
		if !declares(t, files, symbol) {
			t.Errorf("no file declares %s", symbol)
		}
	}
}

// declares reports whether one of the encoded files has the service.
func declares(t *testing.T, files [][]byte, service string) bool {
	t.Helper()
	for _, encoded := range files {
		var file descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(encoded, &file); err != nil {
			t.Fatal(err)
		}
		for _, s := range file.GetService() {
			if file.GetPackage()+"."+s.GetName() == service {
				return true
			}
		}
	}
	return false
}

func TestReflectionAlpha(t *testing.T) {
	_, address := serve(t)
	stream, err := reflectionalphagrpc.NewServerReflectionClient(dialPipe(t, address)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionalphagrpc.ServerReflectionRequest{
		MessageRequest: &reflectionalphagrpc.ServerReflectionRequest_FileByFilename{FileByFilename: "v1/echo.proto"},
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if !declares(t, resp.GetFileDescriptorResponse().GetFileDescriptorProto(), "v1.Echo") {
		t.Errorf("answer is %v, want the file", resp)
	}
}

func BenchmarkCall(b *testing.B) {
	_, address := serve(b)
	client := dialPipe(b, address)
	for b.Loop() {
		if _, err := say(b.Context(), client, "hello"); err != nil {
			b.Fatal(err)
		}
	}
}
