// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"iter"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/filesystem"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/system"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Bounded returns the operations for callers in process: each returns when its caller's context
// ends, also while Windows doesn't answer. See [operation.Run]. The daemon bounds its calls itself.
func (o Operations) Bounded() Operations {
	return Operations{
		Disk:       boundedDisk{o.Disk},
		Volume:     boundedVolume{o.Volume},
		Filesystem: boundedFilesystem{o.Filesystem},
		SMB:        boundedSMB{o.SMB},
		ISCSI:      boundedISCSI{o.ISCSI},
		System:     boundedSystem{o.System},
		Storage:    boundedStorage{o.Storage},
	}
}

func run(ctx context.Context, name string, f func(context.Context) error) error {
	_, err := operation.Run(ctx, name, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

func do[A any](ctx context.Context, name string, f func(context.Context, A) error, a A) error {
	return run(ctx, name, func(ctx context.Context) error { return f(ctx, a) })
}

func get[A, T any](ctx context.Context, name string, f func(context.Context, A) (T, error), a A) (T, error) {
	return operation.Run(ctx, name, func(ctx context.Context) (T, error) { return f(ctx, a) })
}

type boundedDisk struct{ ops disk.Operations }

func (b boundedDisk) ListDiskLocations(ctx context.Context) (map[disk.Number]disk.Location, error) {
	return operation.Run(ctx, "ListDiskLocations", b.ops.ListDiskLocations)
}

func (b boundedDisk) ListDiskIDs(ctx context.Context) (map[disk.Number]disk.IDs, error) {
	return operation.Run(ctx, "ListDiskIDs", b.ops.ListDiskIDs)
}

func (b boundedDisk) FindDiskByPage83(ctx context.Context, page83 string) (disk.Number, error) {
	return get(ctx, "FindDiskByPage83", b.ops.FindDiskByPage83, page83)
}

func (b boundedDisk) PartitionDisk(ctx context.Context, n disk.Number) error {
	return do(ctx, "PartitionDisk", b.ops.PartitionDisk, n)
}

func (b boundedDisk) Rescan(ctx context.Context) error {
	return run(ctx, "Rescan", b.ops.Rescan)
}

func (b boundedDisk) GetDiskStats(ctx context.Context, n disk.Number) (disk.Stats, error) {
	return get(ctx, "GetDiskStats", b.ops.GetDiskStats, n)
}

func (b boundedDisk) SetDiskState(ctx context.Context, n disk.Number, online bool) error {
	return run(ctx, "SetDiskState", func(ctx context.Context) error {
		return b.ops.SetDiskState(ctx, n, online)
	})
}

func (b boundedDisk) GetDiskState(ctx context.Context, n disk.Number) (online bool, err error) {
	return get(ctx, "GetDiskState", b.ops.GetDiskState, n)
}

type boundedVolume struct{ ops volume.Operations }

func (b boundedVolume) ListVolumesOnDisk(ctx context.Context, n disk.Number, partition uint32) ([]volume.ID, error) {
	return operation.Run(ctx, "ListVolumesOnDisk", func(ctx context.Context) ([]volume.ID, error) {
		return b.ops.ListVolumesOnDisk(ctx, n, partition)
	})
}

func (b boundedVolume) DataVolumeOfDisk(ctx context.Context, n disk.Number) (volume.ID, error) {
	return get(ctx, "DataVolumeOfDisk", b.ops.DataVolumeOfDisk, n)
}

func (b boundedVolume) MountVolume(ctx context.Context, id volume.ID, targetPath string) error {
	return run(ctx, "MountVolume", func(ctx context.Context) error {
		return b.ops.MountVolume(ctx, id, targetPath)
	})
}

func (b boundedVolume) UnmountVolume(ctx context.Context, id volume.ID, targetPath string) error {
	return run(ctx, "UnmountVolume", func(ctx context.Context) error {
		return b.ops.UnmountVolume(ctx, id, targetPath)
	})
}

func (b boundedVolume) IsVolumeFormatted(ctx context.Context, id volume.ID) (formatted bool, err error) {
	return get(ctx, "IsVolumeFormatted", b.ops.IsVolumeFormatted, id)
}

func (b boundedVolume) FormatVolume(ctx context.Context, id volume.ID) error {
	return do(ctx, "FormatVolume", b.ops.FormatVolume, id)
}

func (b boundedVolume) ResizeVolume(ctx context.Context, id volume.ID, sizeBytes int64) error {
	return run(ctx, "ResizeVolume", func(ctx context.Context) error {
		return b.ops.ResizeVolume(ctx, id, sizeBytes)
	})
}

func (b boundedVolume) GetVolumeStats(ctx context.Context, id volume.ID) (volume.Stats, error) {
	return get(ctx, "GetVolumeStats", b.ops.GetVolumeStats, id)
}

func (b boundedVolume) GetDiskNumberFromVolumeID(ctx context.Context, id volume.ID) (disk.Number, error) {
	return get(ctx, "GetDiskNumberFromVolumeID", b.ops.GetDiskNumberFromVolumeID, id)
}

func (b boundedVolume) GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (volume.ID, error) {
	return get(ctx, "GetVolumeIDFromTargetPath", b.ops.GetVolumeIDFromTargetPath, targetPath)
}

func (b boundedVolume) GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (volume.ID, error) {
	return get(ctx, "GetClosestVolumeIDFromTargetPath", b.ops.GetClosestVolumeIDFromTargetPath, targetPath)
}

func (b boundedVolume) WriteVolumeCache(ctx context.Context, id volume.ID) error {
	return do(ctx, "WriteVolumeCache", b.ops.WriteVolumeCache, id)
}

type boundedFilesystem struct{ ops filesystem.Operations }

func (b boundedFilesystem) PathExists(ctx context.Context, path string) (bool, error) {
	return get(ctx, "PathExists", b.ops.PathExists, path)
}

func (b boundedFilesystem) Mkdir(ctx context.Context, path string) error {
	return do(ctx, "Mkdir", b.ops.Mkdir, path)
}

func (b boundedFilesystem) Rmdir(ctx context.Context, path string, force bool) error {
	return run(ctx, "Rmdir", func(ctx context.Context) error {
		return b.ops.Rmdir(ctx, path, force)
	})
}

func (b boundedFilesystem) RmdirContents(ctx context.Context, path string) error {
	return do(ctx, "RmdirContents", b.ops.RmdirContents, path)
}

func (b boundedFilesystem) CreateSymlink(ctx context.Context, sourcePath string, targetPath string) error {
	return run(ctx, "CreateSymlink", func(ctx context.Context) error {
		return b.ops.CreateSymlink(ctx, sourcePath, targetPath)
	})
}

func (b boundedFilesystem) IsSymlink(ctx context.Context, path string) (bool, error) {
	return get(ctx, "IsSymlink", b.ops.IsSymlink, path)
}

type boundedSMB struct{ ops smb.Operations }

func (b boundedSMB) NewSMBGlobalMapping(ctx context.Context,
	remotePath, localPath string, c smb.Credentials) error {
	return run(ctx, "NewSMBGlobalMapping", func(ctx context.Context) error {
		return b.ops.NewSMBGlobalMapping(ctx, remotePath, localPath, c)
	})
}

func (b boundedSMB) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return do(ctx, "RemoveSMBGlobalMapping", b.ops.RemoveSMBGlobalMapping, remotePath)
}

type boundedISCSI struct{ ops iscsi.Operations }

func (b boundedISCSI) AddTargetPortal(ctx context.Context, p iscsi.Portal) error {
	return do(ctx, "AddTargetPortal", b.ops.AddTargetPortal, p)
}

func (b boundedISCSI) DiscoverTargetPortal(ctx context.Context, p iscsi.Portal) ([]iscsi.IQN, error) {
	return get(ctx, "DiscoverTargetPortal", b.ops.DiscoverTargetPortal, p)
}

func (b boundedISCSI) ListTargetPortals(ctx context.Context) ([]iscsi.Portal, error) {
	return operation.Run(ctx, "ListTargetPortals", b.ops.ListTargetPortals)
}

func (b boundedISCSI) RemoveTargetPortal(ctx context.Context, p iscsi.Portal) error {
	return do(ctx, "RemoveTargetPortal", b.ops.RemoveTargetPortal, p)
}

func (b boundedISCSI) ConnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN, a iscsi.Authentication) error {
	return run(ctx, "ConnectTarget", func(ctx context.Context) error {
		return b.ops.ConnectTarget(ctx, p, iqn, a)
	})
}

func (b boundedISCSI) DisconnectTarget(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) error {
	return run(ctx, "DisconnectTarget", func(ctx context.Context) error {
		return b.ops.DisconnectTarget(ctx, p, iqn)
	})
}

func (b boundedISCSI) GetTargetDisks(ctx context.Context, p iscsi.Portal, iqn iscsi.IQN) ([]disk.Number, error) {
	return operation.Run(ctx, "GetTargetDisks", func(ctx context.Context) ([]disk.Number, error) {
		return b.ops.GetTargetDisks(ctx, p, iqn)
	})
}

func (b boundedISCSI) SetMutualCHAPSecret(ctx context.Context, s secret.Text) error {
	return do(ctx, "SetMutualCHAPSecret", b.ops.SetMutualCHAPSecret, s)
}

type boundedSystem struct{ ops system.Operations }

func (b boundedSystem) GetBIOSSerialNumber(ctx context.Context) (string, error) {
	return operation.Run(ctx, "GetBIOSSerialNumber", b.ops.GetBIOSSerialNumber)
}

func (b boundedSystem) GetService(ctx context.Context, name string) (system.Service, error) {
	return get(ctx, "GetService", b.ops.GetService, name)
}

func (b boundedSystem) StartService(ctx context.Context, name string) error {
	return do(ctx, "StartService", b.ops.StartService, name)
}

func (b boundedSystem) StopService(ctx context.Context, name string, force bool) error {
	return run(ctx, "StopService", func(ctx context.Context) error {
		return b.ops.StopService(ctx, name, force)
	})
}

type boundedStorage struct{ ops storage.Operations }

func (b boundedStorage) ListDisks(ctx context.Context, s storage.Selector) ([]storage.Disk, error) {
	return get(ctx, "ListDisks", b.ops.ListDisks, s)
}

func (b boundedStorage) StageVolume(ctx context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	return get(ctx, "StageVolume", b.ops.StageVolume, r)
}

func (b boundedStorage) UnstageVolume(ctx context.Context,
	r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	return get(ctx, "UnstageVolume", b.ops.UnstageVolume, r)
}

func (b boundedStorage) PublishVolume(ctx context.Context, stagingPath string, targetPath string) error {
	return run(ctx, "PublishVolume", func(ctx context.Context) error {
		return b.ops.PublishVolume(ctx, stagingPath, targetPath)
	})
}

func (b boundedStorage) UnpublishVolume(ctx context.Context, targetPath string) error {
	return do(ctx, "UnpublishVolume", b.ops.UnpublishVolume, targetPath)
}

func (b boundedStorage) ExpandVolume(ctx context.Context,
	r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error) {
	return get(ctx, "ExpandVolume", b.ops.ExpandVolume, r)
}

func (b boundedStorage) GetVolume(ctx context.Context, path string) (storage.Volume, error) {
	return get(ctx, "GetVolume", b.ops.GetVolume, path)
}

func (b boundedStorage) ListVolumes(ctx context.Context) (storage.VolumeList, error) {
	return operation.Run(ctx, "ListVolumes", b.ops.ListVolumes)
}

func (b boundedStorage) StageShare(ctx context.Context, r storage.StageShareRequest) error {
	return do(ctx, "StageShare", b.ops.StageShare, r)
}

func (b boundedStorage) UnstageShare(ctx context.Context,
	r storage.UnstageShareRequest) (storage.UnstagedShare, error) {
	return get(ctx, "UnstageShare", b.ops.UnstageShare, r)
}

func (b boundedStorage) CleanUp(ctx context.Context, remove bool) (storage.Leftovers, error) {
	return get(ctx, "CleanUp", b.ops.CleanUp, remove)
}

func (b boundedStorage) CheckVolume(ctx context.Context, r storage.CheckVolumeRequest) (storage.CheckedVolume, error) {
	return get(ctx, "CheckVolume", b.ops.CheckVolume, r)
}

// WatchDisks bounds each of its lists itself.
func (b boundedStorage) WatchDisks(ctx context.Context, s storage.Selector) iter.Seq2[storage.DiskChanges, error] {
	return b.ops.WatchDisks(ctx, s)
}
