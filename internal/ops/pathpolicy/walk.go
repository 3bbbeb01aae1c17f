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

// Walk opens the directories on the way to an operation's path. A walk must be closed, even after an
// error: Close closes all files that the walk has opened.
type Walk struct {
	policy        *Policy
	sys           System
	files         []*File       // in the order in which they were opened
	at            *File         // the current directory of the walk; nil before the first
	links         int           // how many were followed
	remainingWait time.Duration // the remaining wait for files that others have open
	filtered      bool          // a bind filter answers relative opens: see openAt
	holdsAll      bool          // all directories on the way: see Hold
	alias         *alias        // of the last entered allowed directory; nil if its path is its real location
}

const (
	// maxLinks is the limit on links in one path. Windows has a limit of 63 for one open.
	maxLinks = 32
	// maxDirectories is the limit on directories in one path, including the targets of its links:
	// far more than MaxPath has room for.
	maxDirectories = 1024
	// maxHeld is the limit on open files of all walks of a policy. A driver can make its calls hold
	// deep directories.
	maxHeld = 32 * maxDirectories
	// waitLimit is how long an operation waits in all for files that other processes have open for
	// deletion or exclusively.
	waitLimit = time.Second
)

// Walk begins a walk. Defer its CloseInto.
func (p *Policy) Walk(sys System) *Walk {
	return &Walk{policy: p, sys: sys, remainingWait: waitLimit}
}

// Close closes the walk's files. A closed walk may reach another path.
func (w *Walk) Close() (err error) {
	for len(w.files) > 0 {
		w.files[len(w.files)-1].CloseInto(&err)
	}
	return err
}

// CloseInto closes the walk's files at the end of a function whose error is *err. A nil *err is set
// to the error of Close.
func (w *Walk) CloseInto(err *error) { *err = cmp.Or(*err, w.Close()) }

// Reach opens the parent directory of the last element of path, and returns the element. The
// directory is held until the walk is closed. Reach neither follows nor opens the element.
//
// If a directory is missing, the error is csiproxy.ErrNotFound (see Missing). If a link leads
// outside, the error is csiproxy.ErrPermissionDenied; if there are too many links,
// csiproxy.ErrFailedPrecondition. If another process keeps a directory open exclusively for longer
// than a second, the error is csiproxy.ErrUnavailable.
func (w *Walk) Reach(ctx context.Context, path Path) (Entry, error) {
	return w.to(ctx, path, win.FileOpen)
}

// ReachOrMake is like Reach, and creates the missing directories on the way, including the allowed
// directory. New directories stay if a later step fails.
func (w *Walk) ReachOrMake(ctx context.Context, path Path) (Entry, error) {
	return w.to(ctx, path, win.FileOpenIf)
}

// Hold is like Reach, and also holds each directory on the way. [File.Mount] and [File.Unmount]
// need Hold because the mount manager takes a path.
func (w *Walk) Hold(ctx context.Context, path Path) (Entry, error) {
	w.holdsAll = true
	return w.to(ctx, path, win.FileOpen)
}

// HoldOrMake is like Hold, and creates missing directories as ReachOrMake does.
func (w *Walk) HoldOrMake(ctx context.Context, path Path) (Entry, error) {
	w.holdsAll = true
	return w.to(ctx, path, win.FileOpenIf)
}

// to walks to the last element of path, and begins again at the target of each link. With
// win.FileOpenIf it creates the missing directories on the way.
func (w *Walk) to(ctx context.Context, path Path, disposition win.Disposition) (Entry, error) {
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

// checkPath returns csiproxy.ErrPermissionDenied for a system path, and for a path outside the
// driver's driverPaths. Behind a link to an allowed directory, the remaining names may lead to
// either.
func (w *Walk) checkPath(path Path) error {
	if path.volume != "" {
		return nil
	}
	refused := &csiproxy.Error{Object: quote.Text(path.String()), Kind: csiproxy.ErrPermissionDenied}
	if refused.Err = w.policy.system.check(path.full()); refused.Err != nil {
		return refused
	}
	if t := w.policy.driverPaths; t != nil && !t.has(path.full()) {
		refused.Detail = "it is a link out of the driver's directories"
		return refused
	}
	return nil
}

// down opens the parent directory of the last element of path. If a directory on the way is a link,
// down returns the path behind the link.
func (w *Walk) down(ctx context.Context, path Path, disposition win.Disposition) (e Entry, link *Path, err error) {
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
	parents, last := path.names[:len(path.names)-1], path.names[len(path.names)-1]
	if len(parents) > 1 && !w.holdsAll {
		parent, err := dir.below(parents).openPlain(ctx)
		if err == nil {
			w.at = parent
			return parent.Entry(last), nil, nil
		}
		isMade := errors.Is(err, fs.ErrNotExist) && disposition == win.FileOpenIf
		if !errors.Is(err, winerr.ErrorReparsePointEncountered) && !isMade {
			return Entry{}, nil, dir.below(parents).failed(err)
		}
	}
	for i, name := range parents {
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
		if w.policy.held.Load() > maxHeld {
			return Entry{}, nil, f.entry.refused(csiproxy.ErrResourceExhausted, "other calls hold too many directories; try again later")
		}
		dir, w.at = f, f
	}
	return dir.Entry(last), nil, nil
}

// openDirectory opens a directory on the way, or the link in its place. With win.FileOpenIf it
// creates a missing directory.
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

// openPlain opens a directory. For a link, the error is winerr.ErrorReparsePointEncountered. If
// there is a file at the end or on the way, Missing is true of the error.
func (e Entry) openPlain(ctx context.Context) (*File, error) {
	o := Directory(win.FileOpen)
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenForBackup
	f, err := e.walk.hold(ctx, e, o)
	if errors.Is(err, winerr.ErrorDirectory) {
		return nil, missingError{err}
	}
	return f, err
}

// openEach opens directories below f, each inside the one before, and returns the last.
func (f *File) openEach(ctx context.Context, names []string) (last *File, err error) {
	for _, name := range names {
		if f, err = f.Entry(name).openPlain(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// enter opens the first directory of path: an allowed directory, following links to it, or the root
// of a volume.
func (w *Walk) enter(ctx context.Context, path Path, disposition win.Disposition) (*File, error) {
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
	mayMake := path.volume == "" && disposition == win.FileOpenIf
	if mayMake && Missing(err) {
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

// makeAllowed creates an allowed directory and its parents.
func (w *Walk) makeAllowed(ctx context.Context, root location) error {
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

// hold opens the entry e, and waits while other processes have the entry open. The file stays open
// until it is closed or the operation ends.
func (w *Walk) hold(ctx context.Context, e Entry, o win.OpenOptions) (*File, error) {
	f := &File{entry: e}
	err := w.retry(ctx, func() (err error) {
		f.handle, err = e.openAt(ctx, o)
		return err
	})
	if errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return nil, &csiproxy.Error{Kind: csiproxy.ErrPermissionDenied, Detail: "the directory has become a link", Err: err}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missingError{err}
	}
	if winerr.IsGone(err) { // the path may still exist
		return nil, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the volume that the path is on does not answer",
			Err: err}
	}
	if err != nil {
		return nil, err
	}
	if w.policy.driverPaths != nil {
		f.beginning = e.beginning().names
	}
	w.files = append(w.files, f)
	w.policy.held.Add(1)
	return f, nil
}

// retry retries f while another process has a file open, as virus scanners and kubelet itself do
// for moments. retry stops when the walk has waited for waitLimit in all.
func (w *Walk) retry(ctx context.Context, f func() error) error {
	inUse := func(err error) bool {
		return winerr.IsAny(err, winerr.ErrorSharingViolation, winerr.ErrorDeletePending)
	}
	err := f()
	if w.remainingWait <= 0 || !inUse(err) {
		return err
	}
	begin := time.Now()
	polling := operation.Polling{Timeout: w.remainingWait, First: 5 * time.Millisecond, Longest: 100 * time.Millisecond}
	for inUse(err) && polling.Next(ctx) {
		err = f()
	}
	if inUse(err) && ctx.Err() != nil {
		err = ctx.Err()
	}
	w.remainingWait -= time.Since(begin)
	return err
}

// missingError is the error of a walk if the path, or a directory on the way, is missing.
type missingError struct{ error }

func (e missingError) Unwrap() error { return e.error }

// Missing reports whether err is the walk's own error for a missing path or a missing directory on
// the way. Missing is false for errors of further Windows calls with the path, whatever their
// number: they may fail with the same number for other reasons.
func Missing(err error) bool {
	if err == nil {
		return false
	}
	ok := errors.As(err, new(missingError))
	return ok
}

// Entry is the last element of a path, or a name in an open directory: the place of a file,
// existing or new. The directory is held, and an attacker cannot redirect the entry.
type Entry struct {
	walk  *Walk
	dir   *File    // below which the entry is; nil if it is start
	names []string // the elements from dir on, mostly one
	start Path     // an allowed directory or the root of a volume
}

// Path returns a path of the entry without links, valid while the entry's directory is held. The
// path begins with a drive letter or, behind a mount point, with the volume's name. It may be
// longer than MaxPath.
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
// directory around an allowed directory or a system path: only the administrator removes these.
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

// ForAttributes opens an entry only to read its attributes.
var ForAttributes = win.OpenOptions{Disposition: win.FileOpen}

// Directory opens a directory, or a link or mount point with the attributes of a directory. While
// the handle is open, renaming and deleting the directory fail. With win.FileOpenIf a missing
// directory is created. The handle has no right to delete, because that right would stop the mount
// manager from opening the directory.
func Directory(disposition win.Disposition) win.OpenOptions {
	return win.OpenOptions{
		Access:      win.FileListDirectory | win.FileTraverse,
		Disposition: disposition,
		Options:     win.FileDirectoryFile,
	}
}

// Open opens the entry itself, never the target of a link. Open uses four parts of o: the access
// rights, the disposition, whether the entry is a directory, and whether it is deleted on close.
// Unless o requests attributes only, deleting and renaming the entry fail while it is open. The
// file is closed by Close or by the end of the operation. If nothing is there, Missing is true of
// the error.
func (e Entry) Open(ctx context.Context, o win.OpenOptions) (*File, error) {
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenReparsePoint | win.FileOpenForBackup
	if err := e.checkOpen(o); err != nil {
		return nil, err
	}
	return e.walk.hold(ctx, e, o)
}

// checkOpen returns csiproxy.ErrPermissionDenied if the driver must not create or delete the entry.
func (e Entry) checkOpen(o win.OpenOptions) error {
	if o.Disposition != win.FileOpen {
		return e.checkCreation(false)
	}
	if o.Access&win.Delete != 0 {
		return e.checkDeletion()
	}
	return nil
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

// Path is Entry.Path of f's entry.
func (f *File) Path() string { return f.entry.Path() }

// Entry returns the entry name of the directory f.
func (f *File) Entry(name string) Entry { return f.below([]string{name}) }

// below returns the entry below the directory f, with one name for each directory.
func (f *File) below(names []string) Entry {
	return Entry{walk: f.entry.walk, dir: f, names: names, start: f.entry.start}
}

// Info returns the current attributes of f.
func (f *File) Info(ctx context.Context) (win.FileInfo, error) { return f.handle.Info(ctx) }

// Volume returns the volume that f is on.
func (f *File) Volume(ctx context.Context) (string, error) { return f.handle.Volume(ctx) }

// ReadDir is [win.File].ReadDir.
func (f *File) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return f.handle.ReadDir(ctx, restart)
}

// Delete is [win.File].Delete, and waits while other processes have f open.
func (f *File) Delete(ctx context.Context) error {
	return f.entry.walk.retry(ctx, func() error { return f.handle.Delete(ctx) })
}

// CloseInto closes f at the end of a function whose error is *err. A nil *err is set to the error
// of Close.
func (f *File) CloseInto(err *error) { *err = cmp.Or(*err, f.Close()) }

// Close closes f before the operation is done.
func (f *File) Close() error {
	w := f.entry.walk
	for i, other := range slices.Backward(w.files) {
		if other == f {
			w.files = slices.Delete(w.files, i, i+1)
			w.policy.held.Add(-1)
			break
		}
	}
	return f.handle.Close()
}
