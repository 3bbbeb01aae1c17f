// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// ExpandVolume implements [csiproxy.StorageOperations].
func (s *Staging) ExpandVolume(ctx context.Context, r csiproxy.ExpandVolumeRequest) (
	expanded csiproxy.ExpandedVolume, err error) {
	defer s.options.Observer.End("ExpandVolume", "at "+pathText("staging_path", r.StagingPath), time.Now(), &err)
	if r.DiskSizeBytes < 0 {
		return expanded, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative", r.DiskSizeBytes)
	}
	id, err := s.Volumes.GetVolumeIDFromTargetPath(ctx, r.StagingPath)
	if err != nil {
		return expanded, err
	}
	var nextRescan time.Time
	interval := firstRescan
	timeout := cmp.Or(r.Wait, csiproxy.DefaultWait)
	isLargeEnough := false // the disk was, when the volume was grown
	// With a negative Wait, there is one attempt without a rescan.
	polling := operation.Polling{Timeout: max(timeout, 0), First: 50 * time.Millisecond}
	for err == nil && !isLargeEnough && polling.Next(ctx) {
		if err = s.growOnce(ctx, id, &expanded); err != nil {
			break
		}
		isLargeEnough = expanded.DiskSizeBytes >= r.DiskSizeBytes
		if now := time.Now(); !isLargeEnough && timeout >= 0 && !now.Before(nextRescan) {
			nextRescan, interval = now.Add(interval), 2*interval
			err = s.Disks.RescanAdapters(ctx)
		}
	}
	if ctx.Err() != nil {
		return expanded, fmt.Errorf("while waiting for the disk to have %d bytes; it has %d: %w", r.DiskSizeBytes,
			expanded.DiskSizeBytes, ctx.Err())
	}
	if err == nil && !isLargeEnough {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable,
			"the disk still has %d bytes after %v; %d were requested; try again later",
			expanded.DiskSizeBytes, max(timeout, 0), r.DiskSizeBytes)
	}
	return expanded, err
}

// growOnce grows a volume as far as its disk currently allows, and updates expanded.
func (s *Staging) growOnce(ctx context.Context, id csiproxy.VolumeID, expanded *csiproxy.ExpandedVolume) error {
	lockedDisk, extent, err := s.Locks.LockDiskOf(ctx, id)
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	diskBytes, err := s.grow(ctx, lockedDisk, id, extent, &expanded.SizeBytes, &expanded.Grown)
	expanded.DiskSizeBytes = cmp.Or(diskBytes, expanded.DiskSizeBytes)
	return err
}

// grow grows a volume as far as its disk allows, and returns the disk's size at the growth. It sets
// size to the volume's new size, and grown if the new size exceeds the old size. If size is 0, grow
// first asks for the old size. If grow fails without an obstacle, size stays the old size: the next
// attempt then notices the growth of both attempts.
func (s *Staging) grow(ctx context.Context, lockedDisk *usage.LockedDisk, id csiproxy.VolumeID, extent win.DiskExtent,
	size *int64, grown *bool) (diskBytes int64, _ error) {
	if *size == 0 {
		before, err := s.Volumes.GetVolumeStats(ctx, id)
		if err != nil {
			return 0, err
		}
		*size = before.SizeBytes
	}
	diskBytes, obstacle, err := s.Volumes.Grow(ctx, lockedDisk, id, extent, 0)
	if err != nil {
		return 0, err
	}
	stats, err := s.Volumes.GetVolumeStats(ctx, id)
	if err != nil {
		return 0, err
	}
	*size, *grown = stats.SizeBytes, *grown || stats.SizeBytes > *size
	return diskBytes, obstacle
}
