// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"io/fs"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Rmdir implements [filesystem.Operations].
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

// RmdirContents implements [filesystem.Operations].
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
				return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is a link or mount point")
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
