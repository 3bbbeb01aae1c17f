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
	return f.MakeLink(ctx, target, source, f.paths.Reach, func(e pathpolicy.Entry) (bool, error) {
		if to.Kind == pathpolicy.SharedDirectory {
			if err := e.CheckSearched(); err != nil {
				return false, err
			}
		}
		return e.MakeSymlink(ctx, source.String(), to.Kind == pathpolicy.PlainFile, IsLinkTo(source))
	})
}

func atSource(path string, err error) error {
	return &csiproxy.Error{Object: "source path " + quote.Text(path), Err: err}
}

// IsLinkTo returns a function that reports whether a link leads to source.
func IsLinkTo(source pathpolicy.Path) func(pathpolicy.Link) bool {
	return func(l pathpolicy.Link) bool { return l.Kind == pathpolicy.LinkInside && l.Path.Equal(source) }
}

// Reach is [pathpolicy.Policy.Reach] or [pathpolicy.Policy.ReachOrMake].
type Reach func(ctx context.Context, sys pathpolicy.System, path pathpolicy.Path,
	f func(e pathpolicy.Entry) error) error

// MakeLink makes target a link to source by calling create, which reports whether it made the link.
func (f *Filesystem) MakeLink(ctx context.Context, target, source pathpolicy.Path, reach Reach,
	create func(e pathpolicy.Entry) (bool, error)) error {
	return reach(ctx, f.sys, target, func(e pathpolicy.Entry) error {
		made, err := create(e)
		if made {
			f.options.Logger.Info("link made", "path", e.Path(), "target", source.String())
		}
		return err
	})
}

// Unlink removes the symbolic link at a path, or the empty directory left by MakeLink if its
// process dies. Anything else stays, and is an error.
func (f *Filesystem) Unlink(ctx context.Context, path pathpolicy.Path) error {
	err := f.paths.Reach(ctx, f.sys, path, func(e pathpolicy.Entry) error {
		removed, err := f.RemoveEmpty(ctx, e)
		if errors.Is(err, winerr.ErrorDirNotEmpty) {
			return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition,
				Detail: "it is a directory with entries and no link, so nothing is published there", Err: err}
		}
		if err != nil || removed {
			return err
		}
		_, err = f.unlink(ctx, e, func(context.Context, pathpolicy.Link) (bool, error) { return true, nil })
		return err
	})
	if pathpolicy.Missing(err) {
		return nil
	}
	return err
}

// UnlinkIf removes the symbolic link at a path if isMeant returns true, and reports whether it did.
// The link stays open during isMeant.
func (f *Filesystem) UnlinkIf(ctx context.Context, path pathpolicy.Path,
	isMeant func(context.Context, pathpolicy.Link) (bool, error)) (removed bool, _ error) {
	err := f.paths.Reach(ctx, f.sys, path, func(e pathpolicy.Entry) (err error) {
		removed, err = f.unlink(ctx, e, isMeant)
		return err
	})
	if pathpolicy.Missing(err) {
		return false, nil
	}
	return removed, err
}

func (f *Filesystem) unlink(ctx context.Context, e pathpolicy.Entry,
	isMeant func(context.Context, pathpolicy.Link) (bool, error)) (removed bool, err error) {
	file, err := e.Open(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
	if err != nil {
		return false, err
	}
	defer file.CloseInto(&err)
	link, err := file.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return false, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is no link, so nothing is published there")
	}
	if err != nil {
		return false, err
	}
	if link.Tag != win.TagSymlink {
		return false, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"it is a mount point or junction and no link of PublishVolume; UnstageVolume unmounts a volume")
	}
	if meant, err := isMeant(ctx, link); err != nil || !meant {
		return false, err
	}
	if err := file.Delete(ctx); err != nil {
		return false, err
	}
	f.options.Logger.Info("link removed", "path", e.Path(), "to", quote.Text(link.Target()))
	return true, nil
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
