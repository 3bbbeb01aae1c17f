// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/node/disk"
	"github.com/csi-proxy/csi-proxy/node/filesystem"
	"github.com/csi-proxy/csi-proxy/node/iscsi"
	"github.com/csi-proxy/csi-proxy/node/smb"
	"github.com/csi-proxy/csi-proxy/node/volume"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Proxy is CSI Proxy on the driver's node. A driver asks for the operations anew in
// each of its own calls: over the pipe, another version may be served by then.
type Proxy interface {
	Storage(context.Context) (Storage, error)
	SMB(context.Context) (SMB, error)
	ISCSI(context.Context) (ISCSI, error)
}

// Storage is what the driver uses of the operations on disks, volumes and files.
type Storage interface {
	ListDiskIDs(ctx context.Context) (map[disk.Number]disk.IDs, error)
	Rescan(ctx context.Context) error
	GetDiskState(ctx context.Context, n disk.Number) (online bool, err error)
	SetDiskState(ctx context.Context, n disk.Number, online bool) error
	GetDiskStats(ctx context.Context, n disk.Number) (disk.Stats, error)
	PartitionDisk(ctx context.Context, n disk.Number) error

	DataVolumeOfDisk(ctx context.Context, n disk.Number) (volume.ID, error)
	GetDiskNumberFromVolumeID(ctx context.Context, id volume.ID) (disk.Number, error)
	GetVolumeIDFromTargetPath(ctx context.Context, path string) (volume.ID, error)
	IsVolumeFormatted(ctx context.Context, id volume.ID) (bool, error)
	FormatVolume(ctx context.Context, id volume.ID) error
	MountVolume(ctx context.Context, id volume.ID, path string) error
	UnmountVolume(ctx context.Context, id volume.ID, path string) error
	ResizeVolume(ctx context.Context, id volume.ID, sizeBytes int64) error
	GetVolumeStats(ctx context.Context, id volume.ID) (volume.Stats, error)

	Mkdir(ctx context.Context, path string) error
	Rmdir(ctx context.Context, path string, force bool) error
	CreateSymlink(ctx context.Context, sourcePath, targetPath string) error
	IsSymlink(ctx context.Context, path string) (bool, error)
}

// SMB is what the driver uses of the operations on SMB mappings.
type SMB interface {
	NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c smb.Credentials) error
	RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
}

// ISCSI is what the driver uses of the operations of the iSCSI initiator.
type ISCSI interface {
	AddTargetPortal(ctx context.Context, p iscsi.Portal) error
	DiscoverTargetPortal(ctx context.Context, p iscsi.Portal) ([]iscsi.IQN, error)
	ConnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error
	DisconnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) error
	GetTargetDisks(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error)
	SetMutualCHAPSecret(ctx context.Context, s secret.Text) error
}

// OverPipe is the CSI Proxy that runs beside a driver in a container, which can't
// do these things itself.
func OverPipe(c *client.Client) Proxy { return overPipe{c} }

type overPipe struct{ client *client.Client }

func (p overPipe) Storage(ctx context.Context) (Storage, error) {
	disks, err := p.client.Disk(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := p.client.Volume(ctx)
	if err != nil {
		return nil, err
	}
	files, err := p.client.Filesystem(ctx)
	return struct {
		*client.Disk
		*client.Volume
		*client.Filesystem
	}{disks, volumes, files}, err
}

func (p overPipe) SMB(ctx context.Context) (SMB, error)     { return p.client.SMB(ctx) }
func (p overPipe) ISCSI(ctx context.Context) (ISCSI, error) { return p.client.ISCSI(ctx) }

// InProcess is CSI Proxy as a library, for a driver that may do these things
// itself, as one in a HostProcess container may.
func InProcess(n *node.Node) Proxy { return inProcess{n} }

type inProcess struct{ node *node.Node }

func (p inProcess) Storage(context.Context) (Storage, error) {
	return struct {
		*disk.Disks
		*volume.Volumes
		*filesystem.Filesystem
	}{p.node.Disk, p.node.Volume, p.node.Filesystem}, nil
}

func (p inProcess) SMB(context.Context) (SMB, error)     { return p.node.SMB, nil }
func (p inProcess) ISCSI(context.Context) (ISCSI, error) { return p.node.ISCSI, nil }
