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

// CreateSymlink implements [published.FilesystemOperations].
func (f *Filesystem) CreateSymlink(ctx context.Context, sourcePath, targetPath string) (err error) {
	defer f.options.Observer.End("CreateSymlink", quote.Text(targetPath), time.Now(), &err)
	target, err := f.parse(targetPath)
	if err != nil {
		return err
	}
	source, err := f.parse(sourcePath)
	if err != nil {
		return atSource(sourcePath, err)
	}
	to, release, err := f.options.Locks.LockMountedAt(ctx, source)
	if err != nil {
		return atSource(sourcePath, err)
	}
	defer release()
	if to.Kind == pathpolicy.SharedDirectory {
		if err := f.checkShare(ctx, to.Target); err != nil {
			return atSource(sourcePath, err)
		}
	}
	if source.Equal(target) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path would be a link to itself")
	}
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	e, err := walk.Reach(ctx, target)
	if err != nil {
		return err
	}
	if to.Kind == pathpolicy.SharedDirectory {
		if err := e.CheckSearched(); err != nil {
			return err
		}
	}
	return f.makeLink(ctx, e, source, to.Kind == pathpolicy.PlainFile)
}

func atSource(path string, err error) error {
	return &csiproxy.Error{Object: "source path " + quote.Text(path), Err: err}
}

// makeLink makes an entry a link to source, unless it is one.
func (f *Filesystem) makeLink(ctx context.Context, e pathpolicy.Entry, source pathpolicy.Path, isFile bool) error {
	isSame := func(l pathpolicy.Link) bool { return l.Kind == pathpolicy.LinkInside && l.Path.Equal(source) }
	made, err := e.MakeSymlink(ctx, source.String(), isFile, isSame)
	if made {
		f.options.Logger.Info("link made", "path", e.Path(), "target", source.String())
	}
	return err
}

// Unlink removes the symbolic link at a path, or the empty directory left by PublishVolume if its
// process dies. Anything else stays, and is an error.
func (f *Filesystem) Unlink(ctx context.Context, path pathpolicy.Path) error {
	err := f.unlink(ctx, path)
	if pathpolicy.Missing(err) {
		return nil
	}
	return err
}

func (f *Filesystem) unlink(ctx context.Context, path pathpolicy.Path) (err error) {
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	e, err := walk.Reach(ctx, path)
	if err != nil {
		return err
	}
	removed, err := f.RemoveEmpty(ctx, e)
	if errors.Is(err, winerr.ErrorDirNotEmpty) {
		return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition,
			Detail: "it is a directory with entries and no link, so nothing is published there", Err: err}
	}
	if err != nil || removed {
		return err
	}
	file, link, err := openLink(ctx, e)
	if err != nil {
		return err
	}
	return f.deleteLink(ctx, file, link)
}

// UnlinkIf removes the symbolic link at a path if isMeant returns true, and reports whether it did.
// The link stays open during isMeant.
func (f *Filesystem) UnlinkIf(ctx context.Context, path pathpolicy.Path,
	isMeant func(context.Context, pathpolicy.Link) (bool, error)) (removed bool, err error) {
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	e, err := walk.Reach(ctx, path)
	var file *pathpolicy.File
	var link pathpolicy.Link
	if err == nil {
		file, link, err = openLink(ctx, e)
	}
	if pathpolicy.Missing(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if meant, err := isMeant(ctx, link); err != nil || !meant {
		return false, err
	}
	err = f.deleteLink(ctx, file, link)
	return err == nil, err
}

// openLink opens a symbolic link to delete it. For anything else, the error is
// csiproxy.ErrFailedPrecondition.
func openLink(ctx context.Context, e pathpolicy.Entry) (*pathpolicy.File, pathpolicy.Link, error) {
	file, err := e.Open(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
	if err != nil {
		return nil, pathpolicy.Link{}, err
	}
	link, err := file.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is no link, so nothing is published there")
	} else if err == nil && link.Tag != win.TagSymlink {
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"it is a mount point or junction and no link of PublishVolume; UnstageVolume unmounts a volume")
	}
	return file, link, err
}

func (f *Filesystem) deleteLink(ctx context.Context, file *pathpolicy.File, link pathpolicy.Link) error {
	err := file.Delete(ctx)
	if err == nil {
		f.options.Logger.Info("link removed", "path", file.Path(), "to", quote.Text(link.Target()))
	}
	return err
}

// RemoveEmpty removes an empty directory, and reports whether it did.
func (f *Filesystem) RemoveEmpty(ctx context.Context, e pathpolicy.Entry) (removed bool, _ error) {
	removed, err := e.RemoveEmptyDirectory(ctx)
	if removed {
		f.options.Logger.Info("directory removed", "path", e.Path())
	}
	return removed, err
}

// checkShare returns an error if the target of a link is on an unmapped share. The check keeps
// anybody who can make a link in a pod's directory from leading the node to an arbitrary server or,
// by a name of the node itself such as \\localhost\C$, to the node's own drives.
func (f *Filesystem) checkShare(ctx context.Context, target string) error {
	_, mapped, err := f.mappedShare(ctx, target)
	if err != nil || mapped {
		return err
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "it is a link to %s, a share without a global mapping",
		quote.Text(target))
}
