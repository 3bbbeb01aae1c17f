// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what reaching a path takes of Windows.
type System interface {
	win.Files
	win.VolumeNames
}

// Held is a path whose directories are held open: see the package comment for what
// that keeps others from. It must not be used once the function that it was given
// to has returned, and by one goroutine at a time.
type Held struct {
	policy   *Policy
	sys      System
	dir      win.File // holds the last element; nil if that is an allowed directory
	at       Path     // of dir, or the allowed directory
	name     string   // the last element
	files    []win.File
	links    int
	patience time.Duration
}

const (
	// maxLinks is how many links one path may lead through. Windows has a bound of
	// 63 for one open.
	maxLinks = 32
	// maxHeld is how many directories one path may lead through, with its links'
	// targets: far more than MaxPath has room for.
	maxHeld = 1024
	// patience is how long, all in all, a path waits for others to close what they
	// have open for deletion or exclusively.
	patience = time.Second
)

// Reach walks to the directory that holds the last element of path, and calls f
// while that and all directories on the way are held. The last element is neither
// followed nor opened. A directory that isn't there gives csiproxy.ErrNotFound, a
// link that leads outside csiproxy.ErrPermissionDenied, too many links
// csiproxy.ErrFailedPrecondition, and one that somebody else keeps open
// exclusively csiproxy.ErrUnavailable after a second. The error of f is returned
// as it is.
func (p *Policy) Reach(ctx context.Context, sys System, path Path, f func(h *Held) error) error {
	return p.reach(ctx, sys, path, win.FileOpen, f)
}

// ReachMaking is like Reach, and makes the directories on the way that aren't
// there, also the allowed one. They stay if a later step fails.
func (p *Policy) ReachMaking(ctx context.Context, sys System, path Path, f func(h *Held) error) error {
	return p.reach(ctx, sys, path, win.FileOpenIf, f)
}

func (p *Policy) reach(ctx context.Context, sys System, path Path, d win.Disposition, f func(h *Held) error) error {
	return p.hold(sys, func(h *Held) error {
		if err := h.walk(ctx, path, d); err != nil {
			return err
		}
		return f(h)
	})
}

func (p *Policy) hold(sys System, f func(h *Held) error) (err error) {
	h := &Held{policy: p, sys: sys, patience: patience}
	defer func() {
		if closeErr := h.close(); err == nil {
			err = closeErr
		}
	}()
	return f(h)
}

// Path returns the path of the last element in a form that leads there without a
// link while it is held: with a drive letter or, if the way led through a mount
// point, a volume's name in front. It may be longer than MaxPath.
func (h *Held) Path() string { return h.last().String() }

// Dir returns the directory that holds the last element, nil if that is an allowed
// directory.
func (h *Held) Dir() win.File { return h.dir }

// Name returns the last element as it was given, "" if it is an allowed directory.
func (h *Held) Name() string { return h.name }

func (h *Held) last() Path {
	if h.name == "" {
		return h.at
	}
	return h.at.child(h.name)
}

func (p Path) child(name string) Path {
	p.names = append(slices.Clip(p.names), name)
	return p
}

// CheckReplaceable refuses with csiproxy.ErrInvalidArgument if the last element is
// an allowed directory or holds one: those are the administrator's to remove.
func (h *Held) CheckReplaceable() error {
	if h.policy.holdsAllowed(h.last()) {
		return h.refused(csiproxy.ErrInvalidArgument, "it is an allowed directory or holds one")
	}
	return nil
}

// Open opens the last element itself, never what it leads to. Of o, the access
// rights, the disposition and whether it is a directory count; deletion is never
// shared. The handle is closed when the path is let go, or by Release.
func (h *Held) Open(ctx context.Context, o win.OpenOptions) (win.File, error) {
	if h.name == "" {
		path := h.at.String()
		return h.open(ctx, o, func(o win.OpenOptions) (win.File, error) { return h.sys.OpenFile(ctx, path, o) })
	}
	return h.OpenIn(ctx, h.dir, h.name, o)
}

// OpenIn is like Open for the entry name of dir, a handle that came from here.
func (h *Held) OpenIn(ctx context.Context, dir win.File, name string, o win.OpenOptions) (win.File, error) {
	return h.open(ctx, o, func(o win.OpenOptions) (win.File, error) { return dir.OpenAt(ctx, name, o) })
}

func (h *Held) open(ctx context.Context, o win.OpenOptions, open func(o win.OpenOptions) (win.File, error)) (win.File, error) {
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenReparsePoint | win.FileOpenForBackup
	return h.track(ctx, func() (win.File, error) { return open(o) })
}

// track opens a file with Retry, and keeps it until it is released.
func (h *Held) track(ctx context.Context, open func() (win.File, error)) (f win.File, err error) {
	err = h.Retry(ctx, func() error {
		f, err = open()
		return err
	})
	if errors.Is(err, win.ErrorReparsePointEncountered) {
		return nil, &csiproxy.Error{Kind: csiproxy.ErrPermissionDenied, Detail: "the directory has become a link", Err: err}
	}
	if err != nil {
		return nil, err
	}
	h.files = append(h.files, f)
	return f, nil
}

// directory are the options to hold a directory: rights that take part in
// sharing, and not that to delete, which would keep the mount manager out.
func directory(d win.Disposition) win.OpenOptions {
	return win.OpenOptions{
		Access:      win.FileListDirectory | win.FileTraverse,
		Disposition: d,
		Options:     win.FileDirectoryFile,
	}
}

// Hold opens the last element itself as a directory, or as a link or mount point
// that looks like one; with win.FileOpenIf it is made if it isn't there. From here
// on it can't be renamed or deleted.
func (h *Held) Hold(ctx context.Context, d win.Disposition) (win.File, win.FileInfo, error) {
	f, err := h.Open(ctx, directory(d))
	if err != nil {
		return nil, win.FileInfo{}, err
	}
	info, err := f.Info(ctx)
	return f, info, err
}

// Release closes a handle that came from here.
func (h *Held) Release(f win.File) error {
	for i, other := range slices.Backward(h.files) {
		if other == f {
			h.files = slices.Delete(h.files, i, i+1)
			break
		}
	}
	return f.Close()
}

// close lets the path go.
func (h *Held) close() error {
	var errs []error
	for _, f := range slices.Backward(h.files) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Call makes a call to Windows that takes a path, such as those of the mount
// manager, which have no other form. The end of ctx keeps the call from being made,
// but not from being waited for: it must not run on when the path is held no more.
func (h *Held) Call(ctx context.Context, call func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return call(context.WithoutCancel(ctx))
}

// Retry runs f again for as long as it fails because somebody else has a file
// open, and the path's patience lasts: virus scanners, and kubelet itself, open
// files for moments.
func (h *Held) Retry(ctx context.Context, f func() error) error {
	const first, longest = 5 * time.Millisecond, 100 * time.Millisecond
	for wait := first; ; wait = min(2*wait, longest) {
		err := f()
		if h.patience <= 0 || !errors.Is(err, win.ErrorSharingViolation) && !errors.Is(err, win.ErrorDeletePending) {
			return err
		}
		wait = min(wait, h.patience)
		h.patience -= wait
		if err := win.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// walk leads to the directory that holds the last element of path.
func (h *Held) walk(ctx context.Context, path Path, d win.Disposition) error {
	for {
		next, linked, err := h.descend(ctx, path, d)
		if err != nil || !linked {
			return err
		}
		path = next
	}
}

// descend opens the directories of path one below the other. If one of them is a
// link, it returns the path behind it.
func (h *Held) descend(ctx context.Context, path Path, d win.Disposition) (next Path, linked bool, err error) {
	if len(path.names) == 0 {
		h.dir, h.at, h.name = nil, path, ""
		if path.volume == "" && d == win.FileOpenIf {
			err = h.makeAllowed(ctx, path.root)
		}
		return Path{}, false, err
	}
	if err := h.enter(ctx, path, d); err != nil {
		return Path{}, false, err
	}
	last := len(path.names) - 1
	for i, name := range path.names[:last] {
		h.name = name
		f, info, err := h.Hold(ctx, d)
		if err != nil {
			return Path{}, false, h.unreached(err)
		}
		if info.IsReparsePoint() {
			next, err := h.follow(ctx, f)
			next.names = slices.Concat(next.names, path.names[i+1:])
			return next, err == nil, err
		}
		if len(h.files) > maxHeld {
			return Path{}, false, h.refused(csiproxy.ErrFailedPrecondition, "the path leads through too many directories")
		}
		h.dir, h.at.names = f, path.names[:i+1:i+1]
	}
	h.name = path.names[last]
	return Path{}, false, nil
}

// enter opens the directory where path begins: an allowed one, or the root of a
// volume.
func (h *Held) enter(ctx context.Context, path Path, d win.Disposition) error {
	begin := path
	begin.names = nil
	if path.volume == "" {
		h.dir, h.at, h.name = nil, begin, "" // also if it isn't there
		if d == win.FileOpenIf {
			if err := h.makeAllowed(ctx, begin.root); err != nil {
				return err
			}
		}
	}
	o := directory(win.FileOpen)
	o.Access |= win.FileReadAttributes | win.Synchronize
	o.Share = win.ShareRead | win.ShareWrite
	o.Options |= win.FileOpenForBackup
	dir, err := h.track(ctx, func() (win.File, error) { return h.sys.OpenFile(ctx, begin.String(), o) })
	if err != nil {
		return &csiproxy.Error{Object: begin.String(), Err: err}
	}
	h.dir, h.at = dir, begin
	return nil
}

// makeAllowed makes an allowed directory and those above it.
func (h *Held) makeAllowed(ctx context.Context, root location) error {
	for i := range root.names {
		path := location{root.drive, root.names[:i+1]}.String()
		f, err := h.sys.OpenFile(ctx, path, win.OpenOptions{
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

// unreached says at which element an error came up.
func (h *Held) unreached(err error) error {
	return &csiproxy.Error{Object: quote.Text(h.Path()), Err: err}
}

func (h *Held) refused(kind error, detail string) error {
	return &csiproxy.Error{Object: quote.Text(h.Path()), Kind: kind, Detail: detail}
}
