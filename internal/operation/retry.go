// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Retry calls f, every interval, until it succeeds, gives an error that isn't
// transient, or patience ends, and returns f's last error. If ctx ends first, that
// error comes behind ctx's. It waits in Idle.
func Retry(ctx context.Context, patience, interval time.Duration, transient func(error) bool, f func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil || !transient(err) || time.Now().After(deadline) {
			return err
		}
		waitErr := Idle(ctx, func() error { return win.Sleep(ctx, interval) })
		if waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}
