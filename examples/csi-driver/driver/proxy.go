// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Proxy is CSI Proxy on the driver's node: the methods that the driver uses.
type Proxy struct {
	Storage Storage
	// Ready returns csiproxy.ErrUnavailable while CSI Proxy isn't served.
	Ready func(ctx context.Context) error
}

// OverPipe is CSI Proxy as a daemon on the node, for a driver in a container that can't do
// these operations itself.
func OverPipe(c *client.Client) Proxy {
	return Proxy{c.Storage, c.Storage.Ready}
}

// InProcess is CSI Proxy as a library, for a driver that can do these operations itself,
// such as one in a HostProcess container.
func InProcess(n *node.Node) Proxy {
	ready := func(context.Context) error { return nil }
	return Proxy{n.Storage, ready}
}

// Storage has the calls of the storage API that the driver uses.
type Storage interface {
	StageVolume(ctx context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error)
	UnstageVolume(ctx context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error)
	StageShare(ctx context.Context, r storage.StageShareRequest) error
	UnstageShare(ctx context.Context, r storage.UnstageShareRequest) (storage.UnstagedShare, error)
	PublishVolume(ctx context.Context, stagingPath, targetPath string) error
	UnpublishVolume(ctx context.Context, targetPath string) error
	ExpandVolume(ctx context.Context, r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error)
	GetVolume(ctx context.Context, path string) (storage.Volume, error)
}
