// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strings"

	filesystemv1beta1 "github.com/csi-proxy/csi-proxy/api/filesystem/v1beta1"
	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// Filesystem calls the filesystem group. A [Client] has one.
//
// Paths are Windows paths with backslashes. A malformed path, or a path outside of the daemon's
// allowed directories, fails with csiproxy.ErrInvalidArgument.
type Filesystem struct{ group *group }

// Version returns the version in use, such as "v2alpha1". If there is none yet, Version chooses the
// newest version served.
func (f *Filesystem) Version(ctx context.Context) (string, error) { return f.group.version(ctx) }

// PathExists implements [published.FilesystemOperations]: reports whether a path exists.
func (f *Filesystem) PathExists(ctx context.Context, path string) (exists bool, err error) {
	err = f.group.call(ctx, "PathExists", quote.Text(path),
		result("PathExists", &filesystemv2alpha1.PathExistsRequest{Path: path},
			func(r *filesystemv2alpha1.PathExistsResponse) {
				exists = r.Exists
			}),
		result("PathExists", &filesystemv1beta1.PathExistsRequest{Path: path, Context: pathContext(path)},
			func(r *filesystemv1beta1.PathExistsResponse) {
				exists = r.Exists
			}),
	)
	return exists, err
}

// Mkdir implements [published.FilesystemOperations]: makes a directory and its missing parents.
func (f *Filesystem) Mkdir(ctx context.Context, path string) error {
	return f.group.call(ctx, "Mkdir", quote.Text(path),
		noResult("Mkdir", &filesystemv2alpha1.MkdirRequest{Path: path}),
		result("Mkdir", &filesystemv1beta1.MkdirRequest{Path: path, Context: pathContext(path)},
			func(*filesystemv1beta1.MkdirResponse) {}),
	)
}

// Rmdir implements [published.FilesystemOperations]: removes a directory, file, link or mount
// point.
func (f *Filesystem) Rmdir(ctx context.Context, path string, force bool) error {
	return f.group.call(ctx, "Rmdir", quote.Text(path),
		noResult("Rmdir", &filesystemv2alpha1.RmdirRequest{Path: path, Force: force}),
		result("Rmdir", &filesystemv1beta1.RmdirRequest{Path: path, Context: pathContext(path), Force: force},
			func(*filesystemv1beta1.RmdirResponse) {}),
	)
}

// RmdirContents implements [published.FilesystemOperations]: empties a directory. Needs v2alpha1.
func (f *Filesystem) RmdirContents(ctx context.Context, path string) error {
	return f.group.act(ctx, "RmdirContents", quote.Text(path), &filesystemv2alpha1.RmdirContentsRequest{Path: path})
}

// CreateSymlink implements [published.FilesystemOperations]: makes targetPath a link to sourcePath.
func (f *Filesystem) CreateSymlink(ctx context.Context, sourcePath, targetPath string) error {
	return f.group.call(ctx, "CreateSymlink", quote.Text(targetPath),
		noResult("CreateSymlink", &filesystemv2alpha1.CreateSymlinkRequest{SourcePath: sourcePath, TargetPath: targetPath}),
		result("LinkPath", &filesystemv1beta1.LinkPathRequest{SourcePath: sourcePath, TargetPath: targetPath},
			func(*filesystemv1beta1.LinkPathResponse) {}),
	)
}

// IsSymlink implements [published.FilesystemOperations]: reports whether a path is a link to an
// existing target.
func (f *Filesystem) IsSymlink(ctx context.Context, path string) (isSymlink bool, err error) {
	err = f.group.call(ctx, "IsSymlink", quote.Text(path),
		result("IsSymlink", &filesystemv2alpha1.IsSymlinkRequest{Path: path}, func(r *filesystemv2alpha1.IsSymlinkResponse) {
			isSymlink = r.IsSymlink
		}),
		result("IsMountPoint", &filesystemv1beta1.IsMountPointRequest{Path: path},
			func(r *filesystemv1beta1.IsMountPointResponse) {
				isSymlink = r.IsMountPoint
			}),
	)
	return isSymlink, err
}

// pathContext returns the context that old versions need for a path: kubelet's directory of pods,
// or kubelet's directory of plugins.
func pathContext(path string) filesystemv1beta1.PathContext {
	for element := range strings.SplitSeq(path, `\`) {
		switch strings.ToLower(element) {
		case "pods":
			return filesystemv1beta1.PathContext_POD
		case "plugins":
			return filesystemv1beta1.PathContext_PLUGIN
		}
	}
	return filesystemv1beta1.PathContext_PLUGIN
}
