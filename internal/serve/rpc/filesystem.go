// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	filesystemv1beta1 "github.com/csi-proxy/csi-proxy/api/filesystem/v1beta1"
	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/published"
)

func filesystemVersions(ops published.FilesystemOperations) versions {
	stable := methods{
		"PathExists": unary(func(ctx context.Context,
			req *filesystemv2alpha1.PathExistsRequest) (*filesystemv2alpha1.PathExistsResponse, error) {
			exists, err := ops.PathExists(ctx, req.Path)
			return &filesystemv2alpha1.PathExistsResponse{Exists: exists}, err
		}),
		"Mkdir": action(func(ctx context.Context, req *filesystemv2alpha1.MkdirRequest) error {
			return ops.Mkdir(ctx, req.Path)
		}),
		"Rmdir": action(func(ctx context.Context, req *filesystemv2alpha1.RmdirRequest) error {
			return ops.Rmdir(ctx, req.Path, req.Force)
		}),
		"CreateSymlink": action(func(ctx context.Context, req *filesystemv2alpha1.CreateSymlinkRequest) error {
			return ops.CreateSymlink(ctx, req.SourcePath, req.TargetPath)
		}),
		"IsSymlink": unary(func(ctx context.Context,
			req *filesystemv2alpha1.IsSymlinkRequest) (*filesystemv2alpha1.IsSymlinkResponse, error) {
			isSymlink, err := ops.IsSymlink(ctx, req.Path)
			return &filesystemv2alpha1.IsSymlinkResponse{IsSymlink: isSymlink}, err
		}),
	}
	contents := methods{
		"RmdirContents": action(func(ctx context.Context, req *filesystemv2alpha1.RmdirContentsRequest) error {
			return ops.RmdirContents(ctx, req.Path)
		}),
	}

	first := methods{ // the error fields of its responses stay empty
		"PathExists": unary(func(ctx context.Context,
			req *filesystemv1beta1.PathExistsRequest) (*filesystemv1beta1.PathExistsResponse, error) {
			if err := checkPathContext(req.Context); err != nil {
				return nil, err
			}
			exists, err := ops.PathExists(ctx, req.Path)
			return &filesystemv1beta1.PathExistsResponse{Exists: exists}, err
		}),
		"Mkdir": unary(func(ctx context.Context,
			req *filesystemv1beta1.MkdirRequest) (*filesystemv1beta1.MkdirResponse, error) {
			if err := checkPathContext(req.Context); err != nil {
				return nil, err
			}
			return &filesystemv1beta1.MkdirResponse{}, ops.Mkdir(ctx, req.Path)
		}),
		"Rmdir": unary(func(ctx context.Context,
			req *filesystemv1beta1.RmdirRequest) (*filesystemv1beta1.RmdirResponse, error) {
			if err := checkPathContext(req.Context); err != nil {
				return nil, err
			}
			return &filesystemv1beta1.RmdirResponse{}, ops.Rmdir(ctx, req.Path, req.Force)
		}),
		"LinkPath": unary(func(ctx context.Context,
			req *filesystemv1beta1.LinkPathRequest) (*filesystemv1beta1.LinkPathResponse, error) {
			return &filesystemv1beta1.LinkPathResponse{}, ops.CreateSymlink(ctx, req.SourcePath, req.TargetPath)
		}),
		"IsMountPoint": unary(func(ctx context.Context,
			req *filesystemv1beta1.IsMountPointRequest) (*filesystemv1beta1.IsMountPointResponse, error) {
			isMountPoint, err := ops.IsSymlink(ctx, req.Path)
			return &filesystemv1beta1.IsMountPointResponse{IsMountPoint: isMountPoint}, err
		}),
	}

	return versions{
		"v2alpha1": {stable, contents},
		"v1":       {stable},
		"v1beta2":  {stable},
		"v1beta1":  {first},
		"v1alpha1": {first},
	}
}

// checkPathContext refuses path contexts unknown to the contract. Known contexts have no further
// effect: all allowed directories are open to every context.
func checkPathContext(pathContext filesystemv1beta1.PathContext) error {
	if _, ok := filesystemv1beta1.PathContext_name[int32(pathContext)]; !ok {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown path context %d", pathContext)
	}
	return nil
}
