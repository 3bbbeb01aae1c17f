// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// withNotices is the time between the first two looks where Windows gives notices.
const withNotices = 25 * time.Millisecond

// await calls check until it reports that what it waits for is there: at once, when
// devices of the class arrive, and from time to time, since several changes may give one
// notice, a device may need a moment after its notice, and some changes give none. It
// returns false if that isn't so within patience, and an error if check or ctx has one.
func await(ctx context.Context, n win.Notices, class win.GUID, patience time.Duration, check func() (bool, error)) (bool, error) {
	if done, err := check(); done || err != nil {
		return done, err
	}
	polling := operation.Polling{Patience: patience}
	arrived, stop, err := n.NotifyArrivals(ctx, class)
	if err == nil {
		defer stop()
		polling.Wake, polling.First = arrived, withNotices
	} // else polling does alone
	return operation.Poll(ctx, polling, check)
}
