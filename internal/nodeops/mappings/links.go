// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"errors"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// Rights are the rights to make or remove the mapping of a share: that to the mappings of its
// server, and that to the share.
type Rights struct {
	Server *use.Server
	Share  *use.Share
	remote unc.Path
}

// Rights gives the rights to make or remove the mapping of the share of remote.
func (m *Mappings) Rights(ctx context.Context, remote unc.Path) (context.Context, *Rights, error) {
	ctx, server, err := m.options.Owner.Server(ctx, remote)
	if err != nil {
		return ctx, nil, err
	}
	inside, r, err := m.rights(ctx, server, remote)
	if err != nil {
		server.Release()
		return ctx, nil, err
	}
	return inside, r, nil
}

// rights is Rights for who has the right to the server, and so releases only that to the share.
func (m *Mappings) rights(ctx context.Context, server *use.Server, remote unc.Path) (context.Context, *Rights, error) {
	ctx, share, err := m.options.Owner.Share(ctx, remote)
	if err != nil {
		return ctx, nil, err
	}
	return ctx, &Rights{server, share, remote.Share()}, nil
}

// Release gives the rights back.
func (r *Rights) Release() {
	r.Share.Release()
	r.Server.Release()
}

// ShareOf returns the directory of a share that a link leads to, and whether it is one as
// StageShare and NewSMBGlobalMapping make it.
func ShareOf(link pathpolicy.Link) (unc.Path, bool) {
	if link.Kind != pathpolicy.LinkToShare || link.Tag != win.TagSymlink {
		return unc.Path{}, false
	}
	remote, err := unc.Parse(link.Target())
	return remote, err == nil
}

// linkWhileMapped makes the local path that is wanted a link to the share, and reports whether
// the share was mapped then, for a staging with the credentials that are given: another call may
// have removed the mapping meanwhile.
func (m *Mappings) linkWhileMapped(ctx context.Context, w Wanted) (mapped bool, _ error) {
	ctx, share, err := m.options.Owner.Share(ctx, w.remote)
	if err != nil {
		return false, err
	}
	defer share.Release()
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil || !w.remote.MappedBy(mappings) {
		return false, err
	}
	if known, _, same := m.logOns.Compare(w.remote, w.credentials); w.Staging && known && !same {
		return false, nil
	}
	m.drivers.mapped(w.remote, w.localText)
	if w.localText == "" {
		// Whoever uses the mapping without a link can't be seen: it isn't removed for others.
		return true, m.dropRecord(ctx, w.remote)
	}
	return true, m.link(ctx, share, w)
}

// link makes the local path a link to the share.
func (m *Mappings) link(ctx context.Context, _ *use.Share, w Wanted) error {
	make := func() error {
		return m.paths.ReachMaking(ctx, m.sys, w.local, func(e pathpolicy.Entry) error { return m.linkAt(ctx, e, w.remote) })
	}
	err := make()
	if csiproxy.KindOf(err) != csiproxy.ErrAlreadyExists || !w.Staging {
		return err
	}
	removed := false // what a call that died half-way has left
	removeErr := m.paths.Reach(ctx, m.sys, w.local, func(e pathpolicy.Entry) (err error) {
		removed, err = e.RemoveEmptyDirectory(ctx)
		return err
	})
	if removed {
		m.options.Logger.Info("directory removed", "path", w.local.String())
		return make()
	}
	if removeErr != nil && !pathpolicy.Missing(removeErr) && !errors.Is(removeErr, win.ErrorDirNotEmpty) {
		return removeErr
	}
	return err
}

// linkAt makes the entry a link to remote. Drivers read the link back to learn which share it
// was, and Go's os.Stat follows a link to the root of a share only if there is a backslash at
// its end.
func (m *Mappings) linkAt(ctx context.Context, e pathpolicy.Entry, remote unc.Path) error {
	made, err := e.MakeSymlink(ctx, remote.String()+`\`, false, func(l pathpolicy.Link) bool {
		to, ok := ShareOf(l)
		return ok && to.Equal(remote)
	})
	if made {
		m.options.Logger.Info("link made", "path", e.Path(), "target", remote.String()+`\`)
	}
	return err
}

// Links are the links in the allowed directories that lead to a share, also by way of others.
type Links struct {
	// Incomplete is why some may be missing, or nil.
	Incomplete error
	ways       [][]string // of each link its path, and those of the links that it leads by
}

// LinksTo returns the links that lead to a share.
func (m *Mappings) LinksTo(ctx context.Context, share *use.Share) (to Links, _ error) {
	all, incomplete, err := m.paths.Links(ctx, m.sys)
	if err != nil {
		return to, err
	}
	to.Incomplete = incomplete
	byPath := make(map[string]pathpolicy.FoundLink, len(all))
	for _, l := range all {
		byPath[winname.Lower(l.Path.String())] = l
	}
	for _, l := range all {
		if way, leads := wayToShare(l, byPath); leads == share.Root {
			to.ways = append(to.ways, way)
		}
	}
	return to, nil
}

// wayToShare returns the root of the share that a link leads to, "" if it is none, and the
// links on the way.
func wayToShare(l pathpolicy.FoundLink, all map[string]pathpolicy.FoundLink) (way []string, root string) {
	for len(way) <= len(all) { // or it is a circle
		way = append(way, l.Path.String())
		if remote, ok := ShareOf(l.Link); ok {
			return way, remote.Root()
		}
		if l.Link.Kind != pathpolicy.LinkInside {
			return nil, ""
		}
		next, ok := firstLink(l.Link.Path.String(), all)
		if !ok {
			return nil, ""
		}
		l = next
	}
	return nil, ""
}

// firstLink returns the first link on a path: the path itself or a directory above it.
func firstLink(path string, all map[string]pathpolicy.FoundLink) (pathpolicy.FoundLink, bool) {
	folded := winname.Lower(path)
	for at := 0; at < len(folded); {
		end := strings.IndexByte(folded[at:], '\\')
		if end < 0 {
			break
		}
		at += end
		if l, ok := all[folded[:at]]; ok {
			return l, true
		}
		at++
	}
	l, ok := all[folded]
	return l, ok
}

// Paths returns the paths of the links.
func (l Links) Paths() (paths []string) {
	for _, way := range l.ways {
		paths = append(paths, way[0])
	}
	return paths
}

// At reports whether one of the links is at a path.
func (l Links) At(path pathpolicy.Path) bool {
	return slices.ContainsFunc(l.ways, func(way []string) bool { return winname.Equal(way[0], path.String()) })
}

// Except returns the other links than the one at a path.
func (l Links) Except(path pathpolicy.Path) Links {
	l.ways = slices.DeleteFunc(slices.Clone(l.ways),
		func(way []string) bool { return winname.Equal(way[0], path.String()) })
	return l
}

// By returns the paths of the links that lead to the share by way of the one at a path.
func (l Links) By(path pathpolicy.Path) (paths []string) {
	for _, way := range l.ways {
		if slices.ContainsFunc(way[1:], func(p string) bool { return winname.Equal(p, path.String()) }) {
			paths = append(paths, way[0])
		}
	}
	return paths
}
