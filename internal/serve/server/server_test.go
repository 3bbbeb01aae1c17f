// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// upper is a handler that just works.
func upper(_ context.Context, said string) (string, error) { return said + "!", nil }

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("error is %v, want code %v", err, want)
	}
}

func TestStopLetsCallsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := make(chan struct{}), make(chan struct{})
		r := start(t, func(ctx context.Context, said string) (string, error) {
			close(begun)
			<-release
			return said, ctx.Err()
		})
		client := r.dial()
		defer client.Close()
		done := make(chan error, 1)
		go func() {
			_, err := say(t.Context(), client, "hello")
			done <- err
		}()
		<-begun
		r.stop()
		synctest.Wait()

		late := r.dial()
		defer late.Close()
		_, err := say(t.Context(), late, "too late")
		wantCode(t, err, codes.Unavailable)
		select {
		case err := <-r.served:
			t.Fatalf("served until %v, with a call running", err)
		default:
		}

		time.Sleep(gracePeriod / 2)
		close(release)
		if err := <-done; err != nil {
			t.Errorf("the call that ran gives %v", err)
		}
		if err := <-r.served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func TestStopCancelsCallsAfterGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		ended := make(chan error, 1)
		r := start(t, func(ctx context.Context, _ string) (string, error) {
			close(begun)
			<-ctx.Done()
			ended <- ctx.Err()
			return "", ctx.Err()
		})
		client := r.dial()
		defer client.Close()
		go say(t.Context(), client, "hello")
		<-begun
		stopped := time.Now()
		r.end()
		if got := time.Since(stopped); got != gracePeriod {
			t.Errorf("stopping took %v, want %v", got, gracePeriod)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the call ended with %v, want canceled", err)
		}
	})
}

func TestStopLeavesStuckCallsBehind(t *testing.T) {
	for name, clientLeaves := range map[string]bool{"of a client": false, "of a client that has left": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, release := make(chan struct{}), make(chan struct{})
				r := start(t, func(context.Context, string) (string, error) {
					close(begun)
					<-release
					return "", nil
				})
				client := r.dial()
				defer client.Close()
				go say(t.Context(), client, "hello")
				<-begun
				if clientLeaves {
					client.Close()
					synctest.Wait()
				}
				stopped := time.Now()
				r.stop()
				time.Sleep(gracePeriod + cancelPeriod)
				synctest.Wait()
				select {
				case <-r.served:
				default:
					t.Errorf("serving %v after the stop", time.Since(stopped))
				}
				close(release)
			})
		})
	}
}

func TestStopEndsStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		client := r.dial()
		defer client.Close()
		watch, err := healthgrpc.NewHealthClient(client).Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		reflect, err := reflectiongrpc.NewServerReflectionClient(client).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		stopped := time.Now()
		r.end()
		if got := time.Since(stopped); got != 0 {
			t.Errorf("stopping took %v, want nothing", got)
		}
		_, err = watch.Recv()
		wantCode(t, err, codes.Unavailable)
		_, err = reflect.Recv()
		wantCode(t, err, codes.Unavailable)
	})
}

func TestContextOfCall(t *testing.T) {
	deadlines := make(chan time.Time, 1)
	ended := make(chan error, 1)
	r := start(t, func(ctx context.Context, said string) (string, error) {
		deadline, _ := ctx.Deadline()
		deadlines <- deadline
		if said == "wait" {
			<-ctx.Done()
			ended <- ctx.Err()
		}
		return "", nil
	})
	defer r.end()
	client := r.dial()

	t.Run("no deadline", func(t *testing.T) {
		if _, err := say(t.Context(), client, ""); err != nil {
			t.Fatal(err)
		}
		if got := <-deadlines; !got.IsZero() {
			t.Errorf("the call has the deadline %v", got)
		}
	})
	t.Run("deadline of the client", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := say(ctx, client, ""); err != nil {
			t.Fatal(err)
		}
		// It ends half a second before the client's deadline, which gRPC rounds a little.
		if got := time.Until(<-deadlines); got <= 0 || got > time.Hour-250*time.Millisecond {
			t.Errorf("the call ends in %v", got)
		}
	})
	t.Run("client gone", func(t *testing.T) {
		gone := r.dial()
		go say(t.Context(), gone, "wait")
		<-deadlines
		gone.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the call ended with %v, want canceled", err)
		}
	})
}

func TestBounds(t *testing.T) {
	r := start(t, func(_ context.Context, said string) (string, error) {
		if said == "much" {
			return string(make([]byte, wire.MaxResponseBytes)), nil
		}
		return "", nil
	})
	defer r.end()
	client := r.dial()

	_, err := say(t.Context(), client, string(make([]byte, wire.MaxRequestBytes)))
	wantCode(t, err, codes.ResourceExhausted)
	var answer wrapperspb.StringValue
	err = client.Invoke(t.Context(), sayMethod, wrapperspb.String("much"), &answer,
		grpc.MaxCallRecvMsgSize(2*wire.MaxResponseBytes))
	wantCode(t, err, codes.ResourceExhausted)
	if _, err = say(t.Context(), client, string(make([]byte, wire.MaxRequestBytes/2))); err != nil {
		t.Error(err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	r := start(t, upper)
	defer r.end()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "much", strings.Repeat("x", maxHeaderBytes))
	if _, err := say(ctx, r.dial(), ""); err == nil {
		t.Error("a call with too many headers succeeds")
	}
}

// Calls under way keep no headers, of up to 16 KiB each.
func TestHeadersAreDropped(t *testing.T) {
	r := start(t, func(ctx context.Context, _ string) (string, error) {
		headers, _ := metadata.FromIncomingContext(ctx)
		return fmt.Sprint(headers), nil
	})
	defer r.end()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "much", strings.Repeat("x", maxHeaderBytes/2))
	if got, err := say(ctx, r.dial(), ""); err != nil || got != "map[]" {
		t.Errorf("the call has %.50s, %v", got, err)
	}
}

func TestClientMayPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		client := r.dial(grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                10 * time.Second, // gRPC takes no less
			PermitWithoutStream: true,
		}))
		defer client.Close()
		for range 2 {
			if _, err := say(t.Context(), client, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Minute) // not yet idle for the client
		}
		if got := r.listener.accepted.Load(); got != 1 {
			t.Errorf("the client needed %d connections, want 1", got)
		}
		r.end()
	})
}

// A stop doesn't wait for a client that falls silent amid its handshake.
func TestStopDuringHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, upper)
		r.server.grace = prefaceTimeout / 2
		go io.WriteString(r.silent(), "P")
		synctest.Wait()
		stopped := time.Now()
		r.end()
		if got := time.Since(stopped); got != prefaceTimeout/2 {
			t.Errorf("stopping took %v, want the grace period of %v", got, prefaceTimeout/2)
		}
	})
}

// A service without descriptors serves. Only reflection says that it has none, and why.
func TestServiceWithoutDescriptors(t *testing.T) {
	r := resolver{undescribed{echo(upper)}.Files}
	if _, err := r.FindDescriptorByName("v1.Echo"); !errors.Is(err, errUndescribed) {
		t.Errorf("by name: %v, want the error of the service", err)
	}
	if _, err := r.FindFileByPath("v1/echo.proto"); !errors.Is(err, errUndescribed) {
		t.Errorf("by path: %v, want the error of the service", err)
	}
}

type undescribed struct{ echo }

var errUndescribed = errors.New("no descriptors")

func (undescribed) Files() (*protoregistry.Files, error) { return nil, errUndescribed }

func TestFailingEndpointEndsServer(t *testing.T) {
	s := New(Config{
		Endpoints: []Endpoint{
			{Name: "works", Service: echo(upper), Listener: newScript()},
			{Name: "fails", Service: echo(upper), Listener: newScript(fs.ErrPermission)},
		},
	})
	if err := s.Serve(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("serve gives %v, want the listener's error", err)
	}
}

// script is a listener that fails with errors in turn, then has no connections.
type script struct {
	errs   chan error
	closed chan struct{}
}

func newScript(errs ...error) script {
	s := script{make(chan error, len(errs)), make(chan struct{})}
	for _, err := range errs {
		s.errs <- err
	}
	return s
}

func (s script) Accept() (net.Conn, error) {
	select {
	case err := <-s.errs:
		return nil, err
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s script) Close() error { close(s.closed); return nil }

func (s script) Addr() net.Addr { return &net.UnixAddr{Name: "script"} }
