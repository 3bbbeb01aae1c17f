// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Polling goes on beside the notices: several changes may give one notice, a
// device may need a moment after its notice, and some changes give none.
const (
	firstPoll   = 2 * time.Millisecond
	longestPoll = 250 * time.Millisecond
)

// await calls check until it says that what it waits for is there, at first, when
// devices of the class arrive, and from time to time. It returns false if that
// isn't so within patience, and an error if check or ctx has one.
func await(ctx context.Context, n win.Notices, class win.GUID, patience time.Duration, check func() (bool, error)) (bool, error) {
	if done, err := check(); done || err != nil {
		return done, err
	}
	arrived, stop, err := n.NotifyArrivals(ctx, class)
	if err == nil {
		defer stop()
	} // else a nil channel never signals, and polling does alone

	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for poll := firstPoll; ; poll = min(2*poll, longestPoll) {
		if done, err := check(); done || err != nil {
			return done, err
		}
		next := time.NewTimer(poll)
		select {
		case <-arrived:
		case <-next.C:
		case <-deadline.C:
			return check()
		case <-ctx.Done():
			next.Stop()
			return false, ctx.Err()
		}
		next.Stop()
	}
}
