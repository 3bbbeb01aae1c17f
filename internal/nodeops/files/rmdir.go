// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Rmdir implements [filesystem.Operations].
func (f *Filesystem) Rmdir(ctx context.Context, path string, force bool) error {
	return f.do(ctx, "Rmdir", path, func(ctx context.Context, p pathpolicy.Path) error {
		var unlinked unc.Path
		isShare := false
		err := f.paths.Reach(ctx, f.sys, p, func(e pathpolicy.Entry) (err error) {
			unlinked, isShare, err = f.rmdir(ctx, e, force)
			return err
		})
		if force && pathpolicy.Missing(err) {
			return nil
		}
		if err == nil && isShare && f.options.OnUnlinked != nil {
			f.options.OnUnlinked(ctx, unlinked, p.String())
		}
		return err
	})
}

// rmdir also returns the directory of a share, if a link to it was removed.
func (f *Filesystem) rmdir(ctx context.Context, at pathpolicy.Entry,
	force bool) (remote unc.Path, isShare bool, _ error) {
	if err := at.CheckReplaceable(); err != nil {
		return remote, false, err
	}
	info, err := look(ctx, at)
	if err != nil {
		return remote, false, err
	}
	if info.ReparseTag == win.TagSymlink {
		if remote, isShare, err = shareAt(ctx, at); err != nil {
			return remote, false, err
		}
	}
	r := &remover{limits: f.limits, owner: f.options.Owner}
	defer f.report(r, at)
	if force {
		return remote, isShare, r.removeTree(ctx, entry{at, info})
	}
	dir, err := r.removeEntry(ctx, entry{at, info})
	if err != nil || dir == nil {
		return remote, isShare, err
	}
	return remote, isShare, r.delete(ctx, dir)
}

// shareAt returns the directory of a share that an entry is a link to, if it is one.
func shareAt(ctx context.Context, at pathpolicy.Entry) (remote unc.Path, ok bool, _ error) {
	link, err := at.Link(ctx)
	if errors.Is(err, win.ErrorNotAReparsePoint) {
		return remote, false, nil // it is no link any more
	}
	if err != nil || link.Kind != pathpolicy.LinkToShare {
		return remote, false, err
	}
	remote, parseErr := unc.Parse(link.Target())
	return remote, parseErr == nil, nil
}

// report logs what a remover has removed of a directory, also if it failed in the end.
func (f *Filesystem) report(r *remover, at pathpolicy.Entry) {
	if r.removed+r.unmounted > 0 {
		f.options.Logger.Info("files and directories removed", "path", at.Path(), "entries", r.removed, "unmounted",
			r.unmounted)
	}
}

// RmdirContents implements [filesystem.Operations].
func (f *Filesystem) RmdirContents(ctx context.Context, path string) error {
	return f.do(ctx, "RmdirContents", path, func(ctx context.Context, p pathpolicy.Path) error {
		return f.paths.Reach(ctx, f.sys, p, func(e pathpolicy.Entry) error {
			if err := e.CheckReplaceable(); err != nil {
				return err
			}
			dir, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
			if err != nil {
				return err
			}
			info, err := dir.Info(ctx)
			if err != nil {
				return err
			}
			if info.IsReparsePoint() {
				return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is a link or mount point")
			}
			r := &remover{limits: f.limits, owner: f.options.Owner}
			defer f.report(r, e)
			return r.removeBelow(ctx, &level{dir: dir, stays: true})
		})
	})
}

// look sees what the entry itself is.
func look(ctx context.Context, e pathpolicy.Entry) (info win.FileInfo, _ error) {
	err := e.With(ctx, pathpolicy.Look, func(file *pathpolicy.File) (err error) {
		info, err = file.Info(ctx)
		return err
	})
	return info, err
}
