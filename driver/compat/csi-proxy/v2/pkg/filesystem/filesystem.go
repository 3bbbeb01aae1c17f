// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filesystem has the published library's methods for the node's directories and links,
// over CSI Proxy's operations.
package filesystem

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	api "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/utils"
)

// Interface is the node's directories and links.
type Interface interface {
	// CreateSymlink makes TargetPath a link to SourcePath.
	CreateSymlink(context.Context, *CreateSymlinkRequest) (*CreateSymlinkResponse, error)
	// IsSymlink reports whether a path is a link to something that is there.
	IsSymlink(context.Context, *IsSymlinkRequest) (*IsSymlinkResponse, error)
	// Mkdir makes a directory and those above it.
	Mkdir(context.Context, *MkdirRequest) (*MkdirResponse, error)
	// PathExists reports whether there is anything at a path.
	PathExists(context.Context, *PathExistsRequest) (*PathExistsResponse, error)
	// PathValid reports whether what is at a path can be used.
	PathValid(context.Context, *PathValidRequest) (*PathValidResponse, error)
	// Rmdir removes a directory or link; with Force, all that is in a directory.
	Rmdir(context.Context, *RmdirRequest) (*RmdirResponse, error)
	// RmdirContents removes all that is in a directory.
	RmdirContents(context.Context, *RmdirContentsRequest) (*RmdirContentsResponse, error)
}

var absolute = regexp.MustCompile(`^[A-Za-z]:\\$`)

// ValidatePathWindows refuses a text that is no absolute path with a drive letter. The operations
// check paths themselves, and more of them.
func ValidatePathWindows(path string) error {
	drive, rest := path[:min(len(path), 3)], path[min(len(path), 3):]
	switch {
	case len(path) > utils.MaxPathLengthWindows:
		return fmt.Errorf("the path has %d characters; at most %d are allowed", len(path), utils.MaxPathLengthWindows)
	case !absolute.MatchString(drive):
		return fmt.Errorf("the path %q isn't absolute, such as C:\\dir", path)
	case strings.ContainsAny(rest, `"/:?*|`) || strings.Contains(rest, ".."):
		return fmt.Errorf("the path %q has characters that aren't allowed", path)
	}
	return nil
}

// Filesystem implements [Interface] over a HostAPI.
type Filesystem struct{ hostAPI api.HostAPI }

var _ Interface = (*Filesystem)(nil)

// New returns the node's directories and links. The error is always nil.
func New(hostAPI api.HostAPI) (*Filesystem, error) { return &Filesystem{hostAPI}, nil }

func (f *Filesystem) host(ctx context.Context) api.HostAPI { return host.WithContext(ctx, f.hostAPI) }

func (f *Filesystem) CreateSymlink(ctx context.Context, request *CreateSymlinkRequest) (*CreateSymlinkResponse, error) {
	return &CreateSymlinkResponse{}, f.host(ctx).CreateSymlink(request.SourcePath, request.TargetPath)
}

func (f *Filesystem) IsSymlink(ctx context.Context, request *IsSymlinkRequest) (*IsSymlinkResponse, error) {
	isSymlink, err := f.host(ctx).IsSymlink(request.Path)
	return &IsSymlinkResponse{isSymlink}, err
}

func (f *Filesystem) Mkdir(ctx context.Context, request *MkdirRequest) (*MkdirResponse, error) {
	return &MkdirResponse{}, f.host(ctx).Mkdir(request.Path)
}

func (f *Filesystem) PathExists(ctx context.Context, request *PathExistsRequest) (*PathExistsResponse, error) {
	exists, err := f.host(ctx).PathExists(request.Path)
	return &PathExistsResponse{exists}, err
}

func (f *Filesystem) PathValid(ctx context.Context, request *PathValidRequest) (*PathValidResponse, error) {
	valid, err := f.host(ctx).PathValid(request.Path)
	return &PathValidResponse{valid}, err
}

func (f *Filesystem) Rmdir(ctx context.Context, request *RmdirRequest) (*RmdirResponse, error) {
	return &RmdirResponse{}, f.host(ctx).Rmdir(request.Path, request.Force)
}

func (f *Filesystem) RmdirContents(ctx context.Context, request *RmdirContentsRequest) (*RmdirContentsResponse, error) {
	return &RmdirContentsResponse{}, f.host(ctx).RmdirContents(request.Path)
}
