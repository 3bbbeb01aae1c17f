// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
)

// CreateSymlink makes the symlink targetPath, which leads to sourcePath. What is at
// sourcePath needn't exist; if it is a link, it may lead to a UNC path, but not
// elsewhere outside. The symlink is one of a directory unless there is a file at
// sourcePath.
//
// A symlink to the same path that is there already is a success; anything else is
// csiproxy.ErrAlreadyExists. That goes for the empty directory or file that a process
// leaves which dies half-way, too: drivers remove what they find at the target path
// first.
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
			return h.MakeSymlink(ctx, source.String(), file, func(l pathpolicy.Link) bool {
				return l.Kind == pathpolicy.LinkInside && l.Path.Equal(source)
			})
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
