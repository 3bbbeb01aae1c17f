// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/node/disk"
	"github.com/csi-proxy/csi-proxy/node/filesystem"
	"github.com/csi-proxy/csi-proxy/node/iscsi"
	"github.com/csi-proxy/csi-proxy/node/smb"
	"github.com/csi-proxy/csi-proxy/node/system"
	"github.com/csi-proxy/csi-proxy/node/volume"
	"github.com/csi-proxy/csi-proxy/secret"
)

// What a driver may declare to have its node's operations in process or over the
// pipe.
type (
	disks interface {
		ListDiskLocations(ctx context.Context) (map[disk.Number]disk.Location, error)
		ListDiskIDs(ctx context.Context) (map[disk.Number]disk.IDs, error)
		FindDiskByPage83(ctx context.Context, page83 string) (disk.Number, error)
		PartitionDisk(ctx context.Context, n disk.Number) error
		Rescan(ctx context.Context) error
		GetDiskStats(ctx context.Context, n disk.Number) (disk.Stats, error)
		SetDiskState(ctx context.Context, n disk.Number, online bool) error
		GetDiskState(ctx context.Context, n disk.Number) (online bool, err error)
	}
	volumes interface {
		ListVolumesOnDisk(ctx context.Context, n disk.Number, partition uint32) ([]volume.ID, error)
		DataVolumeOfDisk(ctx context.Context, n disk.Number) (volume.ID, error)
		MountVolume(ctx context.Context, id volume.ID, targetPath string) error
		UnmountVolume(ctx context.Context, id volume.ID, targetPath string) error
		IsVolumeFormatted(ctx context.Context, id volume.ID) (bool, error)
		FormatVolume(ctx context.Context, id volume.ID) error
		ResizeVolume(ctx context.Context, id volume.ID, sizeBytes int64) error
		GetVolumeStats(ctx context.Context, id volume.ID) (volume.Stats, error)
		GetDiskNumberFromVolumeID(ctx context.Context, id volume.ID) (disk.Number, error)
		GetVolumeIDFromTargetPath(ctx context.Context, path string) (volume.ID, error)
		GetClosestVolumeIDFromTargetPath(ctx context.Context, path string) (volume.ID, error)
		WriteVolumeCache(ctx context.Context, id volume.ID) error
	}
	files interface {
		PathExists(ctx context.Context, path string) (bool, error)
		Mkdir(ctx context.Context, path string) error
		Rmdir(ctx context.Context, path string, force bool) error
		RmdirContents(ctx context.Context, path string) error
		CreateSymlink(ctx context.Context, sourcePath, targetPath string) error
		IsSymlink(ctx context.Context, path string) (bool, error)
	}
	mappings interface {
		NewSMBGlobalMapping(ctx context.Context, remotePath, localPath string, c smb.Credentials) error
		RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error
	}
	initiator interface {
		AddTargetPortal(ctx context.Context, p iscsi.Portal) error
		DiscoverTargetPortal(ctx context.Context, p iscsi.Portal) ([]iscsi.IQN, error)
		ListTargetPortals(ctx context.Context) ([]iscsi.Portal, error)
		RemoveTargetPortal(ctx context.Context, p iscsi.Portal) error
		ConnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error
		DisconnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) error
		GetTargetDisks(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error)
		SetMutualCHAPSecret(ctx context.Context, s secret.Text) error
	}
	machine interface {
		GetBIOSSerialNumber(ctx context.Context) (string, error)
		GetService(ctx context.Context, name string) (system.Service, error)
		StartService(ctx context.Context, name string) error
		StopService(ctx context.Context, name string, force bool) error
	}
)

// A driver's interfaces are filled from the same fields.
func TestClientHasTheShapeOfNode(t *testing.T) {
	c := reflect.TypeFor[client.Client]()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[node.Node]()) {
		if _, ok := c.FieldByName(field.Name); field.IsExported() && !ok {
			t.Errorf("the client has no %s", field.Name)
		}
	}
}

var (
	_ disks   = (*disk.Disks)(nil)
	_ disks   = (*client.Disk)(nil)
	_ volumes = (*volume.Volumes)(nil)
	_ volumes = (*client.Volume)(nil)
	_ files   = (*filesystem.Filesystem)(nil)
	_ files   = (*client.Filesystem)(nil)

	_ mappings  = (*smb.Mappings)(nil)
	_ mappings  = (*client.SMB)(nil)
	_ initiator = (*iscsi.Initiator)(nil)
	_ initiator = (*client.ISCSI)(nil)
	_ machine   = (*system.Machine)(nil)
	_ machine   = (*client.System)(nil)
)
