// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// prepare brings a disk online, with a data partition, and returns the volume of that, which
// can be used then. made says whether it has partitioned the disk.
func (s *Staging) prepare(ctx context.Context, d *use.Disk, r storage.StageVolumeRequest) (id volume.ID, made bool, _ error) {
	attributes, err := d.Attributes(ctx)
	if err != nil {
		return "", false, err
	}
	keepClear := win.DiskAttributes(disks.Blocking)
	if r.ReadOnly {
		keepClear = win.DiskOffline
		err = s.makeReadOnly(ctx, d, attributes)
	} else {
		made, err = s.makeWritable(ctx, d, attributes, r.NewIDsForClones || s.options.NewIDsForClones)
	}
	if err != nil {
		return "", made, err
	}
	volumes, err := s.Disks.AwaitVolumes(ctx, d, keepClear)
	if err != nil {
		return "", made, err
	}
	id, err = chosen(volumes, r.Partition)
	if err == nil {
		s.Disks.BringVolumesOnline(ctx, d.Number, opendisk.Volumes{0: string(id)})
	}
	return id, made, err
}

// chosen returns the volume of a partition, or the only one.
func chosen(volumes opendisk.Volumes, partition uint32) (volume.ID, error) {
	if partition != 0 {
		if name, ok := volumes[partition]; ok {
			return volume.ID(name), nil
		}
		return "", csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data partition %d", partition)
	}
	if len(volumes) != 1 {
		return "", refuse(fmt.Sprintf("it has %d data partitions; choose one by its partition number", len(volumes)))
	}
	for _, name := range volumes {
		return volume.ID(name), nil
	}
	return "", nil
}

// makeWritable brings a disk online for writing, with a data partition.
func (s *Staging) makeWritable(ctx context.Context, d *use.Disk, attributes win.DiskAttributes, newIDs bool) (made bool, _ error) {
	paths, err := s.Disks.StagedReadOnly(ctx, d, attributes)
	if err != nil {
		return false, err
	}
	if len(paths) > 0 {
		return false, refuse("it is in use read-only, at " + use.Listed(paths) + ", and writable is asked for")
	}
	made, err = s.Disks.EnsurePartition(ctx, d, attributes, newIDs)
	if err == nil && !made {
		_, err = s.Disks.Clear(ctx, d, disks.Blocking)
	}
	return made, err
}

// makeReadOnly brings a disk online for reading. Windows mounts file systems for reading
// only if the disk is read-only before they are mounted, so a disk that is online goes
// offline for that.
func (s *Staging) makeReadOnly(ctx context.Context, d *use.Disk, attributes win.DiskAttributes) error {
	layout, err := d.Layout(ctx)
	if err != nil {
		return err
	}
	if len(opendisk.DataPartitions(layout)) == 0 {
		return refuse("it has no data partition, and read-only is asked for")
	}
	if attributes&win.DiskReadOnly == 0 {
		if attributes&win.DiskOffline == 0 {
			volumes, paths, err := s.Disks.Mounted(ctx, d)
			if err != nil {
				return err
			}
			if len(paths) > 0 {
				return refuse("it is in use writable, at " + use.Listed(paths) + ", and read-only is asked for")
			}
			if err := s.Disks.TakeOffline(ctx, d, volumes); err != nil {
				return err
			}
		}
		if err := d.Verify(ctx); err != nil {
			return err
		}
		if err := d.SetAttributes(ctx, win.DiskReadOnly, win.DiskReadOnly); err != nil {
			return err
		}
		s.options.Logger.Info("disk made read-only", "disk", d.Number)
		attributes |= win.DiskOffline
	}
	if attributes&win.DiskOffline != 0 {
		if err := s.Disks.SettleClone(ctx, d, layout, false); err != nil {
			return err
		}
	}
	_, err = s.Disks.Clear(ctx, d, win.DiskOffline)
	return err
}

func refuse(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: why}
}
