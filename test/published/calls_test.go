// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
	filesystemv1 "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
)

// The calls of v1 in the words of the drivers' sequences.

func (c clients) pathExists(ctx context.Context, path string) (bool, error) {
	resp, err := c.filesystem.PathExists(ctx, &filesystemv1.PathExistsRequest{Path: path})
	return resp.GetExists(), err
}

// ensureDir makes a directory unless the path exists.
func (c clients) ensureDir(ctx context.Context, path string) error {
	exists, err := c.pathExists(ctx, path)
	if err != nil || exists {
		return err
	}
	_, err = c.filesystem.Mkdir(ctx, &filesystemv1.MkdirRequest{Path: path})
	return err
}

// clear removes a path if it exists.
func (c clients) clear(ctx context.Context, path string) error {
	exists, err := c.pathExists(ctx, path)
	if err != nil || !exists {
		return err
	}
	return c.removeDir(ctx, path, true)
}

func (c clients) removeDir(ctx context.Context, path string, force bool) error {
	_, err := c.filesystem.Rmdir(ctx, &filesystemv1.RmdirRequest{Path: path, Force: force})
	return err
}

func (c clients) isSymlink(ctx context.Context, path string) (bool, error) {
	resp, err := c.filesystem.IsSymlink(ctx, &filesystemv1.IsSymlinkRequest{Path: path})
	return resp.GetIsSymlink(), err
}

// isMounted takes an error for "no".
func (c clients) isMounted(ctx context.Context, path string) bool {
	is, err := c.isSymlink(ctx, path)
	return err == nil && is
}

func (c clients) createSymlink(ctx context.Context, source, target string) error {
	_, err := c.filesystem.CreateSymlink(ctx, &filesystemv1.CreateSymlinkRequest{SourcePath: source, TargetPath: target})
	return err
}

func (c clients) rescan(ctx context.Context) error {
	_, err := c.disk.Rescan(ctx, &diskv1.RescanRequest{})
	return err
}

func (c clients) partition(ctx context.Context, disk uint32) error {
	_, err := c.disk.PartitionDisk(ctx, &diskv1.PartitionDiskRequest{DiskNumber: disk})
	return err
}

func (c clients) setOnline(ctx context.Context, disk uint32, online bool) error {
	_, err := c.disk.SetDiskState(ctx, &diskv1.SetDiskStateRequest{DiskNumber: disk, IsOnline: online})
	return err
}

func (c clients) diskSize(ctx context.Context, disk uint32) (int64, error) {
	resp, err := c.disk.GetDiskStats(ctx, &diskv1.GetDiskStatsRequest{DiskNumber: disk})
	return resp.GetTotalBytes(), err
}

// firstVolume takes the first volume of a disk. Three of the drivers don't look
// whether there is one, and would crash.
func (c clients) firstVolume(ctx context.Context, disk uint32) (string, error) {
	resp, err := c.volume.ListVolumesOnDisk(ctx, &volumev1.ListVolumesOnDiskRequest{DiskNumber: disk})
	if err != nil {
		return "", err
	}
	if len(resp.VolumeIds) == 0 {
		return "", fmt.Errorf("disk %d has no volumes: the driver crashes", disk)
	}
	return resp.VolumeIds[0], nil
}

// format formats a volume unless it is formatted.
func (c clients) format(ctx context.Context, volume string) error {
	resp, err := c.volume.IsVolumeFormatted(ctx, &volumev1.IsVolumeFormattedRequest{VolumeId: volume})
	if err != nil || resp.Formatted {
		return err
	}
	_, err = c.volume.FormatVolume(ctx, &volumev1.FormatVolumeRequest{VolumeId: volume})
	return err
}

func (c clients) mount(ctx context.Context, volume, path string) error {
	_, err := c.volume.MountVolume(ctx, &volumev1.MountVolumeRequest{VolumeId: volume, TargetPath: path})
	return err
}

func (c clients) unmount(ctx context.Context, volume, path string) error {
	_, err := c.volume.UnmountVolume(ctx, &volumev1.UnmountVolumeRequest{VolumeId: volume, TargetPath: path})
	return err
}

func (c clients) volumeAt(ctx context.Context, path string) (string, error) {
	resp, err := c.volume.GetVolumeIDFromTargetPath(ctx, &volumev1.GetVolumeIDFromTargetPathRequest{TargetPath: path})
	return resp.GetVolumeId(), err
}

func (c clients) diskOf(ctx context.Context, volume string) (uint32, error) {
	resp, err := c.volume.GetDiskNumberFromVolumeID(ctx, &volumev1.GetDiskNumberFromVolumeIDRequest{VolumeId: volume})
	return resp.GetDiskNumber(), err
}

func (c clients) volumeSize(ctx context.Context, volume string) (int64, error) {
	resp, err := c.volume.GetVolumeStats(ctx, &volumev1.GetVolumeStatsRequest{VolumeId: volume})
	return resp.GetTotalBytes(), err
}

func (c clients) resize(ctx context.Context, volume string, size int64) error {
	_, err := c.volume.ResizeVolume(ctx, &volumev1.ResizeVolumeRequest{VolumeId: volume, SizeBytes: size})
	return err
}
