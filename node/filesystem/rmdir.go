// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"errors"
	"io/fs"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Rmdir removes what is at path: a directory, a file, a link or a mount point, also
// a read-only one. A link is removed, never what it leads to. A mount point is taken
// away through the mount manager, which keeps records of them, and then its empty
// directory; the volume and its data stay.
//
// Without force, a directory with entries is csiproxy.ErrFailedPrecondition, and a
// path that isn't there csiproxy.ErrNotFound. With force, the directory is removed
// with everything in it, as far as nothing keeps it: of several errors the first is
// returned, and what could be removed is gone. A path that isn't there is a
// success. An allowed directory, or one that holds one, is
// csiproxy.ErrInvalidArgument.
func (f *Filesystem) Rmdir(ctx context.Context, path string, force bool) error {
	return f.do(ctx, "Rmdir", path, func(ctx context.Context, p pathpolicy.Path) error {
		err := f.paths.Reach(ctx, f.sys, p, func(h *pathpolicy.Held) error {
			return f.rmdir(ctx, h, force)
		})
		if missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, win.ErrorDirectory); force && missing {
			return nil
		}
		return err
	})
}

func (f *Filesystem) rmdir(ctx context.Context, h *pathpolicy.Held, force bool) error {
	if err := h.CheckReplaceable(); err != nil {
		return err
	}
	info, err := look(ctx, h)
	if err != nil {
		return err
	}
	r := &remover{sys: f.sys, held: h}
	e := entry{h.Dir(), win.DirEntry{Name: h.Name(), FileInfo: info}, h.Path()}
	if force {
		return r.removeTree(ctx, e)
	}
	dir, err := r.removeEntry(ctx, e)
	if err != nil || dir == nil {
		return err
	}
	return h.Retry(ctx, func() error { return dir.Delete(ctx) })
}

// RmdirContents removes everything in a directory as Rmdir does with force; the
// directory itself stays. A link or mount point in its place is
// csiproxy.ErrFailedPrecondition, and so is a file: nothing is removed from where
// they lead. A path that isn't there is csiproxy.ErrNotFound, an allowed directory,
// or one that holds one, csiproxy.ErrInvalidArgument.
func (f *Filesystem) RmdirContents(ctx context.Context, path string) error {
	return f.do(ctx, "RmdirContents", path, func(ctx context.Context, p pathpolicy.Path) error {
		return f.paths.Reach(ctx, f.sys, p, func(h *pathpolicy.Held) error {
			if err := h.CheckReplaceable(); err != nil {
				return err
			}
			dir, info, err := h.Hold(ctx, win.FileOpen)
			if err != nil {
				return err
			}
			if info.IsReparsePoint() {
				return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: "it is a link or mount point"}
			}
			r := &remover{sys: f.sys, held: h}
			return r.removeBelow(ctx, &level{dir: dir, path: h.Path(), stays: true})
		})
	})
}

// look sees what the last element itself is.
func look(ctx context.Context, h *pathpolicy.Held) (win.FileInfo, error) {
	file, err := h.Open(ctx, win.OpenOptions{Disposition: win.FileOpen})
	if err != nil {
		return win.FileInfo{}, err
	}
	info, err := file.Info(ctx)
	if err != nil {
		return win.FileInfo{}, err
	}
	return info, h.Release(file)
}
