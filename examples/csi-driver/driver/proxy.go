// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Proxy is CSI Proxy on the driver's node: the methods of each API group that the driver
// uses.
type Proxy struct {
	Disk       Disk
	Volume     Volume
	Filesystem Filesystem
	SMB        SMB
	ISCSI      ISCSI
	// Ready returns csiproxy.ErrUnavailable while CSI Proxy isn't served.
	Ready func(ctx context.Context) error
}

// OverPipe is CSI Proxy as a daemon on the node, for a driver in a container that can't do
// these operations itself.
func OverPipe(c *client.Client) Proxy {
	return Proxy{c.Disk, c.Volume, c.Filesystem, c.SMB, c.ISCSI, c.Ready}
}

// InProcess is CSI Proxy as a library, for a driver that can do these operations itself,
// such as one in a HostProcess container.
func InProcess(n *node.Node) Proxy {
	ready := func(context.Context) error { return nil }
	return Proxy{n.Disk, n.Volume, n.Filesystem, n.SMB, n.ISCSI, ready}
}

// Disk has the operations on disks that the driver uses.
type Disk interface {
	ListDiskIDs(ctx context.Context) (map[disk.Number]disk.IDs, error)
	Rescan(ctx context.Context) error
	SetDiskState(ctx context.Context, n disk.Number, online bool) error
	GetDiskStats(ctx context.Context, n disk.Number) (disk.Stats, error)
	PartitionDisk(ctx context.Context, n disk.Number) error
}

// Volume has the operations on volumes that the driver uses.
type Volume interface {
	DataVolumeOfDisk(ctx context.Context, n disk.Number) (volume.ID, error)
	GetDiskNumberFromVolumeID(ctx context.Context, id volume.ID) (disk.Number, error)
	GetVolumeIDFromTargetPath(ctx context.Context, path string) (volume.ID, error)
	IsVolumeFormatted(ctx context.Context, id volume.ID) (bool, error)
	FormatVolume(ctx context.Context, id volume.ID) error
	MountVolume(ctx context.Context, id volume.ID, path string) error
	UnmountVolume(ctx context.Context, id volume.ID, path string) error
	ResizeVolume(ctx context.Context, id volume.ID, sizeBytes int64) error
	GetVolumeStats(ctx context.Context, id volume.ID) (volume.Stats, error)
}

// Filesystem has the operations on directories and links that the driver uses.
type Filesystem interface {
	Mkdir(ctx context.Context, path string) error
	Rmdir(ctx context.Context, path string, force bool) error
	CreateSymlink(ctx context.Context, sourcePath, targetPath string) error
	IsSymlink(ctx context.Context, path string) (bool, error)
}

// SMB has the operations on SMB mappings that the driver uses.
type SMB interface {
	NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c smb.Credentials) error
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
}

// ISCSI has the operations of the iSCSI initiator that the driver uses.
type ISCSI interface {
	AddTargetPortal(ctx context.Context, p iscsi.Portal) error
	DiscoverTargetPortal(ctx context.Context, p iscsi.Portal) ([]iscsi.IQN, error)
	ConnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error
	DisconnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) error
	GetTargetDisks(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error)
	SetMutualCHAPSecret(ctx context.Context, s secret.Text) error
}
