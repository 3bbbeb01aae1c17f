// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"path"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// unary does what every call with one response has in common, around its handler: it refuses a call if too many
// are under way, ends it shortly before its client's deadline, counts it, and logs it in one line.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	end, err := s.calls.begin()
	if err != nil {
		return nil, s.refuse(info.FullMethod, err)
	}
	defer end()
	ctx, cancel := answerInTime(ctx)
	defer cancel()
	start, ended := time.Now(), s.count(Unary, info.FullMethod)
	resp, err := s.handle(ctx, req, info.FullMethod, handler)
	ended(err)
	s.logCall(ctx, info.FullMethod, req, start, err, err != nil)
	return resp, err
}

// handle calls the handler. During a drain, it refuses the call. It answers with Internal if the handler panics.
func (s *Server) handle(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, s.panicked(method, p)
		}
	}()
	if err := s.drain.enter(true); err != nil {
		return nil, wire.ToStatusOf(path.Base(method), err)
	}
	defer s.drain.leave()
	return handler(ctx, req)
}

// stream is unary for streaming calls. They have limits of their own, and no deadline. If the client or the daemon
// ends one, that isn't logged as a failure.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	end, err := s.calls.beginStream()
	if err != nil {
		return s.refuse(info.FullMethod, err)
	}
	defer end()
	start, ended := time.Now(), s.count(Stream, info.FullMethod)
	logged := &requestStream{ServerStream: stream}
	err = s.handleStream(srv, logged, info.FullMethod, handler)
	ended(err)
	isCut := stream.Context().Err() != nil || s.stopping.Err() != nil
	s.logCall(stream.Context(), info.FullMethod, logged.request.Load(), start, err, err != nil && !isCut)
	return err
}

// handleStream is handle for streaming calls. It ends the call when a stop begins, since streaming calls last as long
// as the client likes: WatchDisks, health watches and reflection. One whose client doesn't read what was sent ends
// with the grace period.
func (s *Server) handleStream(srv any, stream grpc.ServerStream, method string, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(method, p)
		}
	}()
	if err := s.drain.enter(false); err != nil {
		return wire.ToStatusOf(path.Base(method), err)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	err = handler(srv, endingStream{stream, ctx})
	if s.stopping.Err() != nil {
		return wire.ToStatusOf(path.Base(method), errStopping)
	}
	return err
}

// panicked logs a panic with its stack, and returns the error for the client, free of both.
func (s *Server) panicked(method string, value any) error {
	s.log.Error("panic in a call", "method", method, "panic", value, "stack", string(debug.Stack()))
	return status.Errorf(codes.Internal, "%s: internal error: the log of the daemon has the details", method)
}

// answerUnknown answers a call of a method unknown to the endpoint.
func (s *Server) answerUnknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream) // there is one in every stream of a server
	return status.Errorf(codes.Unimplemented, "%s: no such method at this endpoint", method)
}

// requestStream is a stream that keeps its first request for the log.
type requestStream struct {
	grpc.ServerStream
	request atomic.Value // nil before it has come
}

func (s *requestStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.request.CompareAndSwap(nil, m)
	}
	return err
}

// endingStream is a stream whose RecvMsg returns when ctx is done.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s endingStream) Context() context.Context { return s.ctx }

func (s endingStream) RecvMsg(m any) error {
	// The stream itself ends when the handler has returned, and this goroutine with the stream.
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-received:
		return err
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}
