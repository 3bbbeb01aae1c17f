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

// Kind is the kind of what a path leads to.
type Kind int

// Kinds.
const (
	Nothing         Kind = iota // the path, or a directory on the way, is missing
	PlainDirectory              // a directory without a link
	PlainFile                   // a file
	MountedVolume               // a mount point of a volume
	SharedDirectory             // a UNC path
)

// Resolved is what a path leads to after all links, including a link at the last element.
type Resolved struct {
	Kind Kind
	// Volume is the volume, \\?\Volume{guid}\, of a MountedVolume. It may have left the node.
	Volume string
	// Target is the target of the last followed link; for a SharedDirectory \\server\share….
	Target string
	// ByLink means the path itself, rather than the end of the way, is a link to another path.
	ByLink bool
	// InVolume means the path leads into a volume mounted in the allowed directories. The place in
	// the volume may be empty.
	InVolume bool

	// Hidden means there is a link to another driver's share, and Kind is Nothing.
	Hidden bool
}

// Resolve follows path to its end. Links in the middle and at the end are followed by the rules of
// Reach, but a path may also end at a share. A missing path and a dangling link are no errors: the
// kind is Nothing.
func (p *Policy) Resolve(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	_, r, err = w.resolve(ctx, path)
	return r, err
}

// ResolveVolume is Resolve, and also returns a volume, \\?\Volume{guid}\: the mounted volume for a
// MountedVolume, else the volume of the file, the directory or the nearest existing directory
// above. The volume is "" for a SharedDirectory, for the share of another driver, and for a missing
// drive.
func (p *Policy) ResolveVolume(ctx context.Context, sys System, path Path) (r Resolved, volume string, err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	end, r, err := w.resolve(ctx, path)
	if err != nil {
		return r, "", err
	}
	volume, err = w.volumeBehind(ctx, r, end)
	return r, volume, err
}

// volumeBehind returns the volume of ResolveVolume for a path that the walk has resolved to r.
func (w *Walk) volumeBehind(ctx context.Context, r Resolved, end Path) (volume string, err error) {
	switch r.Kind {
	case MountedVolume, SharedDirectory:
		return r.Volume, nil
	}
	if r.Hidden {
		return "", nil
	}
	if w.at != nil {
		return w.at.Volume(ctx)
	}
	return volumeAt(ctx, w.sys, end.root)
}

// resolve also returns the path behind the last link, or path itself.
func (w *Walk) resolve(ctx context.Context, path Path) (end Path, r Resolved, err error) {
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

// openEnd opens what is at a path itself, to read its kind. The administrator owns links at an
// allowed directory, and openEnd follows them.
func (w *Walk) openEnd(ctx context.Context, path Path) (*File, error) {
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

// resolveLast reads the kind of the last element into r. For a link to another path inside the
// allowed directories, resolveLast returns the path.
func (w *Walk) resolveLast(ctx context.Context, f *File, r *Resolved) (link *Path, err error) {
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
