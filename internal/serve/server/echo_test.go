// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echo is a service of two methods: /v1.Echo/Say answers by calling itself, and
// /v1.Echo/Shout does so again and again, until that is an error.
type echo func(ctx context.Context, said string) (string, error)

const (
	sayMethod   = "/v1.Echo/Say"
	shoutMethod = "/v1.Echo/Shout"
)

func (e echo) Register(registrar grpc.ServiceRegistrar) {
	say := func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		var request wrapperspb.StringValue
		if err := decode(&request); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{FullMethod: sayMethod}
		return interceptor(ctx, &request, info, func(ctx context.Context, req any) (any, error) {
			answer, err := e(ctx, req.(*wrapperspb.StringValue).GetValue())
			return wrapperspb.String(answer), err
		})
	}
	shout := func(_ any, stream grpc.ServerStream) error {
		var request wrapperspb.StringValue
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		for {
			answer, err := e(stream.Context(), request.GetValue())
			if err != nil {
				return err
			}
			if err := stream.SendMsg(wrapperspb.String(answer)); err != nil {
				return err
			}
		}
	}
	registrar.RegisterService(&grpc.ServiceDesc{
		ServiceName: "v1.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Say", Handler: say}},
		Streams:     []grpc.StreamDesc{{StreamName: "Shout", Handler: shout, ServerStreams: true}},
	}, nil)
}

func (echo) Files() (*protoregistry.Files, error) {
	return protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto),
		{
			Name:       proto.String("v1/echo.proto"),
			Package:    proto.String("v1"),
			Syntax:     proto.String("proto3"),
			Dependency: []string{"google/protobuf/wrappers.proto"},
			Service: []*descriptorpb.ServiceDescriptorProto{{
				Name: proto.String("Echo"),
				Method: []*descriptorpb.MethodDescriptorProto{{
					Name:       proto.String("Say"),
					InputType:  proto.String(".google.protobuf.StringValue"),
					OutputType: proto.String(".google.protobuf.StringValue"),
				}, {
					Name:            proto.String("Shout"),
					InputType:       proto.String(".google.protobuf.StringValue"),
					OutputType:      proto.String(".google.protobuf.StringValue"),
					ServerStreaming: proto.Bool(true),
				}},
			}},
		},
	}})
}

// say calls the echo service.
func say(ctx context.Context, client *grpc.ClientConn, text string) (string, error) {
	var answer wrapperspb.StringValue
	err := client.Invoke(ctx, sayMethod, wrapperspb.String(text), &answer)
	return answer.GetValue(), err
}

// shout begins a streaming call of the echo service.
func shout(t *testing.T, ctx context.Context, client *grpc.ClientConn, request any,
	options ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	stream, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, shoutMethod, options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(request); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// running is a server that serves one endpoint in memory.
type running struct {
	t        *testing.T
	server   *Server
	listener *countingListener
	stop     context.CancelFunc
	served   chan error // what Serve returned

	mu  sync.Mutex
	log []string
}

// Write implements io.Writer for logger: a line in each call.
func (r *running) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, string(line))
	return len(line), nil
}

// logger returns a logger for logged.
func (r *running) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start serves handler until the test's end, which is a graceful stop.
func start(t *testing.T, handler echo) *running {
	t.Helper()
	return startWith(t, Config{}, handler)
}

func startWith(t *testing.T, config Config, handler echo) *running {
	t.Helper()
	r := &running{t: t, listener: newCountingListener(), served: make(chan error, 1)}
	config.Endpoints = []Endpoint{{Name: "csi-proxy-echo-v1", Service: handler, Listener: r.listener}}
	config.GracePeriod, config.Log = gracePeriod, r.logger()
	r.server = New(config)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.served <- r.server.Serve(ctx) }()
	return r
}

// countingListener counts the connections accepted, and those of them that aren't
// closed yet.
type countingListener struct {
	*bufconn.Listener
	accepted, open atomic.Int64
	wrap           func(net.Conn) net.Conn // nil for as it is
	refused        atomic.Bool             // nothing is accepted any more
}

func newCountingListener() *countingListener {
	return &countingListener{Listener: bufconn.Listen(64 << 10)}
}

func (l *countingListener) Accept() (net.Conn, error) {
	if l.refused.Load() {
		return nil, fs.ErrPermission
	}
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Add(1)
	l.open.Add(1)
	counted := &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.open.Add(-1) })}
	if l.wrap != nil {
		return l.wrap(counted), nil
	}
	return counted, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

const gracePeriod = 10 * time.Second

// end stops the server and waits until it has ended without an error.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// dial returns a client, closed at the test's end or before.
func (r *running) dial(options ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	client, err := grpc.NewClient("passthrough:///echo", append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return r.listener.DialContext(ctx)
		}),
	}, options...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { client.Close() })
	return client
}

// silent returns a connection that hasn't sent anything.
func (r *running) silent() net.Conn {
	r.t.Helper()
	conn, err := r.listener.DialContext(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// logged returns the lines logged so far that contain text.
func (r *running) logged(text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.log), func(line string) bool { return !strings.Contains(line, text) })
}
