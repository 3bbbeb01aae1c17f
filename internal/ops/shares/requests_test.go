// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// However many shares a server has, removals of the last hour only are remembered. Requests stay.
func TestOldRemovalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := requests{byRoot: make(map[string]request)}
		share := func(root string) *usage.LockedShare { return &usage.LockedShare{Root: root} }
		q.setToGo(share("wanted"), "wanted")
		for _, root := range []string{"old", "recent", "new"} {
			q.setToGo(share(root), root)
			q.setGone(share(root))
			time.Sleep(goneTimeout/2 + time.Minute)
		}
		isKnown := make(map[string]bool)
		for root := range q.byRoot {
			isKnown[root] = true
		}
		simtest.Want(t, "shares", isKnown, map[string]bool{"wanted": true, "recent": true, "new": true})
	})
}
