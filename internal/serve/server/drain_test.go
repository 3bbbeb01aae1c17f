// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A drain waits for the calls that run and refuses new ones. It ends by itself.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := start(t, func(ctx context.Context, said string) (string, error) {
			switch said {
			case "slow":
				<-release
			case "stream":
				<-ctx.Done()
			}
			return said, ctx.Err()
		})
		defer r.stop()
		client := r.dial()
		defer client.Close()
		streaming, endStream := context.WithCancel(t.Context())
		defer endStream()
		shout(t, streaming, client, wrapperspb.String("stream")) // goes on, and isn't counted
		slow := make(chan error, 1)
		go func() {
			_, err := say(t.Context(), client, "slow")
			slow <- err
		}()
		synctest.Wait()

		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if running := r.server.Drain(impatient, 40*time.Second); running != 1 {
			t.Errorf("a drain that gives up says that %d calls run", running)
		}
		_, err := say(t.Context(), client, "late")
		wantCode(t, err, codes.Unavailable)
		err = shout(t, t.Context(), client, wrapperspb.String("late")).RecvMsg(new(wrapperspb.StringValue))
		wantCode(t, err, codes.Unavailable)

		time.Sleep(30 * time.Second)
		drained := make(chan int, 1)
		go func() { drained <- r.server.Drain(t.Context(), 40*time.Second) }()
		synctest.Wait()
		select {
		case running := <-drained:
			t.Fatalf("a drain ends while a call runs, and says %d", running)
		default:
		}
		close(release)
		if err := <-slow; err != nil {
			t.Errorf("the call that ran gives %v", err)
		}
		synctest.Wait()
		select {
		case running := <-drained:
			if running != 0 {
				t.Errorf("the drain says that %d calls run", running)
			}
		default:
			t.Fatal("the drain waits for a streaming call")
		}

		time.Sleep(20 * time.Second) // the first drain would be over
		_, err = say(t.Context(), client, "late")
		wantCode(t, err, codes.Unavailable)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if _, err := say(t.Context(), client, "after"); err != nil {
			t.Errorf("after the drain: %v", err)
		}
		if running := r.server.Drain(t.Context(), time.Second); running != 0 {
			t.Errorf("a drain without calls says that %d run", running)
		}
	})
}
