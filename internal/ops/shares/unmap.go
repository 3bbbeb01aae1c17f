// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// remove removes a mapping of a locked share by its name in Windows' list, and reports whether the
// mapping existed. Open files break. All removals use remove.
func (m *Mappings) remove(ctx context.Context, r *LockedMapping, name string) (removed bool, _ error) {
	err := m.sys.RemoveSMBGlobalMapping(ctx, name)
	removed = err == nil
	if err != nil && !errors.Is(err, winerr.ErrorNotConnected) {
		return false, err
	}
	if removed {
		m.options.Logger.Info("mapping removed", "remotePath", r.remote.Root(), "name", name)
	}
	if r.isShare(name) {
		m.logOns.unmapped(r.remote)
	}
	return removed, nil
}

// removeForGood removes a mapping and its records.
func (m *Mappings) removeForGood(ctx context.Context, r *LockedMapping, name string) (removed bool, _ error) {
	removed, err := m.remove(ctx, r, name)
	if err != nil || !r.isShare(name) {
		return removed, err
	}
	return removed, m.dropRecords(ctx, r.Share)
}

// isShare reports whether a mapping has the name of the share.
func (r *LockedMapping) isShare(name string) bool {
	remote, err := win.ParseUNC(name)
	return err == nil && remote.Equal(r.remote)
}

// RemoveUnused removes, if links is empty, the mappings of a share with a requested removal, and
// CSI Proxy's mapping for a staged path. Open files keep only the latter. RemoveUnused reports
// whether it has removed a mapping.
func (m *Mappings) RemoveUnused(ctx context.Context, r *LockedMapping, links ShareLinks) (removed bool, _ error) {
	if len(links.ways) > 0 {
		return false, nil
	}
	if csiproxy.KindOf(links.Incomplete) == csiproxy.ErrResourceExhausted { // for good
		m.options.Logger.Warn("a mapping stays, since the links to its share can't be counted", "remotePath", r.remote.Root(),
			"err", links.Incomplete)
		return false, nil
	}
	if links.Incomplete != nil {
		return false, &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
			Detail: "the links to the share can't be counted; try again later", Err: links.Incomplete}
	}
	names := m.requests.of(r.remote).toGo
	if !slices.ContainsFunc(names, r.isShare) {
		isUnused, err := m.IsUnused(ctx, r.remote)
		if err != nil {
			return false, err
		}
		if isUnused {
			names = append(slices.Clone(names), r.remote.Root())
		}
	}
	for _, name := range names {
		isThere, err := m.removeForGood(ctx, r, name)
		if err != nil {
			return removed, err
		}
		removed = removed || isThere
	}
	m.requests.setGone(r.Share)
	return removed, nil
}

// RemoveIfUnused locks a share, counts its links, and calls RemoveUnused.
func (m *Mappings) RemoveIfUnused(ctx context.Context, remote win.UNCPath) (removed bool, _ error) {
	r, err := m.LockForRemoval(ctx, remote)
	if err != nil {
		return false, err
	}
	defer r.Release()
	links, err := m.LinksToShare(ctx, r.Share)
	if err != nil {
		return false, err
	}
	return m.RemoveUnused(ctx, r, links)
}

// IsUnused reports whether the mapping of a share must go with the last link, and all files on the
// share are closed. IsUnused does not count links.
func (m *Mappings) IsUnused(ctx context.Context, remote win.UNCPath) (bool, error) {
	return m.IsUnusedAmong(ctx, remote, func() (map[string]int, error) { return m.OpenFiles(ctx) })
}

// IsUnusedAmong is IsUnused with the result of OpenFiles.
func (m *Mappings) IsUnusedAmong(ctx context.Context, remote win.UNCPath, openFiles func() (map[string]int, error)) (bool, error) {
	if isRecorded, err := m.recorded(ctx, remote, stagedRecord); err != nil || !isRecorded {
		return false, err
	}
	byShare, err := openFiles()
	if count := byShare[remote.Root()]; count > 0 {
		m.options.Logger.Debug("files on a mapped share are open", "remotePath", remote.Root(), "open", count)
		return false, err
	}
	return err == nil, err
}

// OpenFiles returns the number of open files on each share to which the node is connected, by root.
func (m *Mappings) OpenFiles(ctx context.Context) (map[string]int, error) {
	connections, err := m.sys.SMBConnections(ctx)
	byShare := make(map[string]int)
	for _, c := range connections {
		if remote, err := win.ParseUNC(`\\` + c.Server + `\` + c.Share); err == nil {
			byShare[remote.Root()] += int(c.Opens)
		}
	}
	return byShare, err
}

// requests keeps, for each share, the last request of drivers of the group smb. These drivers
// request the removal of a mapping whenever they unstage a volume, even while other volumes use the
// share. Some drivers do so before they remove their link, some afterwards, and any driver may
// repeat the request. A mapping stays while a link leads to the share, and the request is kept
// until the last link is removed.
type requests struct {
	mu     sync.Mutex
	byRoot map[string]request
}

// request is the state of the requests for a share. After a request for the mapping, it is the zero
// value.
type request struct {
	// toGo are the names of mappings to remove with the last link.
	toGo []string
	// gone is the time of the removal, zero before.
	gone time.Time
}

// goneTimeout is how long a removal is remembered: longer than drivers repeat their requests.
const goneTimeout = time.Hour

func (q *requests) of(remote win.UNCPath) request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byRoot[remote.Root()]
}

// clear drops the requests for a share. The lock of the share keeps other calls from making
// requests meanwhile.
func (q *requests) clear(r *usage.LockedShare) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.byRoot, r.Root)
}

// setToGo adds a mapping that goes with the last link to its share.
func (q *requests) setToGo(r *usage.LockedShare, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	toGo := q.byRoot[r.Root].toGo
	if !slices.Contains(toGo, name) {
		toGo = append(slices.Clone(toGo), name)
	}
	q.byRoot[r.Root] = request{toGo: toGo}
}

// setGone records the removal of all requested mappings, and drops old records: a server may have
// any number of shares.
func (q *requests) setGone(r *usage.LockedShare) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.byRoot[r.Root].toGo) == 0 {
		return
	}
	maps.DeleteFunc(q.byRoot, func(_ string, old request) bool { return !old.gone.IsZero() && time.Since(old.gone) > goneTimeout })
	q.byRoot[r.Root] = request{gone: time.Now()}
}

// RemoveSMBGlobalMapping implements [published.SMBOperations].
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/remove-msft-smbglobalmapping
func (m *Mappings) RemoveSMBGlobalMapping(ctx context.Context, name string) (err error) {
	defer m.options.Observer.End("RemoveSMBGlobalMapping", quote.Text(name), time.Now(), &err)
	remote, err := m.remoteOf(ctx, name)
	if err != nil {
		return err
	}
	locked, err := m.LockForRemoval(ctx, remote)
	if err != nil {
		return err
	}
	defer locked.Release()
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil {
		return err
	}
	mapping, isMapped := named(mappings, name, remote)
	if isMapped {
		return m.removeForCaller(ctx, locked, mapping)
	}
	if !isLetter(name) {
		m.logOns.unmapped(locked.remote)
	}
	return m.unmappedError(locked)
}

// remoteOf returns the remote path of a mapping by its name: a drive letter, or the remote path
// itself. One backslash at the beginning counts as two because Trident writes \server\share.
func (m *Mappings) remoteOf(ctx context.Context, name string) (win.UNCPath, error) {
	if !isLetter(name) {
		if strings.HasPrefix(name, `\`) && !strings.HasPrefix(name, `\\`) {
			name = `\` + name
		}
		return win.ParseUNC(name)
	}
	mappings, err := m.List(ctx)
	if err != nil {
		return win.UNCPath{}, err
	}
	mapping, isMapped := named(mappings, name, win.UNCPath{})
	if !isMapped {
		return win.UNCPath{}, notMapped()
	}
	return win.ParseUNC(mapping.RemotePath)
}

// isLetter reports whether the name of a mapping is a drive letter.
func isLetter(name string) bool { return len(name) == 2 && name[1] == ':' }

// named finds a mapping by its name. remote is the path in the name. The name of an unmapped
// directory means the mapping of the share: NewSMBGlobalMapping maps the share of a directory.
func named(mappings []win.SMBMapping, name string, remote win.UNCPath) (mapping win.SMBMapping, ok bool) {
	index := slices.IndexFunc(mappings, func(mapping win.SMBMapping) bool {
		if isLetter(name) {
			return strings.EqualFold(mapping.LocalPath, name)
		}
		return isPlain(mapping, remote)
	})
	if index < 0 && !isLetter(name) {
		index = slices.IndexFunc(mappings, func(mapping win.SMBMapping) bool { return isPlain(mapping, remote.Share()) })
	}
	if index < 0 {
		return mapping, false
	}
	return mappings[index], true
}

// removeForCaller removes a mapping named by the caller. While links lead to the share, the mapping
// stays until the last link goes. A broken mapping of another program goes at once: pods lose
// nothing, and the server becomes free for other credentials.
func (m *Mappings) removeForCaller(ctx context.Context, r *LockedMapping, mapping win.SMBMapping) error {
	links, err := m.LinksToShare(ctx, r.Share)
	if err != nil {
		return err
	}
	isUsed := len(links.ways) > 0 || links.Incomplete != nil
	if isUsed {
		isUseless, err := m.IsUseless(ctx, mapping)
		if err != nil {
			return err
		}
		isUsed = !isUseless
	}
	if isUsed {
		m.requests.setToGo(r.Share, mapping.Name())
		m.options.Logger.Info("keeping a mapping until the last link to its share is removed", "remotePath",
			r.remote.Root(), "name", mapping.Name(), "links", quote.List(links.Paths()), "count", len(links.ways), "err",
			links.Incomplete)
		return nil
	}
	removed, err := m.removeForGood(ctx, r, mapping.Name())
	if err != nil {
		return err
	}
	if !removed {
		return m.unmappedError(r)
	}
	m.requests.clear(r.Share)
	return nil
}

// IsUseless reports whether another program's mapping fails for everybody.
func (m *Mappings) IsUseless(ctx context.Context, mapping win.SMBMapping) (bool, error) {
	isOurs, err := m.isOurs(ctx, mapping)
	if err != nil || isOurs {
		return false, err
	}
	remote, err := win.ParseUNC(mapping.RemotePath)
	if err != nil {
		return false, err
	}
	f, err := m.gatherOf(ctx, Wanted{remote: remote}, mapping)
	if err != nil {
		return false, err
	}
	choice, _ := decide(f)
	return choice == replaceIt, ctx.Err()
}

// unmappedError returns the error for the removal of a missing mapping; nil if an earlier request
// has removed it with the last link within goneTimeout.
func (m *Mappings) unmappedError(r *LockedMapping) error {
	if m.requests.of(r.remote).gone.IsZero() {
		return notMapped()
	}
	return nil
}

// RemoveMappingAfterLastLink removes the mapping of a share if its removal was requested and no link to the share is
// left. Call it after removing a link for a driver.
func (m *Mappings) RemoveMappingAfterLastLink(ctx context.Context, remote win.UNCPath) {
	if len(m.requests.of(remote).toGo) == 0 {
		return
	}
	if _, err := m.RemoveIfUnused(ctx, remote); err != nil {
		m.options.Logger.Warn("can't remove a mapping that no link uses any more", "remotePath", remote.Root(), "err",
			err)
	}
}

// notMapped returns the error for the removal of a missing mapping. democratic-csi matches the
// text, which comes from PowerShell.
func notMapped() error {
	return &csiproxy.Error{Detail: "the share isn't mapped: No MSFT_SmbGlobalMapping objects found", Err: winerr.ErrorNotConnected}
}
