// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the performance that drivers see. Machines differ and are noisy,
// so only ratios within one run are comparable. `make bench` prints them.
package bench

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
)

// EBSStage makes the calls of NodeStageVolume of EBS's driver: those up to the mount, and those
// with which it looks whether the volume must grow.
func EBSStage(ctx context.Context, p *node.Node, serial, path string) error {
	ids, err := p.Disk.ListDiskIDs(ctx)
	if err != nil {
		return err
	}
	number := csiproxy.DiskNumber(0)
	for candidate, id := range ids {
		if id.SerialNumber == serial {
			number = candidate
		}
	}
	if _, err := p.Filesystem.PathExists(ctx, path); err != nil {
		return err
	}
	mounted, err := p.Volume.GetVolumeIDFromTargetPath(ctx, path)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
	case err != nil:
		return err
	default:
		if _, err := p.Volume.GetDiskNumberFromVolumeID(ctx, mounted); err != nil {
			return err
		}
	}
	if err := p.Disk.PartitionDisk(ctx, number); err != nil {
		return err
	}
	if err := p.Disk.SetDiskState(ctx, number, true); err != nil {
		return err
	}
	volumes, err := p.Volume.ListVolumesOnDisk(ctx, number, 0)
	if err != nil {
		return err
	}
	formatted, err := p.Volume.IsVolumeFormatted(ctx, volumes[0])
	if err != nil {
		return err
	}
	if !formatted {
		if err := p.Volume.FormatVolume(ctx, volumes[0]); err != nil {
			return err
		}
	}
	if err := p.Volume.MountVolume(ctx, volumes[0], path); err != nil {
		return err
	}
	if err := p.Disk.Rescan(ctx); err != nil {
		return err
	}
	if _, err := p.Disk.GetDiskStats(ctx, number); err != nil {
		return err
	}
	_, err = p.Volume.GetVolumeStats(ctx, volumes[0])
	return err
}
