// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	filesystemv1beta1 "github.com/csi-proxy/csi-proxy/api/filesystem/v1beta1"
	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/filesystem"
)

func filesystemVersions(ops filesystem.Operations) versions {
	h := filesystemHandler{ops}
	stable := methods{
		"PathExists":    unary(h.PathExists),
		"Mkdir":         unary(h.Mkdir),
		"Rmdir":         unary(h.Rmdir),
		"CreateSymlink": unary(h.CreateSymlink),
		"IsSymlink":     unary(h.IsSymlink),
	}
	contents := methods{
		"RmdirContents": unary(h.RmdirContents),
	}

	old := oldFilesystemHandler{ops}
	first := methods{
		"PathExists":   unary(old.PathExists),
		"Mkdir":        unary(old.Mkdir),
		"Rmdir":        unary(old.Rmdir),
		"LinkPath":     unary(old.LinkPath),
		"IsMountPoint": unary(old.IsMountPoint),
	}

	return versions{
		"v2alpha1": {stable, contents},
		"v1":       {stable},
		"v1beta2":  {stable},
		"v1beta1":  {first},
		"v1alpha1": {first},
	}
}

// filesystemHandler answers the messages of v2alpha1.
type filesystemHandler struct{ ops filesystem.Operations }

func (h filesystemHandler) PathExists(ctx context.Context,
	req *filesystemv2alpha1.PathExistsRequest) (*filesystemv2alpha1.PathExistsResponse, error) {
	exists, err := h.ops.PathExists(ctx, req.Path)
	return &filesystemv2alpha1.PathExistsResponse{Exists: exists}, err
}

func (h filesystemHandler) Mkdir(ctx context.Context,
	req *filesystemv2alpha1.MkdirRequest) (*filesystemv2alpha1.MkdirResponse, error) {
	return &filesystemv2alpha1.MkdirResponse{}, h.ops.Mkdir(ctx, req.Path)
}

func (h filesystemHandler) Rmdir(ctx context.Context,
	req *filesystemv2alpha1.RmdirRequest) (*filesystemv2alpha1.RmdirResponse, error) {
	return &filesystemv2alpha1.RmdirResponse{}, h.ops.Rmdir(ctx, req.Path, req.Force)
}

func (h filesystemHandler) RmdirContents(ctx context.Context,
	req *filesystemv2alpha1.RmdirContentsRequest) (*filesystemv2alpha1.RmdirContentsResponse, error) {
	return &filesystemv2alpha1.RmdirContentsResponse{}, h.ops.RmdirContents(ctx, req.Path)
}

func (h filesystemHandler) CreateSymlink(ctx context.Context,
	req *filesystemv2alpha1.CreateSymlinkRequest) (*filesystemv2alpha1.CreateSymlinkResponse, error) {
	return &filesystemv2alpha1.CreateSymlinkResponse{}, h.ops.CreateSymlink(ctx, req.SourcePath, req.TargetPath)
}

func (h filesystemHandler) IsSymlink(ctx context.Context,
	req *filesystemv2alpha1.IsSymlinkRequest) (*filesystemv2alpha1.IsSymlinkResponse, error) {
	isSymlink, err := h.ops.IsSymlink(ctx, req.Path)
	return &filesystemv2alpha1.IsSymlinkResponse{IsSymlink: isSymlink}, err
}

// oldFilesystemHandler answers the messages of v1beta1. Their error fields stay
// empty.
type oldFilesystemHandler struct{ ops filesystem.Operations }

func (h oldFilesystemHandler) PathExists(ctx context.Context,
	req *filesystemv1beta1.PathExistsRequest) (*filesystemv1beta1.PathExistsResponse, error) {
	if err := checkPathContext("PathExists", req.Context); err != nil {
		return nil, err
	}
	exists, err := h.ops.PathExists(ctx, req.Path)
	return &filesystemv1beta1.PathExistsResponse{Exists: exists}, err
}

func (h oldFilesystemHandler) Mkdir(ctx context.Context,
	req *filesystemv1beta1.MkdirRequest) (*filesystemv1beta1.MkdirResponse, error) {
	if err := checkPathContext("Mkdir", req.Context); err != nil {
		return nil, err
	}
	return &filesystemv1beta1.MkdirResponse{}, h.ops.Mkdir(ctx, req.Path)
}

func (h oldFilesystemHandler) Rmdir(ctx context.Context,
	req *filesystemv1beta1.RmdirRequest) (*filesystemv1beta1.RmdirResponse, error) {
	if err := checkPathContext("Rmdir", req.Context); err != nil {
		return nil, err
	}
	return &filesystemv1beta1.RmdirResponse{}, h.ops.Rmdir(ctx, req.Path, req.Force)
}

func (h oldFilesystemHandler) LinkPath(ctx context.Context,
	req *filesystemv1beta1.LinkPathRequest) (*filesystemv1beta1.LinkPathResponse, error) {
	return &filesystemv1beta1.LinkPathResponse{}, h.ops.CreateSymlink(ctx, req.SourcePath, req.TargetPath)
}

func (h oldFilesystemHandler) IsMountPoint(ctx context.Context,
	req *filesystemv1beta1.IsMountPointRequest) (*filesystemv1beta1.IsMountPointResponse, error) {
	isMountPoint, err := h.ops.IsSymlink(ctx, req.Path)
	return &filesystemv1beta1.IsMountPointResponse{IsMountPoint: isMountPoint}, err
}

// checkPathContext refuses a path context that the contract doesn't know. A known
// one has no further effect: all allowed directories are open to every context.
func checkPathContext(op string, pathContext filesystemv1beta1.PathContext) error {
	if _, ok := filesystemv1beta1.PathContext_name[int32(pathContext)]; !ok {
		return &csiproxy.Error{
			Op:     op,
			Kind:   csiproxy.ErrInvalidArgument,
			Detail: fmt.Sprintf("unknown path context %d", pathContext),
		}
	}
	return nil
}
