// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// FoundLink is a link or mount point that Links has found.
type FoundLink struct {
	Path Path
	Link Link
	// ForgottenPod is the UID of the pod whose link this is, if kubelet has lost the file beside it
	// without which it doesn't unpublish a volume: it is missing, or has no contents. Else it is "".
	ForgottenPod string
}

// The bounds of Links.
const (
	// maxLinkDepth is how many names below an allowed directory the paths have to which Links
	// searches. Kubelet's staging and target paths have six:
	// plugins\kubernetes.io\csi\DRIVER\VOLUME\globalmount and
	// pods\POD\volumes\PLUGIN\VOLUME\mount.
	maxLinkDepth = 8
	// maxLinkEntries bounds how many entries of directories are checked.
	maxLinkEntries = 200_000
	// emptyDir is the directory where kubelet keeps a pod's data that belong to no volume.
	// It isn't searched: it has no staged paths, and pods may make any number of files there.
	emptyDir = "kubernetes.io~empty-dir"
)

// What kubelet has in the directory of a pod's volume of a CSI driver,
// pods\UID\volumes\kubernetes.io~csi\PV.
const (
	csiVolumes = "kubernetes.io~csi"
	csiMount   = "mount"         // the link
	csiData    = "vol_data.json" // which volume of which driver it is; made before the link, and removed after it
)

// podOf returns the UID of the pod whose link to a volume has the path; "" if it is no such path.
func (p *Policy) podOf(path Path) string {
	if !p.IsOfKubelet(path) {
		return ""
	}
	names := path.full().names[len(p.allowed[0].names):]
	if len(names) == 6 && winname.Equal(names[0], "pods") && winname.Equal(names[2], "volumes") &&
		winname.Equal(names[3], csiVolumes) && winname.Equal(names[5], csiMount) {
		return names[1]
	}
	return ""
}

// CheckSearched returns csiproxy.ErrFailedPrecondition if Links doesn't find the entry. It is called
// before a link is made. A volume or share counts as in use because Links finds a link to it. With a
// link that Links doesn't find, it could be unmounted or unmapped while in use.
func (e Entry) CheckSearched() error {
	if reason := e.walk.policy.unsearched(e.path()); reason != "" {
		return e.refused(csiproxy.ErrFailedPrecondition, reason+", where CSI Proxy doesn't search for links")
	}
	return nil
}

// unsearched says why Links doesn't find a path; "" if it does.
func (p *Policy) unsearched(path Path) (reason string) {
	above := path.names[:max(0, len(path.names)-1)]
	switch {
	case path.volume != "":
		return "the path leads into a mounted volume"
	case slices.ContainsFunc(above, isEmptyDir):
		return "the path lies in an emptyDir"
	case p.depth(path) > maxLinkDepth:
		return fmt.Sprintf("the path lies more than %d levels below an allowed directory", maxLinkDepth)
	}
	return ""
}

// depth returns how many names path has below the innermost allowed directory that it is in.
func (p *Policy) depth(path Path) int {
	depth := len(path.names)
	for depth > 0 {
		above := path
		above.names = path.names[:len(path.names)-depth+1]
		if !p.holdsAllowed(above) {
			break
		}
		depth--
	}
	return depth
}

func isEmptyDir(name string) bool { return winname.Equal(name, emptyDir) }

// Links returns the links and mount points in the allowed directories that aren't in an emptyDir,
// down to maxLinkDepth. They aren't followed. If some may be missing, incomplete says why: a
// directory couldn't be read or, with csiproxy.ErrResourceExhausted, there are too many entries.
func (p *Policy) Links(ctx context.Context, sys System) (all []FoundLink, incomplete, _ error) {
	s := &linkSearch{left: maxLinkEntries}
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
	return s.found, s.incomplete, nil
}

type linkSearch struct {
	found      []FoundLink
	incomplete error // the first reason why something may be missing
	left       int   // how many more entries may be checked
}

// note keeps an error, unless it says that an entry was removed meanwhile.
func (s *linkSearch) note(err error) {
	if err != nil && !Missing(err) && s.incomplete == nil {
		s.incomplete = err
	}
}

// mayGoOn counts an entry, and reports whether it may be checked.
func (s *linkSearch) mayGoOn() bool {
	if s.left--; s.left < 0 {
		s.note(csiproxy.Errorf(csiproxy.ErrResourceExhausted, "the allowed directories have more than %d entries",
			maxLinkEntries))
	}
	return s.left >= 0
}

// search searches an open directory and those below. It returns an error of the directory itself,
// and notes the errors of entries.
func (s *linkSearch) search(ctx context.Context, dir *File, depth int) error {
	before, known := len(s.found), false
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		if errors.Is(err, win.ErrorNoMoreFiles) || err == nil && len(entries) == 0 {
			if mount := dir.Entry(csiMount); !known {
				for i, l := range s.found[before:] {
					if l.Path.Equal(mount.path()) {
						s.found[before+i].ForgottenPod = mount.walk.policy.podOf(l.Path)
					}
				}
			}
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			known = known || winname.Equal(e.Name, csiData) && e.Size > 0
			if !s.mayGoOn() {
				return nil
			}
			if err := s.entry(ctx, dir.Entry(e.Name), e.FileInfo, depth); err != nil {
				return err
			}
		}
	}
}

// entry checks one entry. Its only error is ctx's.
func (s *linkSearch) entry(ctx context.Context, e Entry, info win.FileInfo, depth int) error {
	var err error
	switch {
	case info.IsReparsePoint():
		err = s.link(ctx, e)
	case info.IsDir() && !isEmptyDir(e.name):
		err = s.directory(ctx, e, depth+1)
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

// link adds e to the links that were found, if it still is a link.
func (s *linkSearch) link(ctx context.Context, e Entry) error {
	link, err := e.Link(ctx)
	if errors.Is(err, win.ErrorNotAReparsePoint) {
		return nil
	}
	if err != nil {
		return err
	}
	s.found = append(s.found, FoundLink{Path: e.path(), Link: link})
	return nil
}

// directory searches the directory e, whose entries have depth+1 names below an allowed
// directory. e may have become a link since it was listed.
func (s *linkSearch) directory(ctx context.Context, e Entry, depth int) (err error) {
	if depth == 1 && e.walk.policy.holdsAllowed(e.path()) {
		depth = 0
	}
	if depth == maxLinkDepth {
		return nil
	}
	dir, err := e.Open(ctx, Directory(win.FileOpen))
	if err != nil {
		return err
	}
	defer dir.CloseInto(&err)
	_, link, err := dir.Examine(ctx)
	if err != nil {
		return err
	}
	if link != nil {
		s.found = append(s.found, FoundLink{Path: e.path(), Link: *link})
		return nil
	}
	return s.search(ctx, dir, depth)
}
