// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// logUnary logs each call in one line: see logCall.
func (s *Server) logUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	s.logCall(ctx, info.FullMethod, req, start, err, err != nil)
	return resp, err
}

// recoverUnary answers a call that panics with Internal.
func (s *Server) recoverUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, s.panicked(info.FullMethod, p)
		}
	}()
	return handler(ctx, req)
}

// recoverStream is recoverUnary for streaming calls.
func (s *Server) recoverStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(info.FullMethod, p)
		}
	}()
	return handler(srv, stream)
}

// panicked logs a panic with its stack, and returns the error for the client, which
// contains neither.
func (s *Server) panicked(method string, value any) error {
	s.log.Error("panic in a call", "method", method, "panic", value, "stack", string(debug.Stack()))
	return status.Errorf(codes.Internal, "%s: internal error: the log of the daemon has the details", method)
}

// answerUnknown answers a call of a method that the endpoint doesn't have.
func (s *Server) answerUnknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream) // there is one in every stream of a server
	return status.Errorf(codes.Unimplemented, "%s: no such method at this endpoint", method)
}

// logStream logs each streaming call in one line when it has ended: see logCall. If its client or
// the daemon ends it, that isn't logged as a failure.
func (s *Server) logStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	start := time.Now()
	logged := &requestStream{ServerStream: stream}
	err := handler(srv, logged)
	ended := stream.Context().Err() != nil || s.stopping.Err() != nil
	s.logCall(stream.Context(), info.FullMethod, logged.request.Load(), start, err, err != nil && !ended)
	return err
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

// endStream ends streaming calls when a stop begins, since they last as long as the client
// likes: WatchDisks, health watches and reflection. One whose client doesn't read what was
// sent ends with the grace period.
func (s *Server) endStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	err := handler(srv, endingStream{stream, ctx})
	if s.stopping.Err() != nil {
		return toStatus(info.FullMethod, errStopping)
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
	// The stream itself ends when the handler has returned, and this goroutine
	// with it.
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-received:
		return err
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}
