// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// CreateSymlink makes the symlink targetPath, which leads to sourcePath. What is at
// sourcePath needn't exist; if it is a link, it may lead to a UNC path, but not
// elsewhere outside. The symlink is one of a directory unless there is a file at
// sourcePath.
//
// A symlink to the same path that is there already is a success; anything else is
// csiproxy.ErrAlreadyExists. Windows makes a link in two steps. If the process dies
// between them, an empty directory or file is left. It is not taken for a link half
// made, since somebody may need it as it is: drivers remove what they find at the
// target path first.
func (f *Filesystem) CreateSymlink(ctx context.Context, sourcePath, targetPath string) error {
	return f.do(ctx, "CreateSymlink", targetPath, func(ctx context.Context, target pathpolicy.Path) error {
		source, file, err := f.linkSource(ctx, sourcePath)
		if err != nil {
			return &csiproxy.Error{Object: "source path " + pathpolicy.Printable(sourcePath), Err: err}
		}
		if source.Equal(target) {
			return &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Detail: "a link to itself"}
		}
		return f.paths.Reach(ctx, f.sys, target, func(h *pathpolicy.Held) error {
			if err := h.CheckReplaceable(); err != nil {
				return err
			}
			err := createSymlink(ctx, h, source, file)
			if errors.Is(err, win.ErrorAlreadyExists) {
				return checkSame(ctx, h, source)
			}
			return err
		})
	})
}

// linkSource checks what a link is to lead to, and whether it is a file.
func (f *Filesystem) linkSource(ctx context.Context, path string) (p pathpolicy.Path, file bool, err error) {
	if p, err = f.paths.Parse(path, pathpolicy.MaxPath); err != nil {
		return p, false, err
	}
	place, err := f.paths.Resolve(ctx, f.sys, p)
	return p, place.Kind == pathpolicy.File, err
}

func createSymlink(ctx context.Context, h *pathpolicy.Held, source pathpolicy.Path, file bool) error {
	o := win.OpenOptions{
		Access:      win.FileWriteAttributes | win.Delete,
		Disposition: win.FileCreate,
		Options:     win.FileDirectoryFile,
	}
	if file {
		o.Options = win.FileNonDirectoryFile
	}
	link, err := h.Open(ctx, o)
	if err != nil {
		return err
	}
	_, err = link.Control(ctx, win.FsctlSetReparsePoint, win.NewSymlink(source.String()).Encode(), nil)
	if err == nil {
		return nil
	}
	if removeErr := link.Delete(context.WithoutCancel(ctx)); removeErr != nil {
		return &csiproxy.Error{Kind: csiproxy.KindOf(err), Detail: "an empty file or directory is left: " + removeErr.Error(), Err: err}
	}
	return err
}

// checkSame accepts a symlink to source in the place of the one to make.
func checkSame(ctx context.Context, h *pathpolicy.Held, source pathpolicy.Path) error {
	link, err := readLink(ctx, h)
	switch {
	case errors.Is(err, win.ErrorNotAReparsePoint):
		return &csiproxy.Error{Kind: csiproxy.ErrAlreadyExists, Detail: "there is a file or directory"}
	case err != nil:
		return err
	case link.Tag == win.TagSymlink && link.Kind == pathpolicy.LinkInside && link.Path.Equal(source):
		return nil
	}
	return &csiproxy.Error{Kind: csiproxy.ErrAlreadyExists, Detail: "there is a link to " + pathpolicy.Printable(link.Target())}
}
