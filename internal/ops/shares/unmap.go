// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/unc"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// RemoveUnused removes the mapping of a share if nothing uses it: links is empty, and no file on the
// share is open. It does so only if CSI Proxy has made the mapping for a staged path, or a driver has
// requested its removal. It reports whether it has removed the mapping.
func (m *Mappings) RemoveUnused(ctx context.Context, r *LockedMapping, links ShareLinks) (removed bool, _ error) {
	remote := r.remote
	switch {
	case len(links.ways) > 0:
		return false, nil
	case csiproxy.KindOf(links.Incomplete) == csiproxy.ErrResourceExhausted: // for good
		m.options.Logger.Warn("a mapping stays, since the links to its share can't be counted", "remotePath", remote.Root(),
			"err", links.Incomplete)
		return false, nil
	case links.Incomplete != nil:
		return false, &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
			Detail: "the links to the share can't be counted; try again later", Err: links.Incomplete}
	}
	goes, err := m.goesWithLastLink(ctx, remote)
	if err != nil {
		return false, err
	}
	if !goes {
		m.options.Logger.Debug("a mapping stays, since CSI Proxy hasn't made it for a staged path", "remotePath",
			remote.Root())
		return false, nil
	}
	open, err := m.openFiles(ctx, remote)
	if err != nil {
		return false, err
	}
	if open > 0 {
		m.options.Logger.Info("a mapping stays, since files on its share are open", "remotePath", remote.Root(), "open", open)
		return false, nil
	}
	err = m.unmap(ctx, r)
	if err != nil && !errors.Is(err, winerr.ErrorNotConnected) {
		return false, err
	}
	if m.requests.of(remote) == toGo {
		m.requests.set(r.Share, gone)
	}
	removed = err == nil
	return removed, m.dropRecord(ctx, r.Share)
}

// IsUnused reports whether the mapping of a share is one that is removed with the last link, and no
// file on the share is open. It doesn't check whether there are links.
func (m *Mappings) IsUnused(ctx context.Context, remote unc.Path) (bool, error) {
	goes, err := m.goesWithLastLink(ctx, remote)
	if err != nil || !goes {
		return false, err
	}
	open, err := m.openFiles(ctx, remote)
	return err == nil && open == 0, err
}

// goesWithLastLink reports whether a mapping is removed with the last link: if CSI Proxy has made it
// for a staged path, or a driver has requested its removal.
func (m *Mappings) goesWithLastLink(ctx context.Context, remote unc.Path) (bool, error) {
	if m.requests.of(remote) == toGo {
		return true, nil
	}
	return m.recorded(ctx, remote)
}

// openFiles returns how many files on a share are open.
func (m *Mappings) openFiles(ctx context.Context, remote unc.Path) (open uint64, _ error) {
	connections, err := m.connections(ctx, remote)
	for _, c := range connections {
		open += c.Opens
	}
	return open, err
}

// removeIdle is RemoveUnused for a caller that has the server locked, and is about to make
// the mapping with other credentials.
func (m *Mappings) removeIdle(ctx context.Context, server *locks.LockedServer, remote unc.Path) (removed bool, _ error) {
	r, err := lockMapping(ctx, server, remote)
	if err != nil {
		return false, err
	}
	defer r.Share.Release()
	links, err := m.LinksToShare(ctx, r.Share)
	if err != nil || links.Incomplete != nil {
		return false, err
	}
	return m.RemoveUnused(ctx, r, links)
}

// requests keeps, for each share, the last request of the drivers of the group smb for its mapping.
// These drivers request the removal of a mapping whenever they unstage a volume, though other volumes
// may use it. Some do so before they remove their link, some afterwards, and any may repeat it. So a
// mapping stays while a link leads to its share, and the request is kept until the last link is removed.
type requests struct {
	mu     sync.Mutex
	byRoot map[string]request
}

type request int

const (
	requested request = iota // the mapping was requested, or there was no request
	toGo                     // its removal was requested; it stays as long as there are links
	gone                     // its removal was requested, and it was removed with the last link
)

func (q *requests) of(remote unc.Path) request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byRoot[remote.Root()]
}

// set notes a request. The share is locked, so that no request is lost.
func (q *requests) set(r *locks.LockedShare, to request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if to == requested {
		delete(q.byRoot, r.Root)
		return
	}
	q.byRoot[r.Root] = to
}

// unmapForDriver removes a mapping for a driver of the group smb. If there are links to the share, it
// notes instead that the mapping is to be removed with the last link.
func (m *Mappings) unmapForDriver(ctx context.Context, r *LockedMapping) error {
	links, err := m.LinksToShare(ctx, r.Share)
	if err != nil {
		return err
	}
	if len(links.ways) == 0 && links.Incomplete == nil {
		err := m.unmap(ctx, r)
		switch {
		case err == nil:
			m.requests.set(r.Share, requested)
			return m.dropRecord(ctx, r.Share)
		case !errors.Is(err, winerr.ErrorNotConnected):
			return err
		case m.requests.of(r.remote) == gone:
			return nil
		}
		return notMapped(err)
	}
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil {
		return err
	}
	if !r.remote.MappedBy(mappings) {
		return notMapped(winerr.ErrorNotConnected)
	}
	m.requests.set(r.Share, toGo)
	m.options.Logger.Info("a mapping stays for the links to its share, and goes with the last one", "remotePath",
		r.remote.Root(), "links", quote.List(links.Paths()), "count", len(links.ways), "err", links.Incomplete)
	return nil
}

// Unlinked is to be called after a driver has removed a link to a share. If that was the last link,
// and the removal of the mapping was requested, Unlinked removes the mapping.
func (m *Mappings) Unlinked(ctx context.Context, remote unc.Path) {
	if m.requests.of(remote) != toGo {
		return
	}
	if err := m.unmapLast(ctx, remote); err != nil {
		m.options.Logger.Warn("a mapping that no link needs any more can't be removed", "remotePath", remote.Root(), "err",
			err)
	}
}

func (m *Mappings) unmapLast(ctx context.Context, remote unc.Path) error {
	r, err := m.LockForRemoval(ctx, remote)
	if err != nil {
		return err
	}
	defer r.Release()
	if m.requests.of(remote) != toGo { // the mapping was requested again meanwhile
		return nil
	}
	links, err := m.LinksToShare(ctx, r.Share)
	if err == nil {
		err = links.Incomplete
	}
	if err != nil || len(links.ways) > 0 {
		return err
	}
	err = m.unmap(ctx, r)
	if err != nil && !errors.Is(err, winerr.ErrorNotConnected) {
		return err
	}
	m.requests.set(r.Share, gone)
	return m.dropRecord(ctx, r.Share)
}

// notMapped is the error of the removal of a mapping that isn't there. democratic-csi matches the
// text, which is PowerShell's.
func notMapped(err error) error {
	return &csiproxy.Error{Detail: "the share isn't mapped: No MSFT_SmbGlobalMapping objects found", Err: err}
}
