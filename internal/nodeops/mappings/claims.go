// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/unc"
)

// undoPatience is how long a call that has failed may take to remove the mapping that it has
// made. Its caller may have given up already.
const undoPatience = 30 * time.Second

// claims knows which calls under way count on the mapping of a share, so that a StageShare
// that fails doesn't remove it under another one. Calls of other processes look for
// themselves whether the share is still mapped: see [Mappings.Map].
type claims struct {
	mu     sync.Mutex
	byRoot map[string]claim
}

// claim is what the calls for one share have done while any of them was under way.
type claim struct {
	calls int  // under way
	made  bool // a StageShare has made the mapping
}

// with calls f with what the calls for a share have done, and forgets that when none is under way.
func (c *claims) with(remote unc.Path, f func(one *claim)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byRoot[remote.Root()]
	f(&one)
	if one.calls == 0 {
		delete(c.byRoot, remote.Root())
		return
	}
	c.byRoot[remote.Root()] = one
}

// begin notes that a call for a share is under way.
func (c *claims) begin(remote unc.Path) { c.with(remote, func(one *claim) { one.calls++ }) }

// made notes that a StageShare under way has made the mapping of a share.
func (c *claims) made(remote unc.Path) { c.with(remote, func(one *claim) { one.made = true }) }

// isMade reports whether a StageShare under way has made the mapping of a share: a call that
// fails takes the locks to remove it then.
func (c *claims) isMade(remote unc.Path) (made bool) {
	c.with(remote, func(one *claim) { made = one.made })
	return made
}

// end notes that a call for a share has ended, and reports whether it was the last one, and one
// of them has made the mapping.
func (c *claims) end(remote unc.Path) (unclaimed bool) {
	c.with(remote, func(one *claim) {
		one.calls--
		unclaimed = one.calls == 0 && one.made
	})
	return unclaimed
}

// endClaim ends a call that began a claim. If it has failed, and was the last one that counted
// on a mapping that a StageShare has made, it removes the mapping, unless that is used. If it
// can't, or the process dies before, CleanUp finds the mapping.
func (m *Mappings) endClaim(ctx context.Context, remote unc.Path, err error) {
	if err == nil || !m.claims.isMade(remote) {
		m.claims.end(remote)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience)
	defer cancel()
	ctx, rights, undoErr := m.Rights(ctx, remote)
	if undoErr == nil {
		defer rights.Release()
	}
	if !m.claims.end(remote) {
		return
	}
	if undoErr == nil {
		undoErr = m.undo(ctx, rights)
	}
	if undoErr != nil {
		m.options.Logger.Warn("a StageShare has failed, and the mapping that it made stays",
			"remotePath", remote.Root(), "err", undoErr)
	}
}

func (m *Mappings) undo(ctx context.Context, r *Rights) error {
	links, err := m.LinksTo(ctx, r.Share)
	if err == nil {
		_, err = m.RemoveUnused(ctx, r, links)
	}
	return err
}
