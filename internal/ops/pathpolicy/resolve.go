// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Kind is what a path leads to.
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
	// directories. There may be nothing at that place in the volume.
	InVolume bool

	// Hidden says that there is a link to a share of another driver, so that the kind is Nothing.
	Hidden bool
}

// Resolve follows path to its end. It follows links in the middle and at the end by the rules
// of Reach, but a path may also end at a share. If nothing is there, or a link dangles, Resolve
// returns no error.
func (p *Policy) Resolve(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	err = p.walk(sys, func(w *walk) error {
		_, r, err = w.resolve(ctx, path)
		return err
	})
	return r, err
}

// ResolveVolume is Resolve, and also returns a volume, \\?\Volume{guid}\. For a MountedVolume
// it is that volume, else the one on which the file or directory lies, or the nearest existing
// directory above. It is "" for a SharedDirectory, for the share of another driver, and if the drive
// doesn't exist.
func (p *Policy) ResolveVolume(ctx context.Context, sys System, path Path) (r Resolved, volume string, err error) {
	err = p.walk(sys, func(w *walk) error {
		end, resolved, err := w.resolve(ctx, path)
		if r = resolved; err != nil {
			return err
		}
		switch {
		case r.Kind == MountedVolume, r.Kind == SharedDirectory, r.Hidden:
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
		f, err := w.openEnd(ctx, path)
		if err == nil {
			link, err = w.resolveLast(ctx, f, &r)
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

// openEnd opens what is at a path itself, to read what it is. Links at an allowed directory are the
// administrator's, and are followed.
func (w *walk) openEnd(ctx context.Context, path Path) (*File, error) {
	if len(path.names) == 0 {
		if err := w.checkPath(path); err != nil {
			return nil, err
		}
		return w.enter(ctx, path, win.FileOpen)
	}
	f, err := w.openWhole(ctx, path, ForAttributes)
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return nil, &csiproxy.Error{Object: quote.Text(path.String()), Err: err}
	}
	e, err := w.to(ctx, path, win.FileOpen)
	if err != nil {
		return nil, err
	}
	if f, err = e.Open(ctx, ForAttributes); err != nil {
		return nil, e.failed(err)
	}
	return f, nil
}

// resolveLast reads what the last element is, and notes that in r. If it is a link to another path
// inside of the allowed directories, it returns that path.
func (w *walk) resolveLast(ctx context.Context, f *File, r *Resolved) (link *Path, err error) {
	e := f.entry
	if e.dir == nil {
		r.Kind = PlainDirectory
		return nil, nil
	}
	l, err := f.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		info, err := f.Info(ctx)
		if err != nil {
			return nil, e.failed(err)
		}
		r.Kind = PlainFile
		if info.IsDir() {
			r.Kind = PlainDirectory
		}
		return nil, nil
	}
	if err != nil {
		return nil, e.failed(err)
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
		return nil, w.checkVolume(ctx, l, e)
	case LinkToShare:
		if r.Kind = SharedDirectory; !w.policy.HasShare(r.Target) { // as if nothing were there
			r.Kind, r.Target, r.Hidden = Nothing, "", true
		}
		return nil, nil
	}
	return nil, e.outside(l)
}
