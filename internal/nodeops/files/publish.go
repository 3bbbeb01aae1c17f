// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// PublishVolume implements [storage.Operations].
func (f *Filesystem) PublishVolume(ctx context.Context, stagingPath, targetPath string) error {
	return operation.Do(ctx, f.options.Runner, "PublishVolume", quote.Text(targetPath), func(ctx context.Context) error {
		target, err := f.paths.Parse(targetPath, pathpolicy.MaxPath)
		if err != nil {
			return err
		}
		source, err := f.staged(ctx, stagingPath)
		if err != nil {
			return &csiproxy.Error{Object: "staging path " + quote.Text(stagingPath), Err: err}
		}
		if source.Equal(target) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "a link to itself")
		}
		link := func(e pathpolicy.Entry) error {
			made, err := e.MakeSymlink(ctx, source.String(), false, func(l pathpolicy.Link) bool {
				return l.Kind == pathpolicy.LinkInside && l.Path.Equal(source)
			})
			if made {
				f.options.Logger.Info("link made", "path", e.Path(), "target", source.String())
			}
			return err
		}
		err = f.paths.ReachMaking(ctx, f.sys, target, link)
		if csiproxy.KindOf(err) != csiproxy.ErrAlreadyExists {
			return err
		}
		// A call that died half-way has left an empty directory. So has whoever has made the
		// directory for the pod.
		removed := false
		removeErr := f.paths.Reach(ctx, f.sys, target, func(e pathpolicy.Entry) (err error) {
			removed, err = f.removeEmpty(ctx, e)
			return err
		})
		if !removed {
			if removeErr != nil && !pathpolicy.Missing(removeErr) && csiproxy.KindOf(removeErr) != csiproxy.ErrFailedPrecondition {
				return removeErr
			}
			return err
		}
		return f.paths.ReachMaking(ctx, f.sys, target, link)
	})
}

// staged returns a path at which a volume or a share is staged.
func (f *Filesystem) staged(ctx context.Context, path string) (pathpolicy.Path, error) {
	p, err := f.paths.Parse(path, pathpolicy.MaxPath)
	if err != nil {
		return p, err
	}
	to, err := f.paths.Resolve(ctx, f.sys, p)
	switch {
	case err != nil:
		return p, err
	case to.Kind == pathpolicy.MountedVolume:
		return p, nil
	case to.Kind == pathpolicy.SharedDirectory:
		_, mapped, err := f.mappedShare(ctx, to.Target)
		if err == nil && !mapped {
			err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "the share %s is not mapped; it must be staged again", quote.Text(to.Target))
		}
		return p, err
	}
	return p, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "neither a volume nor a share is staged there")
}

// removeEmpty removes an empty directory, and reports whether it has.
func (f *Filesystem) removeEmpty(ctx context.Context, e pathpolicy.Entry) (removed bool, _ error) {
	removed, err := e.RemoveEmptyDirectory(ctx)
	if removed {
		f.options.Logger.Info("directory removed", "path", e.Path())
	}
	return removed, err
}

// UnpublishVolume implements [storage.Operations].
func (f *Filesystem) UnpublishVolume(ctx context.Context, targetPath string) error {
	return f.do(ctx, "UnpublishVolume", targetPath, func(ctx context.Context, p pathpolicy.Path) error {
		err := f.paths.Reach(ctx, f.sys, p, func(e pathpolicy.Entry) error { return f.unpublish(ctx, e) })
		if pathpolicy.Missing(err) {
			return nil
		}
		return err
	})
}

func (f *Filesystem) unpublish(ctx context.Context, e pathpolicy.Entry) error {
	removed, err := f.removeEmpty(ctx, e)
	if errors.Is(err, win.ErrorDirNotEmpty) {
		return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: "it is a directory with entries and no link, so nothing is published there", Err: err}
	}
	if err != nil || removed {
		return err
	}
	file, err := e.Open(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
	if err != nil {
		return err
	}
	link, err := file.Link(ctx)
	switch {
	case errors.Is(err, win.ErrorNotAReparsePoint):
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is a file and no link, so nothing is published there")
	case err == nil && link.Tag != win.TagSymlink:
		err = csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "it is a mount point or junction and no link of PublishVolume; UnstageVolume unmounts a volume")
	case err == nil:
		if err = file.Delete(ctx); err == nil {
			f.options.Logger.Info("link removed", "path", e.Path(), "to", link.Target())
		}
	}
	return closed(file, err)
}
