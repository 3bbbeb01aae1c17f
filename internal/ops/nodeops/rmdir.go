// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Rmdir implements [published.FilesystemOperations].
func (f *Filesystem) Rmdir(ctx context.Context, path string, force bool) (err error) {
	defer f.options.Observer.End("Rmdir", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return err
	}
	unlinked, isShare, err := f.rmdir(ctx, p, force)
	if force && pathpolicy.Missing(err) {
		return nil
	}
	if err == nil && isShare {
		f.shares.RemoveMappingAfterLastLink(ctx, unlinked)
	}
	return err
}

// rmdir removes what is at a path. If it was a link to a directory of a share, rmdir returns the
// directory.
func (f *Filesystem) rmdir(ctx context.Context, path pathpolicy.Path, force bool) (remote win.UNCPath, isShare bool, err error) {
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	removed, err := walk.Hold(ctx, path)
	if err != nil {
		return remote, false, err
	}
	if err := removed.CheckReplaceable(); err != nil {
		return remote, false, err
	}
	info, err := infoOf(ctx, removed)
	if err != nil {
		return remote, false, err
	}
	if info.ReparseTag == win.TagSymlink {
		if remote, isShare, err = shareAt(ctx, removed); err != nil {
			return remote, false, err
		}
	}
	r := &remover{limits: f.limits, trees: &f.trees, locks: f.options.Locks}
	defer f.report(r, removed)
	if force {
		return remote, isShare, r.removeTree(ctx, entry{removed, info})
	}
	dir, err := r.removeEntry(ctx, entry{removed, info})
	if err != nil || dir == nil {
		return remote, isShare, err
	}
	return remote, isShare, r.delete(ctx, dir)
}

// shareAt returns the directory of a share to which an entry links; ok is false for other entries.
func shareAt(ctx context.Context, entry pathpolicy.Entry) (remote win.UNCPath, ok bool, _ error) {
	link, err := entry.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return remote, false, nil // the entry is no longer a link
	}
	if err != nil || link.Kind != pathpolicy.LinkToShare {
		return remote, false, err
	}
	remote, parseErr := win.ParseUNC(link.Target())
	return remote, parseErr == nil, nil
}

// report logs how much a remover has removed from a directory, also after a failure.
func (f *Filesystem) report(r *remover, entry pathpolicy.Entry) {
	if r.removed+r.unmounted > 0 {
		f.options.Logger.Info("files and directories removed", "path", entry.Path(), "entries", r.removed, "unmounted",
			r.unmounted)
	}
}

// RmdirContents implements [published.FilesystemOperations].
func (f *Filesystem) RmdirContents(ctx context.Context, path string) (err error) {
	defer f.options.Observer.End("RmdirContents", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return err
	}
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	e, err := walk.Hold(ctx, p)
	if err != nil {
		return err
	}
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
	r := &remover{limits: f.limits, trees: &f.trees, locks: f.options.Locks}
	defer f.report(r, e)
	return r.removeEntries(ctx, dir)
}

// infoOf returns the attributes of the entry itself.
func infoOf(ctx context.Context, e pathpolicy.Entry) (info win.FileInfo, err error) {
	file, err := e.Open(ctx, pathpolicy.ForAttributes)
	if err != nil {
		return info, err
	}
	defer file.CloseInto(&err)
	return file.Info(ctx)
}
