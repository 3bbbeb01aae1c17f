// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestUntilReady(t *testing.T) {
	refused := errors.New("it isn't raw any more")
	for name, test := range map[string]struct {
		deadline time.Duration // 0 for none
		err      error         // of each change before end
		end      time.Duration // when the change succeeds
		lost     time.Duration // when the precondition fails; 0 for never
		want     error
		atLeast  time.Duration
		atMost   time.Duration
	}{
		"at once":                {0, winerr.ErrorBusy, 0, 0, nil, 0, 0},
		"read-only for a moment": {0, winerr.ErrorWriteProtect, 3 * time.Second, 0, nil, 3 * time.Second, 4 * time.Second},
		"an unknown error":       {0, winerr.Errno(43034), 29 * time.Second, 0, nil, 29 * time.Second, 30 * time.Second},
		"not accepted":           {0, csiproxy.Errorf(csiproxy.ErrUnavailable, "still offline"), time.Second, 0, nil, time.Second, 2 * time.Second},
		"for good":               {0, winerr.ErrorAccessDenied, time.Hour, 0, winerr.ErrorAccessDenied, 30 * time.Second, 30 * time.Second},
		"before the deadline":    {10 * time.Second, winerr.ErrorAccessDenied, time.Hour, 0, winerr.ErrorAccessDenied, 9 * time.Second, 9 * time.Second},
		"a short deadline":       {500 * time.Millisecond, winerr.ErrorAccessDenied, time.Hour, 0, winerr.ErrorAccessDenied, 0, 0},
		"a bad argument":         {0, winerr.ErrorInvalidParameter, time.Hour, 0, winerr.ErrorInvalidParameter, 0, 0},
		"no such file system":    {0, fmt.Errorf("result 43001: %w", winerr.ErrorNotSupported), time.Hour, 0, winerr.ErrorNotSupported, 0, 0},
		"the disk has left":      {0, winerr.ErrorDeviceNotConnected, time.Hour, 0, winerr.ErrorDeviceNotConnected, 0, 0},
		"a refusal of ours":      {0, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "a link"), time.Hour, 0, csiproxy.ErrFailedPrecondition, 0, 0},
		"the volume isn't raw":   {0, winerr.ErrorWriteProtect, time.Hour, 2 * time.Second, refused, 2 * time.Second, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, begun := t.Context(), time.Now()
				if test.deadline != 0 {
					timed, cancel := context.WithTimeout(ctx, test.deadline)
					defer cancel()
					ctx = timed
				}
				err := operation.UntilReady(ctx, func() error {
					if test.lost != 0 && time.Since(begun) >= test.lost {
						return refused
					}
					return nil
				}, func() error {
					if time.Since(begun) >= test.end {
						return nil
					}
					return test.err
				})
				if took := time.Since(begun); !errors.Is(err, test.want) || took < test.atLeast || took > test.atMost {
					t.Errorf("%v after %v; want %v after %v to %v", err, took, test.want, test.atLeast, test.atMost)
				}
			})
		})
	}
}

// Who gives up learns that, and what was in the way.
func TestUntilReadyGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := operation.UntilReady(ctx, func() error { return nil }, func() error { return winerr.ErrorBusy })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, winerr.ErrorBusy) {
			t.Error(err)
		}
	})
}
