// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// Mount has the mount manager mount a volume, \\?\Volume{guid}\, at the empty directory
// f. Whatever it says, Link tells afterwards what is mounted there: another call may have
// been quicker. It first removes the entry of the access list that Unmount has left: whether
// that would stop the mount manager isn't documented.
func (f *File) Mount(ctx context.Context, volume string) error {
	if err := f.denyCreation(ctx, false); err != nil {
		return err
	}
	sys := f.entry.walk.sys
	return f.callMountManager(ctx, func(ctx context.Context, path string) error {
		return sys.SetVolumeMountPoint(ctx, path, volume)
	})
}

// Unmount has the mount manager take away the mount point f; the directory stays. It is a
// success if another call has unmounted the volume meanwhile. If the mount manager
// doesn't know the mount point, the reparse point alone is removed: that happens where
// its records are lost, or the volume has left the node.
//
// From before the unmount on, nobody can make files or directories in f, until it is a mount
// point again or is deleted: a pod that writes through a link which still leads there gets
// "access denied", and its data don't land on the node's disk. If the mount manager is
// stopped by that, too, it gets another try without.
func (f *File) Unmount(ctx context.Context) error {
	if err := f.denyCreation(ctx, true); err != nil {
		return err
	}
	err := f.unmount(ctx)
	if !errors.Is(err, win.ErrorAccessDenied) {
		return err
	}
	if err := f.denyCreation(ctx, false); err != nil {
		return err
	}
	err = f.unmount(ctx)
	// Also if that has failed: with a volume mounted, the entry does no harm.
	return cmp.Or(err, f.denyCreation(context.WithoutCancel(ctx), true))
}

// denyCreation adds the entry to the access list of the directory f that keeps new files and
// directories out, or removes it. A file system without access lists can't have it, nor a
// directory without one.
func (f *File) denyCreation(ctx context.Context, deny bool) error {
	if !f.entry.walk.policy.deniesCreation {
		return nil
	}
	o := win.OpenOptions{Access: win.ReadControl | win.WriteDAC, Disposition: win.FileOpen}
	return f.entry.With(ctx, o, func(f *File) error {
		is, err := f.handle.CreationDenied(ctx)
		if err == nil && is != deny {
			err = f.handle.DenyCreation(ctx, deny)
		}
		return unlessNoAccessList(err)
	})
}

// unlessNoAccessList returns err, or nil if err says that a directory, or its file system, has no
// access list.
func unlessNoAccessList(err error) error {
	const invalidACL win.Errno = 1336
	if win.IsAny(err, win.ErrorInvalidFunction, win.ErrorNotSupported, invalidACL) {
		return nil
	}
	return err
}

// Nowhere says why a path leads to no volume, no share and no files: to nothing, or to a
// directory that a volume was unmounted from, by the entry that Unmount has left in its access
// list. It is "" if the path leads to something.
func (p *Policy) Nowhere(ctx context.Context, sys System, path Path) (why string, _ error) {
	err := p.walk(sys, func(w *walk) error {
		end, r, err := w.resolve(ctx, path)
		if err == nil && r.Kind == Nothing {
			why = "it leads to nothing"
		}
		if err != nil || r.Kind != PlainDirectory {
			return err
		}
		e, err := w.to(ctx, end, win.FileOpen)
		if err != nil {
			return err
		}
		denied, err := e.deniesCreation(ctx)
		if err == nil && denied {
			why = "it leads to a directory whose volume was unmounted"
		}
		return err
	})
	if Missing(err) {
		return "it leads to nothing", nil
	}
	return why, err
}

// LeadsOutside reports whether err says that a path leads out of the allowed directories, or through
// too many links, and not that Windows can't tell where it leads.
func LeadsOutside(err error) bool {
	kind := csiproxy.KindOf(err)
	_, windows := csiproxy.WindowsErrorOf(err)
	return !windows && (kind == csiproxy.ErrPermissionDenied || kind == csiproxy.ErrFailedPrecondition)
}

func (e Entry) deniesCreation(ctx context.Context) (denied bool, _ error) {
	err := e.With(ctx, win.OpenOptions{Access: win.ReadControl, Disposition: win.FileOpen}, func(f *File) (err error) {
		denied, err = f.handle.CreationDenied(ctx)
		return unlessNoAccessList(err)
	})
	return denied, err
}

// unmount is Unmount without the access list.
func (f *File) unmount(ctx context.Context) error {
	sys := f.entry.walk.sys
	err := error(win.ErrorPathNotFound) // no call takes a longer path
	if winname.Length(f.Path())+len(`\\?\`)+len(`\`) <= MaxLongPath {
		err = f.callMountManager(ctx, sys.DeleteVolumeMountPoint)
	}
	unknown := errors.Is(err, fs.ErrNotExist) || errors.Is(err, win.ErrorInvalidParameter) ||
		errors.Is(err, win.ErrorNotAReparsePoint)
	if !unknown {
		return err
	}
	o := win.OpenOptions{Access: win.FileWriteAttributes, Disposition: win.FileOpen}
	err = f.entry.With(ctx, o, func(mounted *File) error {
		link, err := mounted.Link(ctx)
		if err == nil && link.IsMountPoint() {
			// The input is a REPARSE_DATA_BUFFER without data.
			header := append(binary.LittleEndian.AppendUint32(nil, uint32(win.TagMountPoint)), 0, 0, 0, 0)
			_, err = mounted.handle.Control(ctx, win.FsctlDeleteReparsePoint, header, nil)
		}
		if errors.Is(err, win.ErrorNotAReparsePoint) {
			err = nil
		}
		return err
	})
	if Missing(err) {
		err = nil
	}
	return err
}

// callMountManager makes a call of the mount manager, which has no form but that with a
// path. It runs to its end even if ctx ends meanwhile: it must not run on when the path is
// held no more.
//
// How Windows opens the directory isn't documented. If it can't while f is open, f is
// closed for the call and opened again, so what others see of f may change. Then another
// entry holds the place of f: a file in the same directory, which goes with its handle.
// A directory with an entry can't become a link.
func (f *File) callMountManager(ctx context.Context, call func(ctx context.Context, path string) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	inside := context.WithoutCancel(ctx)
	path := f.Path() + `\`
	err = call(inside, path)
	if !errors.Is(err, win.ErrorSharingViolation) || f.entry.dir == nil {
		return err
	}
	guard, guardErr := f.entry.dir.Entry(".csi-proxy-"+win.NewGUID().String()).Open(ctx, win.OpenOptions{
		Access:      win.Delete,
		Disposition: win.FileCreate,
		Options:     win.FileNonDirectoryFile | win.FileDeleteOnClose,
	})
	if guardErr != nil {
		return &csiproxy.Error{Detail: "making a file that keeps the directory from becoming a link while Windows mounts " +
			"there", Err: guardErr}
	}
	defer func() {
		if closeErr := guard.Close(); err == nil {
			err = closeErr
		}
	}()
	w := f.entry.walk
	return f.without(ctx, func() error {
		return w.retry(ctx, func() error { return call(inside, path) })
	})
}

// without runs call while f isn't open. f is what its entry is afterwards.
func (f *File) without(ctx context.Context, call func() error) error {
	if err := f.Close(); err != nil {
		return err
	}
	err := call()
	again, openErr := f.entry.Open(context.WithoutCancel(ctx), Directory(win.FileOpen))
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	// The walk has again among its files. It is the same file to the caller as f.
	f.handle = again.handle
	w := f.entry.walk
	w.files[len(w.files)-1] = f
	return err
}
