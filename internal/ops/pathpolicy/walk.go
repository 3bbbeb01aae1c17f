// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// System has the Windows calls that reach a path.
type System interface {
	win.Files
	win.VolumeNames
	win.MountPoints
}

// walk is the walk of one operation to its path, with the files that it holds open.
type walk struct {
	policy   *Policy
	sys      System
	files    []*File       // in the order in which they were opened
	at       *File         // the directory that the walk has come to; nil before the first
	links    int           // how many were followed
	waitLeft time.Duration // how long the operation may still wait for others
	filtered bool          // a bind filter answers relative opens: see openAt
	holdsAll bool          // all directories on the way: see Hold
	alias    *alias        // of the allowed directory that was entered last; nil if it is where its path says
}

const (
	// maxLinks is how many links one path may lead through. Windows has a bound of
	// 63 for one open.
	maxLinks = 32
	// maxDirectories is how many directories one path may lead through, with its links'
	// targets: far more than MaxPath has room for.
	maxDirectories = 1024
	// waitLimit is how long an operation waits in all for others to close files that they
	// have open for deletion or exclusively.
	waitLimit = time.Second
)

// Reach opens the directory that has the last element of path, and calls f with that element
// while the directory is held. The element is neither followed nor opened. The error of f is
// returned as it is.
//
// If a directory isn't there, the error is csiproxy.ErrNotFound (see Missing). If a link
// leads outside, it is csiproxy.ErrPermissionDenied; if there are too many links,
// csiproxy.ErrFailedPrecondition. If somebody else keeps a directory open exclusively for
// longer than a second, it is csiproxy.ErrUnavailable.
func (p *Policy) Reach(ctx context.Context, sys System, path Path, f func(e Entry) error) error {
	return p.newWalk(sys).reach(ctx, path, win.FileOpen, f)
}

// ReachOrMake is like Reach, and makes the directories on the way that aren't there,
// also the allowed one. They stay if a later step fails.
func (p *Policy) ReachOrMake(ctx context.Context, sys System, path Path, f func(e Entry) error) error {
	return p.newWalk(sys).reach(ctx, path, win.FileOpenIf, f)
}

// Hold is like Reach, and also holds each directory on the way. [File.Mount] and [File.Unmount]
// need that, since the mount manager takes a path.
func (p *Policy) Hold(ctx context.Context, sys System, path Path, f func(e Entry) error) error {
	w := p.newWalk(sys)
	w.holdsAll = true
	return w.reach(ctx, path, win.FileOpen, f)
}

// HoldOrMake is like Hold, and makes the directories on the way as ReachOrMake does.
func (p *Policy) HoldOrMake(ctx context.Context, sys System, path Path, f func(e Entry) error) error {
	w := p.newWalk(sys)
	w.holdsAll = true
	return w.reach(ctx, path, win.FileOpenIf, f)
}

func (p *Policy) newWalk(sys System) *walk {
	return &walk{policy: p, sys: sys, waitLeft: waitLimit}
}

// walk calls f with a new walk, and closes what that has opened.
func (p *Policy) walk(sys System, f func(w *walk) error) (err error) {
	w := p.newWalk(sys)
	defer w.close(&err)
	return f(w)
}

// close closes what the walk has opened, also after a panic. It is deferred by a function whose error is *err.
func (w *walk) close(err *error) {
	for len(w.files) > 0 {
		w.files[len(w.files)-1].CloseInto(err)
	}
}

// reach is Policy.Reach; with win.FileOpenIf it is Policy.ReachOrMake.
func (w *walk) reach(ctx context.Context, path Path, disposition win.Disposition, f func(e Entry) error) (err error) {
	defer w.close(&err)
	e, err := w.to(ctx, path, disposition)
	if err != nil {
		return err
	}
	return f(e)
}

// to walks to the last element of path, and begins again at each link's target. With
// win.FileOpenIf it makes the directories on the way that aren't there.
func (w *walk) to(ctx context.Context, path Path, disposition win.Disposition) (Entry, error) {
	for {
		if err := w.checkPath(path); err != nil {
			return Entry{}, err
		}
		e, link, err := w.down(ctx, path, disposition)
		if err != nil || link == nil {
			return e, err
		}
		path = *link
	}
}

// checkPath returns csiproxy.ErrPermissionDenied for a system path, and for one that isn't the driver's. A link to an allowed
// directory goes on with the names behind it, and so may lead to either.
func (w *walk) checkPath(path Path) error {
	if path.volume != "" {
		return nil
	}
	refused := &csiproxy.Error{Object: quote.Text(path.String()), Kind: csiproxy.ErrPermissionDenied}
	if refused.Err = w.policy.system.check(path.full()); refused.Err != nil {
		return refused
	}
	if t := w.policy.territory; t != nil && !t.has(path.full()) {
		refused.Detail = "it is a link out of the driver's directories"
		return refused
	}
	return nil
}

// down opens the directory that has the last element of path. If one on the way is a link, it
// returns the path that goes on behind it.
func (w *walk) down(ctx context.Context, path Path, disposition win.Disposition) (e Entry, link *Path, err error) {
	if len(path.names) == 0 {
		if path.volume == "" && disposition == win.FileOpenIf {
			err = w.makeAllowed(ctx, path.root)
		}
		w.at = nil
		return Entry{walk: w, start: path}, nil, err
	}
	dir, err := w.enter(ctx, path, disposition)
	if err != nil {
		return Entry{}, nil, err
	}
	way, last := path.names[:len(path.names)-1], path.names[len(path.names)-1]
	if len(way) > 1 && !w.holdsAll {
		parent, err := dir.below(way).openPlain(ctx)
		if err == nil {
			w.at = parent
			return parent.Entry(last), nil, nil
		}
		isMade := errors.Is(err, fs.ErrNotExist) && disposition == win.FileOpenIf
		if !errors.Is(err, winerr.ErrorReparsePointEncountered) && !isMade {
			return Entry{}, nil, dir.below(way).failed(err)
		}
	}
	for i, name := range way {
		f, link, err := dir.Entry(name).openDirectory(ctx, disposition)
		if err != nil {
			return Entry{}, nil, dir.Entry(name).failed(err)
		}
		if link != nil {
			next, err := w.follow(ctx, f, *link)
			next.names = slices.Concat(next.names, path.names[i+1:])
			return Entry{}, &next, err
		}
		if len(w.files) > maxDirectories {
			return Entry{}, nil, f.entry.refused(csiproxy.ErrFailedPrecondition, "the path leads through too many directories")
		}
		dir, w.at = f, f
	}
	return dir.Entry(last), nil, nil
}

// openDirectory opens a directory on the way, or the link that is there. With win.FileOpenIf it makes the directory if
// nothing is there.
func (e Entry) openDirectory(ctx context.Context, disposition win.Disposition) (*File, *Link, error) {
	const attempts = 4
	for range attempts {
		f, err := e.openPlain(ctx)
		if errors.Is(err, fs.ErrNotExist) && disposition == win.FileOpenIf {
			f, err = e.Open(ctx, Directory(win.FileCreate))
			if errors.Is(err, winerr.ErrorAlreadyExists) {
				continue
			}
			return f, nil, err
		}
		if !errors.Is(err, winerr.ErrorReparsePointEncountered) {
			return f, nil, err
		}
		if f, err = e.Open(ctx, Directory(win.FileOpen)); err != nil {
			return nil, nil, err
		}
		link, err := f.Link(ctx)
		if !errors.Is(err, winerr.ErrorNotAReparsePoint) {
			return f, &link, err
		}
		if err := f.Close(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errUnsettled()
}

// openPlain opens a directory, or returns winerr.ErrorReparsePointEncountered for a link. If a file is there, or on the
// way, Missing is true of the error.
func (e Entry) openPlain(ctx context.Context) (*File, error) {
	o := Directory(win.FileOpen)
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenForBackup
	f, err := e.walk.hold(ctx, e, o)
	if errors.Is(err, winerr.ErrorDirectory) {
		return nil, missing{err}
	}
	return f, err
}

// openEach opens directories below f, each in the one before, and returns the last one.
func (f *File) openEach(ctx context.Context, names []string) (last *File, err error) {
	for _, name := range names {
		if f, err = f.Entry(name).openPlain(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// enter opens the directory where path begins: an allowed one, following links to it, or
// the root of a volume.
func (w *walk) enter(ctx context.Context, path Path, disposition win.Disposition) (*File, error) {
	start := Entry{walk: w, start: path}
	start.start.names = nil
	if path.volume == "" {
		w.at = nil
	}
	o := Directory(win.FileOpen)
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenForBackup
	dir, err := w.hold(ctx, start, o)
	if Missing(err) && path.volume == "" && disposition == win.FileOpenIf {
		if err := w.makeAllowed(ctx, path.root); err != nil {
			return nil, err
		}
		dir, err = w.hold(ctx, start, o)
	}
	if err != nil {
		return nil, start.failed(err)
	}
	w.at, w.filtered, w.alias = dir, false, nil
	if path.volume == "" {
		if err := w.findAlias(ctx, dir, path); err != nil {
			return nil, err
		}
	}
	if err := w.checkPublished(ctx, dir, path); err != nil {
		return nil, err
	}
	return dir, nil
}

// makeAllowed makes an allowed directory and those above it.
func (w *walk) makeAllowed(ctx context.Context, root location) error {
	for i := range root.names {
		path := location{root.drive, root.names[:i+1]}.String()
		f, err := w.sys.OpenFile(ctx, path, win.OpenOptions{
			Access:      win.FileReadAttributes | win.Synchronize,
			Share:       win.ShareRead | win.ShareWrite | win.ShareDelete,
			Disposition: win.FileOpenIf,
			Options:     win.FileDirectoryFile | win.FileOpenForBackup,
		})
		if err != nil {
			return &csiproxy.Error{Object: path, Err: err}
		}
		if err := f.Close(); err != nil {
			return &csiproxy.Error{Object: path, Err: err}
		}
	}
	return nil
}

// hold opens the entry e, waiting for others who have it open. The file stays open until it is
// closed or the operation is done.
func (w *walk) hold(ctx context.Context, e Entry, o win.OpenOptions) (*File, error) {
	f := &File{entry: e}
	err := w.retry(ctx, func() (err error) {
		f.handle, err = e.openAt(ctx, o)
		return err
	})
	if errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return nil, &csiproxy.Error{Kind: csiproxy.ErrPermissionDenied, Detail: "the directory has become a link", Err: err}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing{err}
	}
	if winerr.IsGone(err) { // this says nothing about what is at the path
		return nil, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the volume that the path is on does not answer",
			Err: err}
	}
	if err != nil {
		return nil, err
	}
	if w.policy.territory != nil {
		f.beginning = e.beginning().names
	}
	w.files = append(w.files, f)
	return f, nil
}

// retry retries f while it fails because somebody else has a file open, as virus scanners and
// kubelet itself do for moments. It stops when the walk has waited for waitLimit in all.
func (w *walk) retry(ctx context.Context, f func() error) error {
	inUse := func(err error) bool {
		return winerr.IsAny(err, winerr.ErrorSharingViolation, winerr.ErrorDeletePending)
	}
	err := f()
	if w.waitLeft <= 0 || !inUse(err) {
		return err
	}
	begin := time.Now()
	polling := operation.Polling{Timeout: w.waitLeft, First: 5 * time.Millisecond, Longest: 100 * time.Millisecond}
	if _, ctxErr := operation.Poll(ctx, polling, func() (bool, error) {
		err = f()
		return !inUse(err), nil
	}); ctxErr != nil {
		err = ctxErr
	}
	w.waitLeft -= time.Since(begin)
	return err
}

// missing is the error of a walk that found nothing at the path or on the way to it.
type missing struct{ error }

func (m missing) Unwrap() error { return m.error }

// Missing reports whether err says that the walk itself found nothing at the path, or no
// directory on the way to it. It is false for an error of another Windows call that takes the
// path, whatever its number: such a call may fail with the same number for other reasons.
func Missing(err error) bool {
	if err == nil {
		return false
	}
	ok := errors.As(err, new(missing))
	return ok
}

// Entry is the last element of a path, or a name in an open directory: where something is,
// or may be made. Its directory is held, so nobody can lead it elsewhere.
type Entry struct {
	walk  *walk
	dir   *File    // below which the entry is; nil if it is start
	names []string // the elements from dir on, mostly one
	start Path     // an allowed directory or the root of a volume
}

// Path returns the path of the entry in a form that leads there without a link while its
// directory is held: with a drive letter or, if the walk led through a mount point, a
// volume's name in front. It may be longer than MaxPath.
func (e Entry) Path() string { return e.path().String() }

func (e Entry) path() Path {
	if e.dir == nil {
		return e.start
	}
	var names []string
	for ; e.dir != nil; e = e.dir.entry {
		for _, name := range slices.Backward(e.names) {
			names = append(names, name)
		}
	}
	slices.Reverse(names)
	path := e.start
	path.names = names
	return path
}

// CheckReplaceable returns csiproxy.ErrInvalidArgument for an allowed directory, and for a
// directory that contains one or a system path: only the administrator removes these.
func (e Entry) CheckReplaceable() error {
	p, path := e.walk.policy, e.path()
	if p.holdsAllowed(path) {
		return e.refused(csiproxy.ErrInvalidArgument, "refusing to remove or replace an allowed directory, or one that holds it")
	}
	if e.walk.holdsSystem(path) {
		return e.refused(csiproxy.ErrInvalidArgument, "it holds files of Windows, of kubelet or of csi-proxy itself")
	}
	return nil
}

// ForAttributes opens what is there to read its attributes only.
var ForAttributes = win.OpenOptions{Disposition: win.FileOpen}

// Directory opens a directory, or a link or mount point with the attributes of one, so that
// nobody can rename or delete it. With win.FileOpenIf the directory is made if nothing is there.
// The right to delete isn't requested, since it would keep the mount manager from opening it.
func Directory(disposition win.Disposition) win.OpenOptions {
	return win.OpenOptions{
		Access:      win.FileListDirectory | win.FileTraverse,
		Disposition: disposition,
		Options:     win.FileDirectoryFile,
	}
}

// Open opens the entry itself, never what it leads to. Of o it uses only the access rights, the
// disposition, whether it is a directory, and whether it is deleted on close. Unless o requests
// attributes only, others can't delete or rename the entry while it is open. Close closes the
// file, and so does the end of the operation. If nothing is there, Missing is true of the error.
func (e Entry) Open(ctx context.Context, o win.OpenOptions) (*File, error) {
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenReparsePoint | win.FileOpenForBackup
	var err error
	switch {
	case o.Disposition != win.FileOpen:
		err = e.checkCreation(false)
	case o.Access&win.Delete != 0:
		err = e.checkDeletion()
	}
	if err != nil {
		return nil, err
	}
	return e.walk.hold(ctx, e, o)
}

// failed returns err with the path of the entry.
func (e Entry) failed(err error) error {
	return &csiproxy.Error{Object: quote.Text(e.Path()), Err: err}
}

func (e Entry) refused(kind error, detail string) error {
	return &csiproxy.Error{Object: quote.Text(e.Path()), Kind: kind, Detail: detail}
}

// File is an open file, directory, link or mount point.
type File struct {
	entry     Entry // as which it was opened
	handle    win.File
	beginning []string // the names of entry.beginning, if the policy is a driver's
}

// Path is Entry.Path of the entry as which f was opened.
func (f *File) Path() string { return f.entry.Path() }

// Entry returns the entry name of the directory f.
func (f *File) Entry(name string) Entry { return f.below([]string{name}) }

// below returns what lies below the directory f, by one name for each directory.
func (f *File) below(names []string) Entry {
	return Entry{walk: f.entry.walk, dir: f, names: names, start: f.entry.start}
}

// Info returns the attributes of f as they are now.
func (f *File) Info(ctx context.Context) (win.FileInfo, error) { return f.handle.Info(ctx) }

// Volume returns the volume that f is on.
func (f *File) Volume(ctx context.Context) (string, error) { return f.handle.Volume(ctx) }

// ReadDir is that of [win.File].
func (f *File) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return f.handle.ReadDir(ctx, restart)
}

// Delete is that of [win.File], and waits for others who have f open.
func (f *File) Delete(ctx context.Context) error {
	return f.entry.walk.retry(ctx, func() error { return f.handle.Delete(ctx) })
}

// CloseInto closes f at the end of a function whose error is *err. If that is nil, it is set to the
// error of Close.
func (f *File) CloseInto(err *error) { *err = cmp.Or(*err, f.Close()) }

// Close closes f before the operation is done.
func (f *File) Close() error {
	w := f.entry.walk
	for i, other := range slices.Backward(w.files) {
		if other == f {
			w.files = slices.Delete(w.files, i, i+1)
			break
		}
	}
	return f.handle.Close()
}
