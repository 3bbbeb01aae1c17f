// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"math"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// FoundLink is a link or mount point that Links has found.
type FoundLink struct {
	Path Path
	Link Link
}

// The bounds of Links.
const (
	// MaxLinkDepth is how many directories below an allowed one Links looks into. Kubelet's
	// staging and target paths have six: plugins\kubernetes.io\csi\DRIVER\VOLUME\globalmount
	// and pods\POD\volumes\PLUGIN\VOLUME\mount.
	MaxLinkDepth = 8
	// maxLinkEntries bounds how many entries of directories are looked at.
	maxLinkEntries = 200_000
	// emptyDir is the directory where kubelet keeps the data of a pod that belong to no
	// volume. What pods make there are no staged paths, and may be any number of files.
	emptyDir = "kubernetes.io~empty-dir"
	// asideDirectory is the directory in an allowed one for what was moved aside. Nobody stages
	// or publishes there.
	asideDirectory = "csi-proxy-moved-aside"
)

// Aside returns a path for what is moved aside from the entry: in a directory of its own in
// the same allowed directory, so on the same volume, and below that the path that it had.
func (e Entry) Aside(name string) Path {
	path := e.path()
	path.names = slices.Concat([]string{asideDirectory, name}, path.names)
	return path
}

// Links returns the links and mount points in the allowed directories, down to
// MaxLinkDepth, and the recorded links. They aren't followed. If some may be missing, incomplete
// says why: a directory couldn't be read or, with csiproxy.ErrResourceExhausted, there are too
// many entries.
func (p *Policy) Links(ctx context.Context, sys System) (all []FoundLink, incomplete, _ error) {
	s := &linkSearch{left: maxLinkEntries, found: func(l FoundLink) { all = append(all, l) }}
	for _, root := range p.roots {
		err := p.walk(sys, func(w *walk) error {
			dir, err := w.enter(ctx, Path{root: root}, win.FileOpen)
			if err != nil {
				return err
			}
			return s.search(ctx, dir, 0)
		})
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		s.note(err)
	}
	if err := p.recordedLinks(ctx, sys, s); err != nil {
		return nil, nil, err
	}
	return all, s.incomplete, nil
}

// Links calls found with those of [Policy.Links] that lie below the directory f, and uses no
// other handle of f: it may be open for what others exclude. However many entries there are, it
// looks at all of them.
func (f *File) Links(ctx context.Context, found func(FoundLink)) (incomplete, _ error) {
	s := &linkSearch{left: math.MaxInt, found: found}
	if f.Entry("any").path().isSearched() {
		s.note(s.search(ctx, f, len(f.entry.path().names)))
	}
	f.recordedLinks(ctx, s)
	return s.incomplete, ctx.Err()
}

type linkSearch struct {
	found      func(FoundLink)
	incomplete error // the first reason why something may be missing
	left       int   // entries that may still be looked at
}

// note keeps an error, unless it says that something has gone meanwhile.
func (s *linkSearch) note(err error) {
	if err != nil && !Missing(err) && s.incomplete == nil {
		s.incomplete = err
	}
}

// take reports whether one more entry may be looked at.
func (s *linkSearch) take() bool {
	if s.left--; s.left < 0 {
		s.note(csiproxy.Errorf(csiproxy.ErrResourceExhausted, "the allowed directories have more than %d entries",
			maxLinkEntries))
	}
	return s.left >= 0
}

// search looks through an open directory. Its error is one of that directory; those of what
// is below are noted.
func (s *linkSearch) search(ctx context.Context, dir *File, depth int) error {
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		if errors.Is(err, win.ErrorNoMoreFiles) || err == nil && len(entries) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !s.take() {
				return nil
			}
			if err := s.entry(ctx, dir.Entry(e.Name), e.FileInfo, depth); err != nil {
				return err
			}
		}
	}
}

// entry looks at one entry. Its error is the end of ctx.
func (s *linkSearch) entry(ctx context.Context, e Entry, info win.FileInfo, depth int) error {
	var err error
	switch {
	case info.IsReparsePoint():
		var link Link
		if link, err = e.Link(ctx); err == nil {
			s.found(FoundLink{e.path(), link})
		} else if errors.Is(err, win.ErrorNotAReparsePoint) {
			err = nil // not any more
		}
	case info.IsDir() && depth+1 < MaxLinkDepth && !winname.Equal(e.name, emptyDir) &&
		(depth > 0 || !winname.Equal(e.name, asideDirectory)):
		err = e.With(ctx, Directory(win.FileOpen), func(dir *File) error {
			info, err := dir.Info(ctx)
			if err == nil && !info.IsReparsePoint() {
				err = s.search(ctx, dir, depth+1)
			}
			return err
		})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		err = e.failed(err)
	}
	s.note(err)
	return nil
}
