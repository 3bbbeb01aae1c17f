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

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// unary makes a call: it refuses the call if too many are under way, ends the call shortly before the client's
// deadline, counts the call, and logs one line.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (
	resp any, err error) {
	defer infoOf(ctx).conn.countError(ctx, &err)
	defer s.recoverPanic(info.FullMethod, &err)
	unfinishedOf(ctx).finish()
	end, err := s.calls.begin(req)
	if err != nil {
		return nil, s.refuse(info.FullMethod, err)
	}
	defer end()
	ctx, cancel := operation.AnswerInTime(ctx)
	defer cancel()
	start, ended := time.Now(), s.count(Unary, info.FullMethod)
	resp, err = s.handle(ctx, req, info.FullMethod, handler)
	ended(err)
	s.logCall(ctx, info.FullMethod, req, start, err, err != nil)
	return resp, err
}

// handle calls the handler, and waits for room for its answer. During a drain, handle refuses the call. A panic of the
// handler is recovered here, and therefore counted and logged as a failed call.
func (s *Server) handle(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.recoverPanic(method, &err)
	if err := s.drain.enter(true); err != nil {
		return nil, wire.ToStatusOf(path.Base(method), err)
	}
	defer s.drain.leave()
	if resp, err = handler(ctx, req); err != nil {
		return nil, err
	}
	return newAnswer(ctx, resp)
}

// stream is unary for streaming calls, which have limits of their own and no deadline. An end by the client or the
// daemon is logged as a success.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	method := quote.Text(info.FullMethod) // a client may call any method, with a name of any length
	defer infoOf(stream.Context()).conn.countError(stream.Context(), &err)
	defer s.recoverPanic(method, &err)
	end, err := s.calls.beginStream()
	if err != nil {
		return s.refuse(method, err)
	}
	defer end()
	start, ended := time.Now(), s.count(Stream, info.FullMethod)
	logged := &requestStream{ServerStream: stream, isClientStream: info.IsClientStream}
	err = s.handleStream(srv, logged, method, handler)
	ended(err)
	isCut := stream.Context().Err() != nil || s.stopping.Err() != nil
	s.logCall(stream.Context(), method, logged.request.Load(), start, err, err != nil && !isCut)
	return err
}

// handleStream is handle for streaming calls. When a stop begins, it ends the call, because clients decide how long
// WatchDisks, health watches and reflection last. If the client has stopped reading, the call ends with the grace
// period.
func (s *Server) handleStream(srv any, stream grpc.ServerStream, method string, handler grpc.StreamHandler) (err error) {
	defer s.recoverPanic(method, &err)
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

// recoverPanic turns a panic into the error *err for the client, and logs the panic with its stack. Defer it: a panic on
// a call's goroutine would otherwise end the daemon.
func (s *Server) recoverPanic(method string, err *error) {
	if p := recover(); p != nil {
		s.log.Error("panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s: internal error: the log of the daemon has the details", method)
	}
}

// answerUnknown answers a call of a method unknown to the endpoint.
func (s *Server) answerUnknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream) // there is one in every stream of a server
	return status.Errorf(codes.Unimplemented, "%s: no such method at this endpoint", quote.Text(method))
}

// requestStream is a stream that keeps its first request for the log.
type requestStream struct {
	grpc.ServerStream
	isClientStream bool         // more requests may come, as in reflection
	request        atomic.Value // nil before it has come
}

func (s *requestStream) SendMsg(m any) error {
	answer, err := newAnswer(s.Context(), m)
	if err != nil {
		return err
	}
	return s.ServerStream.SendMsg(answer)
}

func (s *requestStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err != nil {
		return err
	}
	request := unfinishedOf(s.Context())
	if s.request.CompareAndSwap(nil, m) {
		request.begun()
	}
	if s.isClientStream {
		request.received(m)
	} else {
		request.finish()
	}
	return nil
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
