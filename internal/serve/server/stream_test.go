// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// untilEnd answers once, and then waits until its call ends.
type untilEnd struct{ calls, ended atomic.Int64 }

func (u *untilEnd) say(ctx context.Context, said string) (string, error) {
	if u.calls.Add(1)%2 == 1 {
		return said, nil
	}
	<-ctx.Done()
	u.ended.Add(1)
	return "", ctx.Err()
}

func wantAnswer(t *testing.T, stream grpc.ClientStream, want string) {
	t.Helper()
	var answer wrapperspb.StringValue
	if err := stream.RecvMsg(&answer); err != nil || answer.GetValue() != want {
		t.Fatalf("answer %q, %v, want %q", answer.GetValue(), err, want)
	}
}

// Streaming calls take nothing from other calls, also of the same connection.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := func(ctx context.Context, said string) (string, error) {
			if said == "shout" {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return said, nil
		}
		r := start(t, answers)
		client := r.dial()
		defer client.Close()
		ctx, cancel := context.WithCancel(t.Context())
		for range maxStreams {
			shout(t, ctx, client, wrapperspb.String("shout"))
		}
		synctest.Wait()
		for range 2 { // of any kind
			_, err := client.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
			if err != nil {
				t.Fatal(err)
			}
			err = shout(t, t.Context(), client, wrapperspb.String("shout")).RecvMsg(new(wrapperspb.StringValue))
			wantCode(t, err, codes.ResourceExhausted)
			if text := status.Convert(err).Message(); !strings.HasPrefix(text, "Shout: 128 streaming calls are under way") {
				t.Errorf("the error says %q", text)
			}
		}
		synctest.Wait()
		if calls := r.server.Calls(); calls.Streams != maxStreams || calls.Running != 0 ||
			calls.Refused[RefusedStreams] != 4 {
			t.Errorf("the server counts %+v", calls)
		}
		for range maxCallsOfConnection - maxStreams { // at one time there is room for these
			if _, err := say(t.Context(), client, "hello"); err != nil {
				t.Errorf("another call: %v", err)
			}
		}
		cancel()
		synctest.Wait()
		if got := r.server.Calls().Streams; got != 0 {
			t.Errorf("%d streams are left", got)
		}
		r.end()
	})
}

// The handler of a client that has gone ends, and the connection isn't kept for it.
func TestStreamOfAClientThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := new(untilEnd)
		r := start(t, u.say)
		client := r.dial()
		wantAnswer(t, shout(t, t.Context(), client, wrapperspb.String("hello")), "hello")
		client.Close()
		synctest.Wait()
		if u.ended.Load() != 1 || r.server.Calls().Streams != 0 || r.listener.open.Load() != 0 {
			t.Errorf("%d handlers ended; %+v; %d connections", u.ended.Load(), r.server.Calls(), r.listener.open.Load())
		}
		r.end()
	})
}

// For a client that doesn't read, nothing piles up, and a stop ends with the grace period.
func TestStreamThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int64
		r := start(t, func(_ context.Context, said string) (string, error) {
			sent.Add(1)
			return said, nil
		})
		client := r.dial(grpc.WithStaticStreamWindowSize(64 << 10))
		defer client.Close()
		stream := shout(t, t.Context(), client, wrapperspb.String(strings.Repeat("x", 10000)))
		synctest.Wait()
		if n := sent.Load(); n == 0 || n > 50 {
			t.Errorf("%d messages of 10 kB were made for a client that doesn't read", n)
		}
		stopped := time.Now()
		r.end()
		if took := time.Since(stopped); took != gracePeriod {
			t.Errorf("stopping took %v, want %v", took, gracePeriod)
		}
		err := error(nil)
		for err == nil {
			err = stream.RecvMsg(new(wrapperspb.StringValue))
		}
		wantCode(t, err, codes.Unavailable)
	})
}

// Streams are counted with the statuses that clients get.
func TestCountedStreams(t *testing.T) {
	type seen struct {
		method string
		code   codes.Code
	}
	saw := make(chan seen, 10)
	u := new(untilEnd)
	r := startWith(t, Config{Count: func(callType, method string) func(error) {
		return func(err error) { saw <- seen{callType + " " + method, status.Code(err)} }
	}}, func(ctx context.Context, said string) (string, error) {
		switch said {
		case "panic":
			panic("of the handler")
		case "lost":
			return "", status.Error(codes.NotFound, "no such disk")
		}
		return u.say(ctx, said)
	})
	client := r.dial()
	for said, want := range map[string]codes.Code{"panic": codes.Internal, "lost": codes.NotFound} {
		wantCode(t, shout(t, t.Context(), client, wrapperspb.String(said)).RecvMsg(new(wrapperspb.StringValue)), want)
		if got := <-saw; got != (seen{Stream + " " + shoutMethod, want}) {
			t.Errorf("%s: it was counted as %v", said, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	wantAnswer(t, shout(t, ctx, client, wrapperspb.String("hello")), "hello")
	cancel()
	if got := <-saw; got.code != codes.Unknown { // the error of the handler, which isn't a status
		t.Errorf("of a client that has gone, it was counted as %v", got)
	}
	stream := shout(t, t.Context(), client, wrapperspb.String("goodbye"))
	wantAnswer(t, stream, "goodbye")
	r.end()
	if got := <-saw; got.code != codes.Unavailable {
		t.Errorf("of a daemon that stops, it was counted as %v", got)
	}
	err := stream.RecvMsg(new(wrapperspb.StringValue))
	wantCode(t, err, codes.Unavailable)
	if got, want := status.Convert(err).Message(), "Shout: the daemon is stopping"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}

	if got := r.logged("panic in a call"); len(got) != 1 || !strings.Contains(got[0], "stream_test.go") {
		t.Errorf("the panic in the log: %q", got)
	}
	var lines []string
	for _, line := range r.logged("msg=call") {
		lines = append(lines, regexp.MustCompile(`duration=\S+`).ReplaceAllString(line[strings.Index(line, "level="):], "duration=X"))
	}
	for _, line := range r.logged(`msg="call failed"`) {
		lines = append(lines, regexp.MustCompile(`duration=\S+`).ReplaceAllString(line[strings.Index(line, "level="):], "duration=X"))
	}
	all := strings.Join(lines, "")
	for _, want := range []string{
		`level=DEBUG+2 msg=call method=/v1.Echo/Shout request.value=hello code=Unknown duration=X`,
		`level=DEBUG+2 msg=call method=/v1.Echo/Shout request.value=goodbye code=Unavailable duration=X`,
		`level=WARN msg="call failed" method=/v1.Echo/Shout request.value=lost code=NotFound duration=X err="no such disk"`,
		`level=ERROR msg="call failed" method=/v1.Echo/Shout request.value=panic code=Internal duration=X`,
	} {
		if strings.Count(all, want) != 1 {
			t.Errorf("the log hasn't one line %s:\n%s", want, all)
		}
	}
}
