// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/api"
)

// daemon is a fake daemon in memory. It answers the published service names only
// and knows of a version what its descriptors say.
type daemon struct {
	// answer gets the method's name and the request as JSON and returns the
	// response as JSON.
	answer func(method, request string) (string, error)

	mu        sync.Mutex // guards all below
	listeners map[string]*bufconn.Listener
	servers   map[string]*grpc.Server
	dialled   []string // "disk v1", also those that aren't served
}

func newDaemon(t *testing.T, answer func(method, request string) (string, error)) *daemon {
	d := &daemon{answer: answer, listeners: make(map[string]*bufconn.Listener), servers: make(map[string]*grpc.Server)}
	t.Cleanup(func() {
		for endpoint := range d.servers {
			d.stop(endpoint)
		}
	})
	return d
}

// serve serves endpoints such as "disk v1".
func (d *daemon) serve(endpoints ...string) {
	for _, endpoint := range endpoints {
		listener := bufconn.Listen(64 << 10)
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			return d.handle(endpoint, stream)
		}))
		go server.Serve(listener) // ends with the server
		d.mu.Lock()
		d.listeners[endpoint], d.servers[endpoint] = listener, server
		d.mu.Unlock()
	}
}

func (d *daemon) stop(endpoint string) { d.take(endpoint).Stop() }

// take takes an endpoint away from clients and returns what served it.
func (d *daemon) take(endpoint string) *grpc.Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	server := d.servers[endpoint]
	delete(d.servers, endpoint)
	delete(d.listeners, endpoint)
	return server
}

func (d *daemon) dial(ctx context.Context, group, version string) (net.Conn, error) {
	endpoint := group + " " + version
	d.mu.Lock()
	d.dialled = append(d.dialled, endpoint)
	listener := d.listeners[endpoint]
	d.mu.Unlock()
	if listener == nil {
		return nil, &fs.PathError{Op: "dial", Path: endpoint, Err: fs.ErrNotExist}
	}
	return listener.DialContext(ctx)
}

// dials returns which endpoints were dialled since it was last called.
func (d *daemon) dials() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	dialled := d.dialled
	d.dialled = nil
	return strings.Join(dialled, ", ")
}

func (d *daemon) handle(endpoint string, stream grpc.ServerStream) error {
	group, version, _ := strings.Cut(endpoint, " ")
	service, _ := api.Service(group, version)
	fullMethod, _ := grpc.Method(stream.Context())
	name, _ := strings.CutPrefix(fullMethod, "/"+api.ServiceName(group, version)+"/")
	method := service.Methods().ByName(protoreflect.Name(name))
	if method == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", fullMethod)
	}
	request := dynamicpb.NewMessage(method.Input())
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	text, err := protojson.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := d.answer(string(method.Name()), strings.ReplaceAll(string(text), " ", ""))
	if err != nil {
		return err
	}
	response := dynamicpb.NewMessage(method.Output())
	if err := protojson.Unmarshal([]byte(answer), response); err != nil {
		return fmt.Errorf("the test's answer: %w", err)
	}
	return stream.SendMsg(response)
}

// newClient returns a client of the daemon.
func (d *daemon) newClient(t *testing.T, opts ...Option) *Client {
	c := New(append([]Option{WithDialer(d.dial)}, opts...)...)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func wantKind(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}
