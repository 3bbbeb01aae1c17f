// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/records"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// isSearched reports whether Links comes by a path without a record of what is there.
func (p Path) isSearched() bool {
	if p.volume != "" || len(p.names) > MaxLinkDepth {
		return false
	}
	above := p.names[:max(0, len(p.names)-1)]
	return !slices.ContainsFunc(above, func(name string) bool { return winname.Equal(name, emptyDir) })
}

// recordName names the record of the link to target at path. A link that leads elsewhere has
// none: whoever may write to its directory can have made it.
func recordName(path Path, target string) string {
	return records.Name(winname.Lower(path.String()) + "\x00" + winname.Lower(target))
}

// recorded records the entry as a link to target if Links wouldn't find it otherwise, and calls
// make while nobody can drop the record.
func (e Entry) recorded(ctx context.Context, target string, make func() error) error {
	path := e.path()
	if path.isSearched() {
		return make()
	}
	_, release, err := records.Links.Make(ctx, e.walk.sys, recordName(path, target), path.String())
	if err != nil {
		return err
	}
	defer release()
	return make()
}

// recordedLinks adds the links that are recorded and there. Records of others are dropped. Its
// error is the end of ctx.
func (p *Policy) recordedLinks(ctx context.Context, sys System, s *linkSearch) error {
	all, err := records.Links.All(ctx, sys)
	s.note(err)
	for _, r := range all {
		if !s.take() {
			break
		}
		path, ok := p.parseRecorded(r.About)
		if !ok || path.isSearched() { // by a daemon that has other directories
			continue
		}
		var link Link
		there := false
		look := func() (isGone bool, err error) {
			link, there, isGone, err = p.lookAtRecorded(ctx, sys, path, r.Name)
			return isGone, err
		}
		isGone, err := look()
		if err == nil && isGone {
			err = records.Links.Drop(ctx, sys, r.Name, look)
		}
		if there {
			s.found(FoundLink{path, link})
		}
		s.note(err)
	}
	return ctx.Err()
}

// recordedLinks is that of Policy for the links below the directory f. Records of others stay.
func (f *File) recordedLinks(ctx context.Context, s *linkSearch) {
	all, err := records.Links.All(ctx, f.entry.walk.sys)
	s.note(err)
	dir := f.entry.path()
	for _, r := range all {
		path, ok := f.entry.walk.policy.parseRecorded(r.About)
		if !ok || path.isSearched() || !path.IsBelow(dir) {
			continue
		}
		below := path.full().names[len(dir.full().names):]
		link, err := f.Entry(strings.Join(below, `\`)).Link(ctx)
		switch {
		case err == nil && recordName(path, link.Target()) == r.Name:
			s.found(FoundLink{path, link})
		case errors.Is(err, win.ErrorNotAReparsePoint), errors.Is(err, win.ErrorDirectory): // not any more
		default:
			s.note(err)
		}
	}
}

// parseRecorded returns the path of a record, if it lies inside.
func (p *Policy) parseRecorded(about string) (path Path, ok bool) {
	if l, ok := onVolume(about); ok {
		return Path{volume: l.drive, names: l.names}, true
	}
	path, err := p.Parse(about, MaxLongPath)
	return path, err == nil
}

// lookAtRecorded looks for a link that has a record of a name. It is gone if there is something
// else at its path, or a link on the way: there was none when it was made. A link on a volume
// that isn't there is neither there nor gone.
func (p *Policy) lookAtRecorded(ctx context.Context, sys System, path Path,
	name string) (link Link, there, isGone bool, _ error) {
	err := p.walk(sys, func(w *walk) error {
		if path.volume != "" {
			if _, err := w.enter(ctx, path, win.FileOpen); Missing(err) || win.IsGone(err) {
				return nil
			}
		}
		e, elsewhere, err := w.down(ctx, path, win.FileOpen)
		if err == nil && elsewhere == nil {
			if link, err = e.Link(ctx); err != nil {
				err = e.failed(err)
			}
		}
		byWindows := errors.As(err, new(win.Errno))
		switch {
		case err == nil:
			there = elsewhere == nil && recordName(path, link.Target()) == name
			isGone = !there
		case Missing(err), errors.Is(err, win.ErrorNotAReparsePoint):
			isGone = true
		case csiproxy.KindOf(err) == csiproxy.ErrPermissionDenied && !byWindows: // a link on the way that leads outside
			isGone = true
		default:
			return err
		}
		return nil
	})
	return link, there, isGone, err
}
