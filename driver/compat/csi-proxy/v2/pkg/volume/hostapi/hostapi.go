// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the host side of package volume, over CSI Proxy's operations.
package api

import (
	"context"
	"regexp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/published"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

// VolumeRegexp finds the name of a volume in its path.
var VolumeRegexp = regexp.MustCompile(`Volume\{[\w-]*\}`)

// HostAPI is what package volume needs of the node.
type HostAPI interface {
	// ListVolumesOnDisk lists the volumes of a disk, or of one partition if that isn't 0.
	ListVolumesOnDisk(diskNumber uint32, partitionNumber uint32) (volumeIDs []string, err error)
	// MountVolume mounts a volume at a directory.
	MountVolume(volumeID, targetPath string) error
	// UnmountVolume writes a volume's cache out and unmounts it.
	UnmountVolume(volumeID, targetPath string) error
	// IsVolumeFormatted reports whether a volume has a file system.
	IsVolumeFormatted(volumeID string) (bool, error)
	// FormatVolume formats a raw volume with NTFS.
	FormatVolume(volumeID string) error
	// ResizeVolume grows a volume; 0 is as far as the disk allows.
	ResizeVolume(volumeID string, sizeBytes int64) error
	// GetVolumeStats returns the size of a volume and what is in use, in bytes.
	GetVolumeStats(volumeID string) (int64, int64, error)
	// GetDiskNumberFromVolumeID returns the disk that a volume is on.
	GetDiskNumberFromVolumeID(volumeID string) (uint32, error)
	// GetVolumeIDFromTargetPath returns the volume that is mounted at a path.
	GetVolumeIDFromTargetPath(targetPath string) (string, error)
	// WriteVolumeCache writes a volume's cache out.
	WriteVolumeCache(volumeID string) error
	// GetClosestVolumeIDFromTargetPath returns the volume that a path is on.
	GetClosestVolumeIDFromTargetPath(targetPath string) (string, error)
}

type volumeAPI struct{ in host.API }

// New returns the node's volumes.
func New() HostAPI { return volumeAPI{} }

// WithContext returns the same volumes, for calls that end with ctx.
func (volumeAPI) WithContext(ctx context.Context) HostAPI { return volumeAPI{host.In(ctx)} }

func (v volumeAPI) ListVolumesOnDisk(diskNumber, partitionNumber uint32) ([]string, error) {
	ids, err := host.Get(v.in, func(ctx context.Context, n *node.Node) ([]csiproxy.VolumeID, error) {
		return n.Volume.ListVolumesOnDisk(ctx, csiproxy.DiskNumber(diskNumber), partitionNumber)
	})
	return host.Strings(ids), err
}

func (v volumeAPI) MountVolume(volumeID, targetPath string) error {
	return host.Do(v.in, func(ctx context.Context, n *node.Node) error {
		return n.Volume.MountVolume(ctx, csiproxy.VolumeID(volumeID), targetPath)
	})
}

func (v volumeAPI) UnmountVolume(volumeID, targetPath string) error {
	return host.Do(v.in, func(ctx context.Context, n *node.Node) error {
		return n.Volume.UnmountVolume(ctx, csiproxy.VolumeID(volumeID), targetPath)
	})
}

func (v volumeAPI) IsVolumeFormatted(volumeID string) (bool, error) {
	return host.Get(v.in, func(ctx context.Context, n *node.Node) (bool, error) {
		return n.Volume.IsVolumeFormatted(ctx, csiproxy.VolumeID(volumeID))
	})
}

func (v volumeAPI) FormatVolume(volumeID string) error {
	return host.Do(v.in, func(ctx context.Context, n *node.Node) error {
		return n.Volume.FormatVolume(ctx, csiproxy.VolumeID(volumeID))
	})
}

func (v volumeAPI) ResizeVolume(volumeID string, sizeBytes int64) error {
	return host.Do(v.in, func(ctx context.Context, n *node.Node) error {
		return n.Volume.ResizeVolume(ctx, csiproxy.VolumeID(volumeID), sizeBytes)
	})
}

func (v volumeAPI) GetVolumeStats(volumeID string) (totalBytes, usedBytes int64, err error) {
	stats, err := host.Get(v.in, func(ctx context.Context, n *node.Node) (published.VolumeStats, error) {
		return n.Volume.GetVolumeStats(ctx, csiproxy.VolumeID(volumeID))
	})
	return stats.SizeBytes, stats.UsedBytes, err
}

func (v volumeAPI) GetDiskNumberFromVolumeID(volumeID string) (uint32, error) {
	number, err := host.Get(v.in, func(ctx context.Context, n *node.Node) (csiproxy.DiskNumber, error) {
		return n.Volume.GetDiskNumberFromVolumeID(ctx, csiproxy.VolumeID(volumeID))
	})
	return uint32(number), err
}

func (v volumeAPI) GetVolumeIDFromTargetPath(targetPath string) (string, error) {
	id, err := host.Get(v.in, func(ctx context.Context, n *node.Node) (csiproxy.VolumeID, error) {
		return n.Volume.GetVolumeIDFromTargetPath(ctx, targetPath)
	})
	return string(id), err
}

func (v volumeAPI) WriteVolumeCache(volumeID string) error {
	return host.Do(v.in, func(ctx context.Context, n *node.Node) error {
		return n.Volume.WriteVolumeCache(ctx, csiproxy.VolumeID(volumeID))
	})
}

func (v volumeAPI) GetClosestVolumeIDFromTargetPath(targetPath string) (string, error) {
	id, err := host.Get(v.in, func(ctx context.Context, n *node.Node) (csiproxy.VolumeID, error) {
		return n.Volume.GetClosestVolumeIDFromTargetPath(ctx, targetPath)
	})
	return string(id), err
}
