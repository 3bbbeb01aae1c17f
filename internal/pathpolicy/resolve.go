// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Kind tells what a path leads to.
type Kind int

// Kinds.
const (
	Nothing         Kind = iota // nothing is there, or one of the directories to it isn't
	PlainDirectory              // a directory, and no link
	PlainFile                   // a file
	MountedVolume               // a directory at which a volume is mounted
	SharedDirectory             // a UNC path
)

// Resolved is what a path leads to when all links are followed, the last element's too.
type Resolved struct {
	Kind Kind
	// Volume is \\?\Volume{guid}\, of a MountedVolume. It may have left the node.
	Volume string
	// Target is what the last link that was followed leads to: of a SharedDirectory
	// \\server\share….
	Target string
	// ByLink says that the path itself is a link to another path, and not where it ends.
	ByLink bool
	// InVolume says that the path leads into a volume that is mounted in the allowed
	// directories, or to where nothing is in one.
	InVolume bool
}

// Resolve follows path to its end. Links in the middle and at the end are followed by the
// rules of Reach, but a path may end at a share. That nothing is there, or a link dangles,
// is no error.
func (p *Policy) Resolve(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	err = p.walk(sys, func(w *walk) error {
		_, r, err = w.resolve(ctx, path)
		return err
	})
	return r, err
}

// ResolveVolume is Resolve, and tells the volume, \\?\Volume{guid}\: of a MountedVolume that
// volume, else the one that the file or directory is on, or the nearest existing directory
// above it. It is "" if not even the drive exists, and of a SharedDirectory.
func (p *Policy) ResolveVolume(ctx context.Context, sys System, path Path) (r Resolved, volume string, err error) {
	err = p.walk(sys, func(w *walk) error {
		end, resolved, err := w.resolve(ctx, path)
		if r = resolved; err != nil {
			return err
		}
		switch {
		case r.Kind == MountedVolume, r.Kind == SharedDirectory:
			volume = r.Volume
		case w.at != nil:
			volume, err = w.at.Volume(ctx)
		default:
			volume, err = volumeAt(ctx, sys, end.root)
		}
		return err
	})
	return r, volume, err
}

// resolve also returns the path behind the last link, or path itself.
func (w *walk) resolve(ctx context.Context, path Path) (end Path, r Resolved, err error) {
	for link := &path; link != nil; {
		path = *link
		e, err := w.to(ctx, path, win.FileOpen)
		if err == nil {
			link, err = w.look(ctx, e, &r)
		}
		if Missing(err) {
			r.Kind, link = Nothing, nil
		} else if err != nil {
			return path, r, err
		}
	}
	r.InVolume = path.volume != "" || w.at != nil && w.at.entry.start.volume != ""
	return path, r, nil
}

// look sees what the last element is. If it is a link to another path inside, look
// returns that.
func (w *walk) look(ctx context.Context, e Entry, r *Resolved) (link *Path, err error) {
	if e.dir == nil { // links at an allowed directory are the administrator's
		_, err := w.enter(ctx, e.start, win.FileOpen)
		r.Kind = PlainDirectory
		return nil, err
	}
	f, err := e.Open(ctx, Look)
	if err != nil {
		return nil, e.failed(err)
	}
	info, l, err := f.Examine(ctx)
	if err != nil {
		return nil, e.failed(err)
	}
	if l == nil {
		r.Kind = PlainFile
		if info.IsDir() {
			r.Kind = PlainDirectory
		}
		return nil, nil
	}
	if err := w.count(e); err != nil {
		return nil, err
	}
	r.Target = l.Target()
	switch l.Kind {
	case LinkInside:
		r.ByLink = true
		return &l.Path, nil
	case LinkToVolume:
		r.Kind, r.Volume = MountedVolume, l.Volume
		return nil, w.checkVolume(ctx, *l, e)
	case LinkToShare:
		r.Kind = SharedDirectory
		return nil, nil
	}
	return nil, e.outside(*l)
}

// Exists reports whether there is a file, directory or link at path. The last element
// isn't followed: a dangling link exists. See KeepDirectories for many calls.
func (p *Policy) Exists(ctx context.Context, sys System, path Path) (bool, error) {
	err := p.walk(sys, func(w *walk) error {
		if len(path.names) == 0 {
			_, err := Entry{walk: w, start: path}.Open(ctx, Look)
			return err
		}
		start := Entry{walk: w, start: Path{root: path.root, volume: path.volume}}
		// Without a link on the way, one open does.
		look := func(dir *File) error {
			_, err := dir.Entry(strings.Join(path.names, `\`)).Open(ctx, Look)
			if errors.Is(err, win.ErrorDirectory) {
				return missing{err}
			}
			return err
		}
		if counts, err := w.fromKept(start, look); counts || err != nil {
			return err
		}
		dir, err := w.enter(ctx, path, win.FileOpen)
		if err != nil {
			return err
		}
		if err := look(dir); err != nil {
			return err
		}
		return w.leaveOpen(ctx, start)
	})
	if errors.Is(err, win.ErrorReparsePointEncountered) {
		err = p.Reach(ctx, sys, path, func(e Entry) error {
			_, err := e.Open(ctx, Look)
			return err
		})
	}
	if Missing(err) {
		return false, nil
	}
	return err == nil, err
}
