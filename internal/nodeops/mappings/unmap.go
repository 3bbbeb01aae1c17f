// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"errors"
	"slices"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// RemoveUnused removes the mapping of a share if CSI Proxy has made it for a staged path and
// nothing uses it: links has none, and no file on the share is open. It reports whether it has.
func (m *Mappings) RemoveUnused(ctx context.Context, r *Rights, links Links) (removed bool, _ error) {
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
	ours, open, err := m.usedOtherwise(ctx, remote)
	switch {
	case err != nil:
		return false, err
	case !ours:
		m.options.Logger.Debug("a mapping stays, since CSI Proxy hasn't made it for a staged path", "remotePath",
			remote.Root())
		return false, nil
	case open > 0:
		m.options.Logger.Info("a mapping stays, since files on its share are open", "remotePath", remote.Root(), "open", open)
		return false, nil
	}
	err = m.unmap(ctx, r)
	if err != nil && !errors.Is(err, win.ErrorNotConnected) {
		return false, err
	}
	removed = err == nil
	return removed, m.dropRecord(ctx, remote)
}

// IsUnused reports whether CSI Proxy has made the mapping of a share for a staged path, and no
// file on the share is open. Links aren't looked at.
func (m *Mappings) IsUnused(ctx context.Context, remote unc.Path) (bool, error) {
	ours, open, err := m.usedOtherwise(ctx, remote)
	return err == nil && ours && open == 0, err
}

// usedOtherwise reports whether CSI Proxy has made a mapping for a staged path, and how many
// files on the share are open.
func (m *Mappings) usedOtherwise(ctx context.Context, remote unc.Path) (ours bool, open uint64, _ error) {
	ours, err := m.recorded(ctx, remote)
	if err != nil || !ours {
		return false, 0, err
	}
	connections, err := m.connections(ctx, remote)
	for _, c := range connections {
		open += c.Opens
	}
	return ours, open, err
}

// removeIdle is RemoveUnused for somebody who has the right to the server, and wants to make the
// mapping with other credentials.
func (m *Mappings) removeIdle(ctx context.Context, server *use.Server, remote unc.Path) (removed bool, _ error) {
	ctx, r, err := m.rights(ctx, server, remote)
	if err != nil {
		return false, err
	}
	defer r.Share.Release()
	links, err := m.LinksTo(ctx, r.Share)
	if err != nil || links.Incomplete != nil {
		return false, err
	}
	return m.RemoveUnused(ctx, r, links)
}

// drivers remembers what drivers of the group smb do with the mappings of shares. They ask for
// the removal of a mapping at the unstage of a volume, though volumes share it. Some do so
// before they remove their link, some afterwards, and some count volumes in memory and ask with
// the last one only. So a mapping goes at once if the only link that is left can be nothing but
// the caller's own. Otherwise it stays, and goes with the last link.
type drivers struct {
	mu     sync.Mutex
	byRoot map[string]driven
}

// driven is what drivers have done with the mapping of one share since it was asked for last.
type driven struct {
	unlinked []string // the links that were removed, for which nobody has asked to unmap the share
	early    int      // how often that was asked for and the link is to be removed yet
	toGo     bool     // that was asked for, and the mapping has stayed
	repeated bool     // whoever asks for it now may do so again: no link was removed since
	ahead    bool     // the mapping has gone with the last link, and a driver may ask for that yet
}

// maxUnlinked bounds how many links of a share are remembered.
const maxUnlinked = 64

// with calls f with what drivers have done with the mapping of a share, and forgets a share of which
// nothing is known then.
func (d *drivers) with(remote unc.Path, f func(one *driven)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.byRoot[remote.Root()]
	f(&one)
	if len(one.unlinked) == 0 && one.early == 0 && !one.toGo && !one.ahead {
		delete(d.byRoot, remote.Root())
		return
	}
	if d.byRoot == nil {
		d.byRoot = make(map[string]driven)
	}
	d.byRoot[remote.Root()] = one
}

// mapped notes that a share was asked for, at a local path.
func (d *drivers) mapped(remote unc.Path, local string) {
	d.with(remote, func(one *driven) { *one = driven{unlinked: without(one.unlinked, local)} })
}

// isToGo reports whether the mapping of a share is to go with the last link.
func (d *drivers) isToGo(remote unc.Path) (toGo bool) {
	d.with(remote, func(one *driven) { toGo = one.toGo })
	return toGo
}

// unlinkedAt notes that a link to a share was removed.
func (d *drivers) unlinkedAt(remote unc.Path, local string) {
	d.with(remote, func(one *driven) {
		one.repeated = false
		if one.early > 0 {
			one.early--
			return
		}
		one.unlinked = append(without(one.unlinked, local), local)
		one.unlinked = one.unlinked[max(0, len(one.unlinked)-maxUnlinked):]
	})
}

// mayBeOwn reports whether the only link that is left may be that of the driver that asks for
// the removal of the mapping. It is another's if a link was removed without such a request, or
// if the driver has asked before and repeats that.
func (d *drivers) mayBeOwn(remote unc.Path) (own bool) {
	d.with(remote, func(one *driven) { own = len(one.unlinked) == 0 && !one.repeated })
	return own
}

// asked notes that the removal of a mapping was asked for, with so many links left, and whether
// the mapping has stayed.
func (d *drivers) asked(remote unc.Path, links int, stays bool) {
	d.with(remote, func(one *driven) {
		switch {
		case len(one.unlinked) > 0:
			one.unlinked = one.unlinked[1:]
		case links > 0 && !one.repeated:
			one.early++
		}
		one.toGo, one.repeated = stays, stays
		if !stays {
			*one = driven{early: min(one.early, links)}
		}
	})
}

// wentAhead notes that a mapping has gone with the last link.
func (d *drivers) wentAhead(remote unc.Path) {
	d.with(remote, func(one *driven) { *one = driven{ahead: true} })
}

// takeAhead reports whether a mapping has gone with the last link, once.
func (d *drivers) takeAhead(remote unc.Path) (ahead bool) {
	d.with(remote, func(one *driven) {
		if ahead = one.ahead; ahead {
			*one = driven{}
		}
	})
	return ahead
}

// without returns the paths but for one.
func without(paths []string, path string) []string {
	return slices.DeleteFunc(paths, func(p string) bool { return winname.Equal(p, path) })
}

// unmapForDriver removes a mapping for a driver of the group smb, unless others need it.
func (m *Mappings) unmapForDriver(ctx context.Context, r *Rights) error {
	links, err := m.LinksTo(ctx, r.Share)
	if err != nil {
		return err
	}
	left := len(links.ways)
	if left == 0 && links.Incomplete == nil || left == 1 && links.Incomplete == nil && m.drivers.mayBeOwn(r.remote) {
		err := m.unmap(ctx, r)
		if errors.Is(err, win.ErrorNotConnected) {
			if m.drivers.takeAhead(r.remote) {
				return nil
			}
			return notMapped(err)
		}
		if err != nil {
			return err
		}
		m.drivers.asked(r.remote, left, false)
		return m.dropRecord(ctx, r.remote)
	}
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil {
		return err
	}
	if !r.remote.MappedBy(mappings) {
		return notMapped(win.ErrorNotConnected)
	}
	m.drivers.asked(r.remote, left, true)
	m.options.Logger.Info("a mapping stays for the links to its share, and goes with the last one",
		"remotePath", r.remote.Root(), "links", use.Listed(links.Paths()), "count", left, "err", links.Incomplete)
	return nil
}

// Unlinked is to be called after a link to a share was removed by a driver. If the mapping was to
// go, and has stayed for the links to the share, it goes with the last one.
func (m *Mappings) Unlinked(ctx context.Context, remote unc.Path, local string) {
	m.drivers.unlinkedAt(remote, local)
	if !m.drivers.isToGo(remote) {
		return
	}
	if err := m.unmapLast(ctx, remote); err != nil {
		m.options.Logger.Warn("a mapping that no link needs any more can't be removed", "remotePath", remote.Root(), "err",
			err)
	}
}

func (m *Mappings) unmapLast(ctx context.Context, remote unc.Path) error {
	ctx, r, err := m.Rights(ctx, remote)
	if err != nil {
		return err
	}
	defer r.Release()
	if !m.drivers.isToGo(remote) { // somebody has asked for the share meanwhile
		return nil
	}
	links, err := m.LinksTo(ctx, r.Share)
	if err != nil || len(links.ways) > 0 || links.Incomplete != nil {
		return err
	}
	err = m.unmap(ctx, r)
	if err != nil && !errors.Is(err, win.ErrorNotConnected) {
		return err
	}
	m.drivers.wentAhead(remote)
	return m.dropRecord(ctx, remote)
}

// notMapped is the error of the removal of a mapping that isn't there. democratic-csi looks for
// the text of PowerShell.
func notMapped(err error) error {
	return &csiproxy.Error{Detail: "the share isn't mapped: No MSFT_SmbGlobalMapping objects found", Err: err}
}
