// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"io/fs"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Lookup returns what a path itself leads to: a MountedVolume, a SharedDirectory, or Nothing if it is
// anything else. It takes three calls. Resolve follows links, and asks which volumes are protected.
//
// The answer may be out of date at once, and Lookup doesn't check whether the volume is protected.
// So the caller may use it to learn which lock to take, or that nothing needs to be done, or for a
// query that checks Protects. Before it changes something, it takes the lock and checks again by Reach
// or Resolve.
func (p *Policy) Lookup(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	if len(path.names) == 0 {
		return r, nil
	}
	err = p.walk(sys, func(w *walk) error {
		f, err := w.openWhole(ctx, path, ForAttributes)
		if err != nil {
			return err
		}
		link, err := f.Link(ctx)
		if errors.Is(err, winerr.ErrorNotAReparsePoint) {
			return nil
		}
		switch {
		case err != nil:
			return err
		case link.IsMountPoint():
			r = Resolved{Kind: MountedVolume, Volume: link.Volume, Target: link.Target()}
		case link.Kind == LinkToShare && p.HasShare(link.Target()):
			r = Resolved{Kind: SharedDirectory, Target: link.Target()}
		}
		return nil
	})
	if errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return p.Resolve(ctx, sys, path)
	}
	if Missing(err) {
		return Resolved{}, nil
	}
	return r, err
}

// ByName is what one query by a path's name tells.
type ByName int

const (
	// UnknownByName is all that takes a handle: a link on the way, or what Windows doesn't tell.
	UnknownByName ByName = iota
	// NothingByName is that nothing is there, which the error says too.
	NothingByName
	// PlainByName is a file or directory that is no link, behind no link.
	PlainByName
	// LinkByName is a link, a mount point or another reparse point, behind no link.
	LinkByName
)

// AskByName asks what is at a path by one query, without a handle. No link is followed.
func (p *Policy) AskByName(ctx context.Context, sys System, path Path) (ByName, error) {
	if !p.canBeAskedByName(path) {
		return UnknownByName, nil
	}
	attributes, err := sys.AttributesWithoutLinks(ctx, path.String())
	if errors.Is(err, fs.ErrNotExist) {
		return NothingByName, err
	}
	if err == nil && attributes&win.AttributeReparsePoint != 0 {
		return LinkByName, nil
	}
	if err == nil {
		return PlainByName, nil
	}
	if mayOpenAllTheSame(err) {
		return UnknownByName, nil
	}
	return UnknownByName, err
}

// Exists reports whether there is a file, directory or link at path. The last element
// isn't followed: a dangling link exists.
func (p *Policy) Exists(ctx context.Context, sys System, path Path) (bool, error) {
	switch found, err := p.AskByName(ctx, sys, path); {
	case found != UnknownByName:
		return found != NothingByName, nil
	case err != nil:
		return false, err
	}
	err := p.Examine(ctx, sys, path, ForAttributes, func(*File) error { return nil })
	if Missing(err) {
		return false, nil
	}
	return err == nil, err
}

// mayOpenAllTheSame reports whether a file may be opened although a query by its name has failed with err: an open follows links,
// waits for others, and has more rights. How Windows refuses a query that it doesn't know isn't documented.
func mayOpenAllTheSame(err error) bool {
	return winerr.IsGone(err) || winerr.IsAny(err, winerr.ErrorReparsePointEncountered, winerr.ErrorSharingViolation,
		winerr.ErrorDeletePending, winerr.ErrorAccessDenied, winerr.ErrorInvalidParameter, winerr.ErrorInvalidFunction,
		winerr.ErrorNotSupported)
}

// canBeAskedByName reports whether a path needs no check that takes a handle: that of a working directory, which may really be
// elsewhere (see findAlias), or that of the driver whose volume is published there (see checkPublished).
func (p *Policy) canBeAskedByName(path Path) bool {
	return path.volume == "" && path.root.equal(p.system.kubelet) &&
		(p.territory == nil || !path.full().inside(p.territory.pods))
}

// Examine opens what is at path, without following the last element, and calls f with it. As with Lookup, the
// directories on the way aren't held, so f changes nothing.
func (p *Policy) Examine(ctx context.Context, sys System, path Path, o win.OpenOptions, f func(*File) error) error {
	err := p.walk(sys, func(w *walk) error {
		file, err := w.openWhole(ctx, path, o)
		if err == nil {
			err = f(file)
		}
		return err
	})
	if errors.Is(err, winerr.ErrorReparsePointEncountered) {
		err = p.Reach(ctx, sys, path, func(e Entry) error {
			file, err := e.Open(ctx, o)
			if err == nil {
				err = f(file)
			}
			return err
		})
	}
	return err
}

// openWhole opens what is at path by one relative open from the directory where path begins,
// however deep it lies. If there is a link on the way, or a bind filter, the error is
// winerr.ErrorReparsePointEncountered: then the path has to be walked.
func (w *walk) openWhole(ctx context.Context, path Path, o win.OpenOptions) (*File, error) {
	if err := w.checkPath(path); err != nil {
		return nil, err
	}
	if len(path.names) == 0 {
		return Entry{walk: w, start: path}.Open(ctx, o)
	}
	dir, err := w.enter(ctx, path, win.FileOpen)
	if err != nil {
		return nil, err
	}
	f, err := dir.below(path.names).Open(ctx, o)
	if errors.Is(err, winerr.ErrorDirectory) { // an element on the way is a file
		return nil, missing{err}
	}
	return f, err
}
