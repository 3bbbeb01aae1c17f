// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the host side of package filesystem, over CSI Proxy's operations.
package api

import (
	"context"
	"strings"

	"github.com/csi-proxy/csi-proxy/node"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

// HostAPI is what package filesystem needs of the node.
type HostAPI interface {
	PathExists(path string) (bool, error)
	PathValid(path string) (bool, error)
	Mkdir(path string) error
	Rmdir(path string, force bool) error
	RmdirContents(path string) error
	CreateSymlink(oldname string, newname string) error
	IsSymlink(path string) (bool, error)
}

type filesystemAPI struct{ in host.API }

// New returns the node's directories and links.
func New() HostAPI { return filesystemAPI{} }

// WithContext returns the same, for calls that end with ctx.
func (filesystemAPI) WithContext(ctx context.Context) HostAPI { return filesystemAPI{host.In(ctx)} }

func (f filesystemAPI) PathExists(path string) (bool, error) {
	return host.Get(f.in, func(ctx context.Context, n *node.Node) (bool, error) {
		return n.Filesystem.PathExists(ctx, path)
	})
}

// PathValid reports whether what is at a path can be used: for a share, whether it is mapped
// and its server answers and takes the user of the mapping.
func (f filesystemAPI) PathValid(path string) (valid bool, err error) {
	if strings.HasPrefix(path, `\\`) {
		return host.ShareWorks(f.in, path)
	}
	return f.PathExists(path)
}

func (f filesystemAPI) Mkdir(path string) error {
	return host.Do(f.in, func(ctx context.Context, n *node.Node) error { return n.Filesystem.Mkdir(ctx, path) })
}

func (f filesystemAPI) Rmdir(path string, force bool) error {
	return host.Do(f.in, func(ctx context.Context, n *node.Node) error { return n.Filesystem.Rmdir(ctx, path, force) })
}

func (f filesystemAPI) RmdirContents(path string) error {
	return host.Do(f.in, func(ctx context.Context, n *node.Node) error { return n.Filesystem.RmdirContents(ctx, path) })
}

// CreateSymlink makes newname a link to oldname.
func (f filesystemAPI) CreateSymlink(oldname, newname string) error {
	return host.Do(f.in, func(ctx context.Context, n *node.Node) error {
		return n.Filesystem.CreateSymlink(ctx, oldname, newname)
	})
}

func (f filesystemAPI) IsSymlink(path string) (bool, error) {
	return host.Get(f.in, func(ctx context.Context, n *node.Node) (bool, error) {
		return n.Filesystem.IsSymlink(ctx, path)
	})
}
