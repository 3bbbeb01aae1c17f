// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
)

// CreateSymlink implements [filesystem.Operations].
func (f *Filesystem) CreateSymlink(ctx context.Context, sourcePath, targetPath string) error {
	return f.do(ctx, "CreateSymlink", targetPath, func(ctx context.Context, target pathpolicy.Path) error {
		source, file, err := f.linkSource(ctx, sourcePath)
		if err != nil {
			return &csiproxy.Error{Object: "source path " + quote.Text(sourcePath), Err: err}
		}
		if source.Equal(target) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "a link to itself")
		}
		return f.paths.Reach(ctx, f.sys, target, func(e pathpolicy.Entry) error {
			made, err := e.MakeSymlink(ctx, source.String(), file, func(l pathpolicy.Link) bool {
				return l.Kind == pathpolicy.LinkInside && l.Path.Equal(source)
			})
			if made {
				f.options.Logger.Info("link made", "path", e.Path(), "target", source.String())
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
	to, err := f.paths.Resolve(ctx, f.sys, p)
	if err == nil && to.Kind == pathpolicy.SharedDirectory {
		err = f.checkShare(ctx, to.Target)
	}
	return p, to.Kind == pathpolicy.PlainFile, err
}

// checkShare refuses a share that nobody has mapped as what a link leads to: whoever can
// make a link in a pod's directory could lead the node to any server, and, with a name
// of the node itself such as \\localhost\C$, to its own drives.
func (f *Filesystem) checkShare(ctx context.Context, target string) error {
	_, mapped, err := f.mappedShare(ctx, target)
	if err != nil || mapped {
		return err
	}
	return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "it is a link to %s, a share without a global mapping", quote.Text(target))
}
