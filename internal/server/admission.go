// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"path"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/fairshare"
	"github.com/csi-proxy/csi-proxy/internal/wire"
)

// requestTimeout is how long a client may take to send the request of a call that it
// has begun. Clients send both at once.
const requestTimeout = 30 * time.Second

// plaintext tells handlers, in the peer of their contexts, which connection a call
// came on. It neither encrypts nor authenticates: the endpoints do that.
type plaintext struct {
	credentials.TransportCredentials
}

func newPlaintext() plaintext { return plaintext{insecure.NewCredentials()} }

// ServerHandshake implements credentials.TransportCredentials.
func (plaintext) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, connInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, c.(*conn)}, nil
}

// Clone implements credentials.TransportCredentials.
func (p plaintext) Clone() credentials.TransportCredentials { return p }

type connInfo struct {
	credentials.CommonAuthInfo
	conn *conn
}

// AuthType implements credentials.AuthInfo.
func (connInfo) AuthType() string { return "none" }

// connOf returns the connection that the call of ctx came on. Each call has one: Server.options
// gives plaintext to each server.
func connOf(ctx context.Context) *conn {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(connInfo).conn
}

// ClientOf returns whom the call of ctx is counted for: a process, where the system tells
// which process a connection belongs to; else a connection. The value can be compared, and
// stands for the same client as long as that has calls or connections.
func ClientOf(ctx context.Context) any { return connOf(ctx).client }

// admitting registers services so that their unary calls are bounded, before any of
// their requests is read. boundStream does that for streaming ones.
type admitting struct {
	grpc.ServiceRegistrar
	server          *Server
	maxRequestBytes int
}

// RegisterService implements grpc.ServiceRegistrar.
func (a admitting) RegisterService(desc *grpc.ServiceDesc, service any) {
	bounded := *desc
	bounded.Methods = slices.Clone(desc.Methods)
	for i, m := range desc.Methods {
		bounded.Methods[i].Handler = a.bound("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)
	}
	a.ServiceRegistrar.RegisterService(&bounded, service)
}

// bound returns handler for calls that are counted, or refused at once.
func (a admitting) bound(method string, handler grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := connOf(ctx)
		begun, err := a.server.calls.begin(c.client, a.maxRequestBytes)
		if err != nil {
			return nil, a.server.refused(c, method, err)
		}
		defer a.server.end(ctx, c, begun)
		ctx, cancel := answerInTime(ctx)
		defer cancel()

		var turn *fairshare.Turn
		defer func() {
			if turn != nil {
				turn.End()
			}
		}()
		var undecodable error
		resp, err := handler(srv, ctx, func(message any) error {
			r := &request{message: message.(proto.Message)}
			if err := a.server.receive(c, decode, r); err != nil {
				return err
			}
			a.server.calls.received(begun, r.bytes)
			c.begin()
			if undecodable = r.err; undecodable == nil {
				turn, undecodable = takeTurn(ctx, c)
			}
			return undecodable
		}, interceptor)
		if undecodable == nil {
			return resp, err
		}
		// The handler gave up before it called the interceptor, which logs and counts.
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: method}
		return interceptor(ctx, nil, info, func(context.Context, any) (any, error) {
			return nil, toStatus(method, undecodable)
		})
	}
}

// refused returns the status of a call that wasn't begun.
func (s *Server) refused(c *conn, method string, err error) error {
	c.slowDown()
	// A line for each would be a way to fill the log.
	if s.refusals.due() {
		s.log.Warn("refusing calls", "method", method, "err", err)
	}
	return toStatus(method, err)
}

// end ends a call that was begun. ctx is the call's.
func (s *Server) end(ctx context.Context, c *conn, begun *call) {
	if !s.calls.end(begun) {
		c.end()
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		c.slowDown()
	}
}

// Bounds of the time that is left before a client's deadline when its call is answered: a
// twentieth of all its time within these.
const (
	minAnswerTime = 50 * time.Millisecond // what an answer may take on a busy node
	maxAnswerTime = 500 * time.Millisecond
)

// answerInTime returns the context of a call, which ends shortly before the client's deadline.
// So the client is told what its call waited for, in place of only that the deadline has come.
func answerInTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(max(left/20, minAnswerTime), maxAnswerTime, left/2)))
}

// takeTurn returns when a call may run: clients take turns on the processors.
func takeTurn(ctx context.Context, c *conn) (*fairshare.Turn, error) {
	turn, err := c.turns.Begin(ctx)
	if err != nil {
		return nil, csiproxy.Errorf(err, "the daemon is busy: until this call's deadline, the processors were needed for "+
			"other calls; try again later")
	}
	return turn, nil
}

// receive decodes a request. It closes the connection of a client that doesn't send it.
func (s *Server) receive(c *conn, decode func(any) error, r *request) error {
	tooLate := time.AfterFunc(requestTimeout, func() {
		s.log.Warn("closing a connection: its client began a call, but didn't send the request", "timeout", requestTimeout)
		c.Close()
	})
	defer tooLate.Stop()
	return decode(r)
}

// toStatus returns an error as the status of a call of a method.
func toStatus(method string, err error) error {
	e := csiproxy.Error{Op: path.Base(method), Err: err}
	if inner, ok := err.(*csiproxy.Error); ok {
		e.Kind, e.Detail, e.Err = inner.Kind, inner.Detail, inner.Err
	}
	return wire.ToStatus(&e)
}
