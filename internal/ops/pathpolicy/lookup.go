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

// Lookup returns what is at the path itself: a MountedVolume, a SharedDirectory, or Nothing for
// everything else. Lookup takes three calls. Resolve also follows links, and checks for protected
// volumes.
//
// The answer may be stale at once, and the volume may be protected. Use Lookup to choose a lock, to
// find out whether there is work to do, or in a query with its own check of Protects. Before
// changing anything, take the lock and check again with Reach or Resolve.
func (p *Policy) Lookup(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	if len(path.names) == 0 {
		return r, nil
	}
	r, err = p.lookup(ctx, sys, path)
	if errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return p.Resolve(ctx, sys, path)
	}
	if Missing(err) {
		return Resolved{}, nil
	}
	return r, err
}

// lookup is Lookup without links on the way.
func (p *Policy) lookup(ctx context.Context, sys System, path Path) (r Resolved, err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	f, err := w.openWhole(ctx, path, ForAttributes)
	if err != nil {
		return r, err
	}
	link, err := f.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if link.IsMountPoint() {
		r = Resolved{Kind: MountedVolume, Volume: link.Volume, Target: link.Target()}
	}
	if link.Kind == LinkToShare && p.HasShare(link.Target()) {
		r = Resolved{Kind: SharedDirectory, Target: link.Target()}
	}
	return r, nil
}

// ByName is the answer to one query by name.
type ByName int

const (
	// UnknownByName needs a handle for the answer: there is a link on the way, or Windows refuses
	// to tell.
	UnknownByName ByName = iota
	// NothingByName means the path is missing; the error says the same.
	NothingByName
	// PlainByName is a file or directory, with no link in the path.
	PlainByName
	// LinkByName is a link, a mount point or another reparse point. There is no link before it.
	LinkByName
)

// AskByName queries what is at a path, by name and without a handle. AskByName follows no link.
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

// Exists reports whether there is a file, directory or link at path. The last element is not
// followed: a dangling link exists.
func (p *Policy) Exists(ctx context.Context, sys System, path Path) (_ bool, err error) {
	found, err := p.AskByName(ctx, sys, path)
	if found != UnknownByName {
		return found != NothingByName, nil
	}
	if err != nil {
		return false, err
	}
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	if _, err = w.Examine(ctx, path, ForAttributes); Missing(err) {
		return false, nil
	}
	return err == nil, err
}

// mayOpenAllTheSame reports whether opening a file may succeed after a query by its name has failed
// with err: an open follows links, waits for other handles, and has more rights. Undocumented: the
// error of Windows for an unknown query.
func mayOpenAllTheSame(err error) bool {
	return winerr.IsGone(err) || winerr.IsAny(err, winerr.ErrorReparsePointEncountered, winerr.ErrorSharingViolation,
		winerr.ErrorDeletePending, winerr.ErrorAccessDenied, winerr.ErrorInvalidParameter, winerr.ErrorInvalidFunction,
		winerr.ErrorNotSupported)
}

// canBeAskedByName reports whether a query by name is enough for a path. A handle is needed for a
// path in a working directory, since its real location may differ (see findAlias), and, with a
// driver's policy, for a path in the directories of the pods, since the volume's driver must be
// checked (see checkPublished).
func (p *Policy) canBeAskedByName(path Path) bool {
	return path.volume == "" && path.root.equal(p.system.kubelet) &&
		(p.driverPaths == nil || !p.placeOf(path).inPods())
}

// Examine opens what is at path, without following the last element. The directories on the way are
// not held, as in Lookup, and the file must only be read.
func (w *Walk) Examine(ctx context.Context, path Path, o win.OpenOptions) (*File, error) {
	f, err := w.openWhole(ctx, path, o)
	if !errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return f, err
	}
	w.CloseInto(&err)
	e, err := w.Reach(ctx, path)
	if err != nil {
		return nil, err
	}
	return e.Open(ctx, o)
}

// openWhole opens what is at path by one relative open from the first directory of path, however
// deep. If there is a link on the way, or a bind filter, the error is
// winerr.ErrorReparsePointEncountered: the caller must then walk the path.
func (w *Walk) openWhole(ctx context.Context, path Path, o win.OpenOptions) (*File, error) {
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
		return nil, missingError{err}
	}
	return f, err
}
