// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server serves the API: one gRPC server for each endpoint, with health
// checks and reflection, that together start and end as one.
//
// Whatever a caller does stays the caller's affair. A handler that panics answers
// that call with Internal; a client that connects and says nothing costs a small
// goroutine; messages, headers and concurrent calls are bounded.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalphagrpc "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Config says what to serve, and how.
type Config struct {
	Endpoints []Endpoint

	// Interceptors run around each unary call, the first one outermost, inside of
	// the request log. One of them turns the errors of handlers into statuses.
	Interceptors []grpc.UnaryServerInterceptor

	// GracePeriod is how long a stop waits for running calls before it cancels
	// them.
	GracePeriod time.Duration

	// Log gets a line for each failed call, and at slog.LevelDebug for each
	// successful one. Default: none.
	Log *slog.Logger
}

// Endpoint is a service where clients reach it.
type Endpoint struct {
	// Name is the endpoint's in logs and metrics: csi-proxy-disk-v1.
	Name    string
	Service Service
	// Listener is closed by Serve, or by New if it fails.
	Listener net.Listener
}

// Service is one version of an API group, as package rpc provides it.
type Service interface {
	// Register registers the service under all of its names.
	Register(grpc.ServiceRegistrar)
	// Files returns the descriptors of the service under all of its names.
	Files() (*protoregistry.Files, error)
}

// Bounds of what a client can make the server hold. The messages of the API are
// a few hundred bytes; a list of all disks of a node stays far below these.
const (
	maxRequestBytes    = 1 << 20
	maxResponseBytes   = 4 << 20 // what a gRPC client accepts by default
	maxHeaderBytes     = 16 << 10
	maxConcurrentCalls = 256 // on one connection
	bufferBytes        = 4 << 10
	// workers are the goroutines of an endpoint that stay for the next call; more
	// calls at once get new ones. A new goroutine's stack is small and is copied
	// several times on the way down to Windows, which is the larger part of the
	// cost of a short call.
	workers = 2
	// prefaceTimeout is how long a client may take from its first byte to the
	// end of its HTTP/2 preface, which it sends at once.
	prefaceTimeout = 10 * time.Second
	// minPingInterval is how often a client may ping, also without calls.
	minPingInterval = 5 * time.Second
	// cancelPeriod is how long a stop waits for calls that it cancelled. One
	// that is stuck in the operating system mustn't keep the process alive.
	cancelPeriod = time.Second
)

// Server serves endpoints.
type Server struct {
	endpoints []*endpoint
	grace     time.Duration
	log       *slog.Logger

	stopping  context.Context // done from when a stop begins
	beginStop context.CancelFunc
}

// New returns a server for the endpoints. Clients that connect wait until Serve.
func New(config Config) (*Server, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{grace: config.GracePeriod, log: config.Log}
	s.stopping, s.beginStop = context.WithCancel(context.Background())
	for _, e := range config.Endpoints {
		files, err := e.Service.Files()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("serve %s: %w", e.Name, err), closeListeners(config.Endpoints))
		}
		served := &endpoint{
			name:     e.Name,
			listener: newListener(e.Listener, s.log.With("endpoint", e.Name)),
			server:   s.newGRPCServer(config.Interceptors),
		}
		served.register(e.Service, files)
		s.endpoints = append(s.endpoints, served)
	}
	return s, nil
}

func closeListeners(endpoints []Endpoint) error {
	var errs []error
	for _, e := range endpoints {
		errs = append(errs, e.Listener.Close())
	}
	return errors.Join(errs...)
}

func (s *Server) newGRPCServer(interceptors []grpc.UnaryServerInterceptor) *grpc.Server {
	// Recovering is done twice: inside, so that a panicking handler's call is
	// logged and counted as a failed one, and outside for the interceptors.
	unary := []grpc.UnaryServerInterceptor{s.recoverUnary, s.logUnary}
	unary = append(unary, interceptors...)
	unary = append(unary, s.recoverUnary)
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(unary...),
		grpc.ChainStreamInterceptor(s.recoverStream, s.endStream),
		grpc.UnknownServiceHandler(s.answerUnknown),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxSendMsgSize(maxResponseBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxConcurrentCalls),
		grpc.NumStreamWorkers(workers),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPingInterval,
			PermitWithoutStream: true,
		}),
	)
}

// Serve serves until ctx is done, or an endpoint ends with an error, which it
// returns. It then takes no new calls, waits for the running ones, cancels those
// that still run after the grace period, and closes all connections. It is
// called once.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, len(s.endpoints))
	var serving sync.WaitGroup
	for _, e := range s.endpoints {
		serving.Go(e.listener.run)
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
	s.stop()
	serving.Wait()
	return err
}

// stop ends all endpoints at the same time, gracefully if they can.
func (s *Server) stop() {
	s.beginStop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.each(func(e *endpoint) { e.server.GracefulStop() })
	}()
	if endsWithin(ended, s.grace) {
		return
	}
	s.log.Info("cancelling the calls that still run", "gracePeriod", s.grace)
	s.each(func(e *endpoint) {
		e.listener.closeOpen() // Stop would wait for those amid their handshake
		e.server.Stop()
	})
	if !endsWithin(ended, cancelPeriod) {
		s.log.Info("leaving calls behind that don't end when cancelled")
	}
}

func (s *Server) each(do func(*endpoint)) {
	var all sync.WaitGroup
	for _, e := range s.endpoints {
		all.Go(func() { do(e) })
	}
	all.Wait()
}

func endsWithin(ended <-chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return true
	case <-time.After(d):
		return false
	}
}

// Connections says how many connections each endpoint has, by its name.
func (s *Server) Connections() map[string]Connections {
	all := make(map[string]Connections)
	for _, e := range s.endpoints {
		all[e.name] = e.listener.connections()
	}
	return all
}

// endpoint is an endpoint with all that serves it.
type endpoint struct {
	name     string
	listener *listener
	server   *grpc.Server
}

// register registers the service with health and reflection. What answers is
// healthy: a stop ends health watches, and takes no new checks.
func (e *endpoint) register(service Service, files *protoregistry.Files) {
	service.Register(e.server)
	checks := health.NewServer()
	for name := range e.server.GetServiceInfo() {
		checks.SetServingStatus(name, healthgrpc.HealthCheckResponse_SERVING)
	}
	healthgrpc.RegisterHealthServer(e.server, checks)
	options := reflection.ServerOptions{
		Services:           e.server,
		DescriptorResolver: resolver{files, protoregistry.GlobalFiles},
	}
	reflectiongrpc.RegisterServerReflectionServer(e.server, reflection.NewServerV1(options))
	reflectionalphagrpc.RegisterServerReflectionServer(e.server, reflection.NewServer(options))
}

// resolver finds a descriptor in the first registry that has it: those of the
// endpoint's service, then those of health and reflection, which are registered
// in every program that links them.
type resolver []protodesc.Resolver

func (r resolver) FindFileByPath(path string) (file protoreflect.FileDescriptor, err error) {
	for _, registry := range r {
		if file, err = registry.FindFileByPath(path); !errors.Is(err, protoregistry.NotFound) {
			break
		}
	}
	return file, err
}

func (r resolver) FindDescriptorByName(name protoreflect.FullName) (d protoreflect.Descriptor, err error) {
	for _, registry := range r {
		if d, err = registry.FindDescriptorByName(name); !errors.Is(err, protoregistry.NotFound) {
			break
		}
	}
	return d, err
}
