// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// Faults of the table of versions.
var (
	errMissingMethod   = errors.New("no handler answers it")
	errUnknownMethod   = errors.New("the version has no such method")
	errDuplicateMethod = errors.New("two handlers answer it")
	errStreaming       = errors.New("its handler doesn't stream as it does")
)

// method answers one gRPC method, for every version whose request and response are wire-identical
// to the handler's. Either call or stream is set.
type method struct {
	request, response protoreflect.MessageDescriptor
	newRequest        func() proto.Message
	call              grpc.UnaryHandler
	stream            streamHandler
}

// streamHandler answers a request with a stream of responses. Each call of send returns when the
// client has asked for the next response.
type streamHandler func(ctx context.Context, req any, send func(proto.Message) error) error

// methods are methods by their names in a version.
type methods map[protoreflect.Name]method

// methodOf returns a method with these messages. The caller sets call or stream.
func methodOf[Request, Response proto.Message]() method {
	var request Request
	var response Response
	return method{
		request:    request.ProtoReflect().Descriptor(),
		response:   response.ProtoReflect().Descriptor(),
		newRequest: func() proto.Message { return request.ProtoReflect().New().Interface() },
	}
}

// unary makes a method of a handler function. The types are pointers to generated
// message structs.
func unary[Request, Response proto.Message](handle func(context.Context, Request) (Response, error)) method {
	m := methodOf[Request, Response]()
	m.call = func(ctx context.Context, req any) (any, error) { return handle(ctx, req.(Request)) }
	return m
}

// maxRuns limits the runs of a shared method, with different requests, at one time: see shared.
const maxRuns = 16

// shared is unary for a long answer. Concurrent calls with the same request share one run and one response,
// however many calls a client makes. A run begins after the calls that share it, and may outlast them. A hanging run ends
// with its context, so that later calls get a run of their own.
func shared[Request, Response proto.Message](handle func(context.Context, Request) (Response, error)) method {
	return share(unary(handle))
}

// share is shared for any messages: the program contains the code only once.
func share(m method) method {
	runs := operation.NextRun[string, any]{Room: make(chan struct{}, maxRuns)}
	name, call := strings.TrimSuffix(string(m.request.Name()), "Request"), m.call
	m.call = func(ctx context.Context, req any) (any, error) {
		key, err := proto.Marshal(req.(proto.Message))
		if err != nil {
			return nil, err
		}
		return runs.Do(ctx, string(key), func(ctx context.Context) (any, error) {
			return operation.Run(ctx, name, func(ctx context.Context) (any, error) { return call(ctx, req) })
		})
	}
	return m
}

// action makes a method of a handler function without a result, whose response is empty.
func action[Request proto.Message](handle func(context.Context, Request) error) method {
	m := methodOf[Request, *emptypb.Empty]()
	m.call = func(ctx context.Context, req any) (any, error) { return &emptypb.Empty{}, handle(ctx, req.(Request)) }
	return m
}

// streaming makes a method of a handler function with any number of responses. The function must
// end when send returns an error.
func streaming[Request, Response proto.Message](handle func(context.Context, Request,
	func(Response) error) error) method {
	m := methodOf[Request, Response]()
	m.stream = func(ctx context.Context, req any, send func(proto.Message) error) error {
		return handle(ctx, req.(Request), func(resp Response) error { return send(resp) })
	}
	return m
}

// unite returns the methods of all sets. A duplicate method is an error.
func unite(sets []methods) (methods, error) {
	var faults []error
	united := make(methods)
	for _, set := range sets {
		for name, m := range set {
			if _, ok := united[name]; ok {
				faults = append(faults, fmt.Errorf("%s: %w", name, errDuplicateMethod))
			}
			united[name] = m
		}
	}
	return united, errors.Join(faults...)
}

// check returns nil if the methods are exactly the service's methods, and all requests and
// responses are wire-identical to the service's.
func (ms methods) check(service protoreflect.ServiceDescriptor) error {
	var faults []error
	for name, m := range ms {
		declared := service.Methods().ByName(name)
		fault := errUnknownMethod
		if declared != nil {
			fault = m.check(declared)
		}
		if fault != nil {
			faults = append(faults, fmt.Errorf("%s.%s: %w", service.FullName(), name, fault))
		}
	}
	for i := range service.Methods().Len() {
		declared := service.Methods().Get(i)
		if _, ok := ms[declared.Name()]; !ok {
			faults = append(faults, fmt.Errorf("%s: %w", declared.FullName(), errMissingMethod))
		}
	}
	return errors.Join(faults...)
}

// check returns nil if m can answer calls of the method declared.
func (m method) check(declared protoreflect.MethodDescriptor) error {
	isStream := m.stream != nil
	if declared.IsStreamingClient() != isStream || declared.IsStreamingServer() != isStream {
		return errStreaming
	}
	return errors.Join(
		wire.Identical(declared.Input(), m.request),
		wire.Identical(declared.Output(), m.response),
	)
}

// desc describes m to a gRPC server as the method name of a service.
func (m method) desc(service string, name protoreflect.Name) grpc.MethodDesc {
	fullMethod := "/" + service + "/" + string(name)
	call := func(ctx context.Context, req any) (any, error) {
		run := operation.Run[any]
		if _, bounded := ctx.Deadline(); !bounded { // the client waits for the result, however long it takes
			run = operation.Track[any]
		}
		resp, err := run(ctx, string(name), func(ctx context.Context) (any, error) { return m.call(ctx, req) })
		return resp, wire.ToStatusOf(string(name), err)
	}
	handler := func(server any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		req := m.newRequest()
		if err := decode(req); err != nil {
			return nil, err
		}
		if interceptor == nil {
			return call(ctx, req)
		}
		return interceptor(ctx, req, &grpc.UnaryServerInfo{Server: server, FullMethod: fullMethod}, call)
	}
	return grpc.MethodDesc{MethodName: string(name), Handler: handler}
}

// streamDesc describes m with a stream of responses, like desc. The client asks for each response
// by a request; only the first request has contents.
func (m method) streamDesc(name protoreflect.Name) grpc.StreamDesc {
	handler := func(_ any, stream grpc.ServerStream) error {
		req := m.newRequest()
		switch err := stream.RecvMsg(req); {
		case errors.Is(err, io.EOF):
			return wire.ToStatusOf(string(name), csiproxy.Errorf(csiproxy.ErrInvalidArgument,
				"the client has ended its stream without a request: send one before you end it, and one for each response"))
		case err != nil:
			return err
		}
		var ended error // why the stream ended, by the client or the connection; no error of the operation
		err := m.stream(stream.Context(), req, func(resp proto.Message) error {
			if ended = stream.SendMsg(resp); ended == nil {
				ended = stream.RecvMsg(m.newRequest())
			}
			return ended
		})
		if errors.Is(ended, io.EOF) { // the client asks for nothing more
			return nil
		}
		return cmp.Or(ended, wire.ToStatusOf(string(name), err))
	}
	return grpc.StreamDesc{StreamName: string(name), Handler: handler, ServerStreams: true, ClientStreams: true}
}
