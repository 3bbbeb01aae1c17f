// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server serves the API: one gRPC server for each endpoint, with health checks and
// reflection, all starting and ending together.
//
// A faulty caller cannot affect other callers. A panic of a handler fails only its call, with
// Internal. Messages, headers, connections and calls are bounded.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphagrpc "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// Types of calls, as metrics of gRPC servers name them.
const (
	Unary  = "unary"
	Stream = "server_stream"
)

// Config configures a Server.
type Config struct {
	Endpoints []Endpoint

	// Count is called at the start of each call within the limits. callType is Unary or Stream, and
	// method has the form /v1.Disk/ListDiskIDs. ended is called at the call's end with the client's
	// status. Default: nothing is counted.
	Count func(callType, method string) (ended func(status error))

	// MaxCalls limits the calls in progress at all endpoints together, without streaming calls.
	// Default: DefaultMaxCalls.
	MaxCalls int

	// GracePeriod is how long a stop waits for running calls before cancelling them.
	GracePeriod time.Duration

	// Log gets a line for each failed call, as a warning or an error, and at LevelRequest for each
	// successful call. Default: none.
	Log *slog.Logger
}

// Endpoint is a service with its name and listener.
type Endpoint struct {
	// Name is the endpoint's name in logs and metrics, such as csi-proxy-disk-v1.
	Name    string
	Service Service
	// Listener is closed by Serve.
	Listener net.Listener
	// MaxRequestBytes limits the size of a request, in its encoded form. Default:
	// wire.MaxRequestBytes.
	MaxRequestBytes int
}

// Service is one version of an API group, as package rpc provides it.
type Service interface {
	// Register registers the service under all of its names.
	Register(grpc.ServiceRegistrar)
	// Files returns the descriptors of the service under all of its names.
	Files() (*protoregistry.Files, error)
}

// Bounds on the memory held by the server for a client, besides calls. The messages of the API are
// a few hundred bytes; even a list of all disks of a node is far smaller than these bounds.
const (
	maxHeaderBytes = 16 << 10
	bufferBytes    = 4 << 10
	// windowBytes is how many bytes of a request a client may send ahead of the server's reads, set
	// to gRPC's minimum. By default gRPC would adapt the window, up to 16 MiB.
	windowBytes = 64 << 10
	// maxCallsOfConnection limits the calls in progress on a connection, including streaming calls.
	// The client's library holds back further calls. Even if all calls of one connection hang, all
	// others have room.
	maxCallsOfConnection = 256
	// workers is the number of an endpoint's goroutines that stay for the next call; further
	// concurrent calls get new goroutines. A new goroutine's stack is small and is copied several
	// times on the way down to Windows, which is most of the cost of a short call. A streaming call
	// may keep a worker until its end.
	workers = 2
	// prefaceTimeout bounds the time until the end of a client's HTTP/2 preface. Clients send the
	// preface at once.
	prefaceTimeout = 10 * time.Second
	// minPingInterval is the shortest interval between a client's pings, with or without calls.
	minPingInterval = 5 * time.Second
	// After quietTimeout without any data, a connection gets a ping. Any HTTP/2 client answers
	// pings, even without calls. If the answer takes longer than pingTimeout, the connection is
	// closed: the client has gone, hangs, or never was a client.
	quietTimeout = 2 * time.Minute
	pingTimeout  = 20 * time.Second
	// cancelPeriod is how long a stop waits for cancelled calls. A call stuck in the operating
	// system must not keep the process alive.
	cancelPeriod = time.Second
)

// Server serves endpoints.
type Server struct {
	endpoints   []*endpoint
	connections connections
	calls       *calls
	refusals    throttle
	count       func(callType, method string) (ended func(status error))
	drain       drain
	grace       time.Duration
	log         *slog.Logger

	stopping  context.Context // done from when a stop begins
	beginStop context.CancelFunc
}

// New returns a server for the endpoints. Clients that connect wait until Serve.
func New(config Config) *Server {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Count == nil {
		config.Count = func(string, string) func(error) { return func(error) {} }
	}
	s := &Server{
		connections: connections{log: config.Log, open: make(map[*conn]struct{}), maxHeldBytes: maxHeldBytes},
		calls:       newCalls(config.MaxCalls),
		count:       config.Count,
		grace:       config.GracePeriod,
		log:         config.Log,
	}
	s.stopping, s.beginStop = context.WithCancel(context.Background())
	options := s.options()
	for _, e := range config.Endpoints {
		if e.MaxRequestBytes == 0 {
			e.MaxRequestBytes = wire.MaxRequestBytes
		}
		served := &endpoint{
			name:     e.Name,
			listener: listener{e.Listener, s.log.With("endpoint", e.Name), &s.connections, new(throttle), new(atomic.Bool)},
			server:   grpc.NewServer(append(options, grpc.MaxRecvMsgSize(e.MaxRequestBytes))...),
		}
		served.register(e.Service)
		s.endpoints = append(s.endpoints, served)
	}
	return s
}

// options returns the gRPC options common to all endpoints.
func (s *Server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(newPlaintext()),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(s.beginRequest),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.UnknownServiceHandler(s.answerUnknown),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxCallsOfConnection),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(windowBytes),
		grpc.NumStreamWorkers(workers),
		grpc.ReadBufferSize(0), // connections have their own
		grpc.WriteBufferSize(bufferBytes),
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPingInterval,
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: quietTimeout, Timeout: pingTimeout}),
	}
}

// Serve serves until ctx is done, or an endpoint ends with an error. Then Serve takes no new calls,
// waits for running calls, cancels all calls still running after the grace period, and closes all
// connections. Serve returns the error of the endpoint, and must be called only once.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, len(s.endpoints))
	var serving sync.WaitGroup
	for _, e := range s.endpoints {
		serving.Go(func() {
			if err := e.server.Serve(e.listener); err != nil {
				failed <- fmt.Errorf("serve %s: %w", e.name, err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	if s.stop() {
		serving.Wait()
	}
	return err
}

// stop ends all endpoints at the same time, gracefully if possible, and reports whether all calls
// have ended.
func (s *Server) stop() (all bool) {
	s.beginStop()
	s.connections.stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup
		for _, e := range s.endpoints {
			all.Go(e.server.GracefulStop)
		}
		all.Wait()
	}()
	if endsWithin(ended, s.grace) {
		return true
	}
	s.log.Warn("cancelling the calls that still run", "gracePeriod", s.grace)
	// The calls are cancelled by closing the connections. Stop is unsuitable: Stop waits for
	// handshakes, and before gRPC 1.85 for a lock that GracefulStop holds while a call doesn't end.
	s.connections.cut()
	if !endsWithin(ended, cancelPeriod) {
		s.log.Warn("leaving calls behind that don't end when cancelled")
		return false
	}
	return true
}

func endsWithin(ended <-chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}

// Connections returns the number of open connections.
func (s *Server) Connections() int { return s.connections.count() }

// Calls returns the calls in progress, and the number of refused calls.
func (s *Server) Calls() Calls { return s.calls.snapshot() }

// endpoint is a served endpoint.
type endpoint struct {
	name     string
	listener listener
	server   *grpc.Server
}

// register registers the service with health and reflection. Health is SERVING from the start to
// the end: a stop ends health watches, and takes no new checks.
func (e *endpoint) register(service Service) {
	service.Register(e.server)
	checks := health.NewServer()
	for name := range e.server.GetServiceInfo() {
		checks.SetServingStatus(name, healthgrpc.HealthCheckResponse_SERVING)
	}
	healthgrpc.RegisterHealthServer(e.server, checks)
	options := reflection.ServerOptions{
		Services:           e.server,
		DescriptorResolver: resolver{sync.OnceValues(service.Files)},
	}
	reflectiongrpc.RegisterServerReflectionServer(e.server, reflection.NewServerV1(options))
	reflectionalphagrpc.RegisterServerReflectionServer(e.server, reflection.NewServer(options))
}

// resolver finds descriptors for reflection: first the endpoint's service, then health and
// reflection, which are registered in every program that links them. The service's descriptors are
// built when a client first asks: few clients do, and the descriptors take more time and memory
// than the rest of an endpoint.
type resolver struct {
	files func() (*protoregistry.Files, error)
}

func (r resolver) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return find(r, func(files *protoregistry.Files) (protoreflect.FileDescriptor, error) {
		return files.FindFileByPath(path)
	})
}

func (r resolver) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return find(r, func(files *protoregistry.Files) (protoreflect.Descriptor, error) {
		return files.FindDescriptorByName(name)
	})
}

func find[D protoreflect.Descriptor](r resolver, in func(*protoregistry.Files) (D, error)) (D, error) {
	files, err := r.files()
	if err != nil {
		var none D
		return none, err
	}
	description, err := in(files)
	if errors.Is(err, protoregistry.NotFound) {
		return in(protoregistry.GlobalFiles)
	}
	return description, err
}
