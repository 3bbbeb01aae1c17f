// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// LockedMapping is a mapping locked for removal: the server's mappings and the share.
type LockedMapping struct {
	Server *usage.LockedServer
	Share  *usage.LockedShare
	remote win.UNCPath
}

// LockForRemoval locks the mapping of the share of remote for removal.
func (m *Mappings) LockForRemoval(ctx context.Context, remote win.UNCPath) (*LockedMapping, error) {
	server, err := m.options.Locks.LockServer(ctx, remote)
	if err != nil {
		return nil, err
	}
	r, err := lockMapping(ctx, server, remote)
	if err != nil {
		server.Release()
	}
	return r, err
}

// lockMapping is LockForRemoval for a caller with the server locked. The caller releases only
// r.Share.
func lockMapping(ctx context.Context, server *usage.LockedServer, remote win.UNCPath) (*LockedMapping, error) {
	share, err := server.LockShare(ctx, remote)
	if err != nil {
		return nil, err
	}
	return &LockedMapping{server, share, remote.Share()}, nil
}

// Release releases both locks.
func (r *LockedMapping) Release() {
	r.Share.Release()
	r.Server.Release()
}

// ShareOf returns the target directory of a link to a share. ok is true for links made by
// StageShare and NewSMBGlobalMapping.
func ShareOf(link pathpolicy.Link) (remote win.UNCPath, ok bool) {
	if link.Kind != pathpolicy.LinkToShare || link.Tag != win.TagSymlink {
		return win.UNCPath{}, false
	}
	remote, err := win.ParseUNC(link.Target())
	return remote, err == nil
}

// linkToMapped makes the wanted local path a link to the share, and reports whether the share is
// mapped. Another call may have removed the mapping meanwhile. For a staging, a mapping with other
// credentials does not count.
func (m *Mappings) linkToMapped(ctx context.Context, wanted Wanted) (mapped bool, err error) {
	share, err := m.options.Locks.LockShareOnly(ctx, wanted.remote)
	if err != nil {
		return false, err
	}
	defer share.Release()
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil || !wanted.remote.MappedBy(mappings) {
		return false, err
	}
	credentials := m.logOns.compare(wanted.remote, wanted.credentials)
	hasOther := credentials == otherPassword || credentials == otherUser
	if wanted.Staging && hasOther {
		return false, nil
	}
	m.requests.clear(share)
	if wanted.localText == "" {
		return true, m.keepWithoutLinks(ctx, share, wanted.remote)
	}
	// Drivers read the link back to learn the share. For the root of a share, the target ends with
	// a backslash: otherwise Go's os.Stat fails to follow the link.
	target := wanted.remote.String() + `\`
	isSame := func(l pathpolicy.Link) bool {
		to, ok := ShareOf(l)
		return ok && to.Equal(wanted.remote)
	}
	walk := m.paths.Walk(m.sys)
	defer walk.CloseInto(&err)
	e, err := walk.ReachOrMake(ctx, wanted.local)
	if err != nil {
		return true, err
	}
	made, err := e.MakeSymlink(ctx, target, false, isSame)
	if wanted.Staging && csiproxy.KindOf(err) == csiproxy.ErrAlreadyExists {
		made, err = m.linkInstead(ctx, e, target, isSame, err)
	}
	if made {
		m.options.Logger.Info("link made", "path", e.Path(), "target", target)
	}
	return true, err
}

// keepWithoutLinks keeps a mapping after the last link of other callers, because uses without a
// link are invisible.
func (m *Mappings) keepWithoutLinks(ctx context.Context, share *usage.LockedShare, remote win.UNCPath) error {
	isStaged, err := m.recorded(ctx, remote, stagedRecord)
	if err != nil || !isStaged {
		return err
	}
	if _, err := m.record(ctx, share, madeRecord); err != nil {
		return err
	}
	return m.dropRecord(ctx, share, stagedRecord)
}

// linkInstead replaces an empty directory, left by a call that has died, by a link. For anything
// else, the error is exists.
func (m *Mappings) linkInstead(ctx context.Context, e pathpolicy.Entry, target string, isSame func(pathpolicy.Link) bool,
	exists error) (made bool, _ error) {
	removed, err := e.RemoveEmptyDirectory(ctx)
	isSomethingElse := pathpolicy.Missing(err) || errors.Is(err, winerr.ErrorDirNotEmpty)
	if err != nil && !isSomethingElse {
		return false, err
	}
	if !removed {
		return false, exists
	}
	m.options.Logger.Info("directory removed", "path", e.Path())
	return e.MakeSymlink(ctx, target, false, isSame)
}

// ShareLinks are the links in the allowed directories to a share, directly or through further
// links.
type ShareLinks struct {
	// Incomplete says why links may be missing; nil if all are known.
	Incomplete error
	ways       []*way
}

// way is a link that leads to a share, and the rest of its way. At the share, all fields are zero.
type way struct {
	link   *pathpolicy.FoundLink
	rest   *way
	length int // in links
}

// LinksToShare returns the links that lead to a share.
func (m *Mappings) LinksToShare(ctx context.Context, share *usage.LockedShare) (to ShareLinks, _ error) {
	finder := m.options.Users
	end, err := finder.BeginFollowing(ctx)
	if err != nil {
		return to, err
	}
	defer end()
	all, incomplete, err := finder.Links(ctx, finder.OwnerOfShare(share.Root))
	if err != nil {
		return to, err
	}
	to.Incomplete = incomplete
	known := make(map[*pathpolicy.FoundLink]*way)
	for l := range all.All() {
		if err := ctx.Err(); err != nil {
			return to, err
		}
		if found := wayToShare(l, share.Root, all, known); found != nil {
			to.ways = append(to.ways, found)
		}
	}
	return to, nil
}

// wayToShare returns the way of a link to the share with a root, or nil if the link leads elsewhere.
// known has the ways of the links followed before, and gets those of all links on the way: a chain
// is followed once, however many links lead into it.
func wayToShare(l *pathpolicy.FoundLink, root string, all usage.FoundLinks, known map[*pathpolicy.FoundLink]*way) (rest *way) {
	var followed []*pathpolicy.FoundLink
	for l != nil {
		isKnown := false
		if rest, isKnown = known[l]; isKnown {
			break
		}
		known[l] = nil // a circle ends here
		followed = append(followed, l)
		remote, isShare := ShareOf(l.Link)
		if isShare && remote.Root() == root {
			rest = new(way)
		}
		if isShare || l.Link.Kind != pathpolicy.LinkInside {
			break
		}
		l = all.FirstOn(l.Link.Path.String())
	}
	for _, link := range slices.Backward(followed) {
		if rest == nil || rest.length == usage.MaxLinksFollowed { // longer ways count as leading elsewhere
			return nil
		}
		rest = &way{link, rest, rest.length + 1}
		known[link] = rest
	}
	return rest
}

// Paths returns the paths of the links.
func (l ShareLinks) Paths() (paths []string) {
	for _, w := range l.ways {
		paths = append(paths, w.link.Path.String())
	}
	return paths
}

// At reports whether one of the links is at a path.
func (l ShareLinks) At(path pathpolicy.Path) bool {
	return slices.ContainsFunc(l.ways, func(w *way) bool { return w.link.Path.Equal(path) })
}

// Except returns all links but the link at a path.
func (l ShareLinks) Except(path pathpolicy.Path) ShareLinks {
	l.ways = slices.DeleteFunc(slices.Clone(l.ways), func(w *way) bool { return w.link.Path.Equal(path) })
	return l
}

// By returns the paths of the links that lead to the share through the link at a path.
func (l ShareLinks) By(path pathpolicy.Path) (paths []string) {
	index := slices.IndexFunc(l.ways, func(w *way) bool { return w.link.Path.Equal(path) })
	if index < 0 {
		return nil
	}
	for _, w := range l.ways {
		for rest := w.rest; rest != nil; rest = rest.rest {
			if rest == l.ways[index] {
				paths = append(paths, w.link.Path.String())
			}
		}
	}
	return paths
}
