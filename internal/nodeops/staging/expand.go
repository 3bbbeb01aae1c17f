// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// ExpandVolume implements [storage.Operations].
func (s *Staging) ExpandVolume(ctx context.Context, r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error) {
	return operation.Get(ctx, s.options.Runner, "ExpandVolume", "at "+quote.Text(r.Path),
		func(ctx context.Context) (storage.ExpandedVolume, error) {
			if r.DiskSizeBytes < 0 {
				return storage.ExpandedVolume{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative",
					r.DiskSizeBytes)
			}
			return s.expand(systemdisk.Once(operation.Inline(ctx)), r)
		})
}

func (s *Staging) expand(ctx context.Context, r storage.ExpandVolumeRequest) (done storage.ExpandedVolume, _ error) {
	id, err := s.Volumes.GetVolumeIDFromTargetPath(ctx, r.Path)
	if err != nil {
		return done, err
	}
	var rescan time.Time
	interval := firstRescan
	patience := cmp.Or(r.Wait, storage.DefaultWait)
	grown, err := operation.Poll(ctx, operation.Polling{Patience: max(patience, 0), First: 50 * time.Millisecond},
		func() (bool, error) {
			if err = s.growOnce(ctx, id, &done); err != nil {
				return false, err
			}
			// That Windows has read the disk's size again is part of growing.
			if done.DiskSizeBytes, err = s.Volumes.DiskBytes(ctx, id); err != nil || done.DiskSizeBytes >= r.DiskSizeBytes ||
				patience < 0 {
				return done.DiskSizeBytes >= r.DiskSizeBytes, err
			}
			if now := time.Now(); !now.Before(rescan) {
				rescan, interval = now.Add(interval), 2*interval
				err = s.Disks.Rescan(ctx)
			}
			return false, err
		})
	switch {
	case ctx.Err() != nil:
		return done, fmt.Errorf("while waiting for the disk to have %d bytes; it has %d: %w", r.DiskSizeBytes,
			done.DiskSizeBytes, ctx.Err())
	case err == nil && !grown:
		err = csiproxy.Errorf(csiproxy.ErrUnavailable,
			"the disk has %d bytes after %v, and not the %d that are asked for; try again later",
			done.DiskSizeBytes, max(patience, 0), r.DiskSizeBytes)
	}
	return done, err
}

// growOnce grows a volume as far as its disk allows now, and notes that in done.
func (s *Staging) growOnce(ctx context.Context, id volume.ID, done *storage.ExpandedVolume) error {
	ctx, d, extent, err := s.Owner.DiskOf(ctx, id)
	if err != nil {
		return err
	}
	defer d.Release()
	return s.grow(ctx, d, id, extent, &done.SizeBytes, &done.Grown)
}

// grow grows a volume as far as its disk allows. size is that which it had at the last look, or 0,
// and then the new one; so the growth of an attempt that was cut short is known to the next one.
func (s *Staging) grow(ctx context.Context, d *use.Disk, id volume.ID, extent win.DiskExtent, size *int64,
	grown *bool) error {
	if *size == 0 {
		before, err := s.Volumes.GetVolumeStats(ctx, id)
		if err != nil {
			return err
		}
		*size = before.SizeBytes
	}
	if err := s.Volumes.Grow(ctx, d, id, extent, 0); err != nil {
		return err
	}
	now, err := s.Volumes.GetVolumeStats(ctx, id)
	if err != nil {
		return err
	}
	*size, *grown = now.SizeBytes, *grown || now.SizeBytes > *size
	return nil
}
