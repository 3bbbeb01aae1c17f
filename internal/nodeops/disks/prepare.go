// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"fmt"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Preparation says how a disk is prepared.
type Preparation struct {
	// Meant returns an error unless an open disk is the one that is meant.
	Meant func(ctx context.Context, h *device.Disk) error
	// Partition is the number of the data partition whose volume is meant; 0 stands for the
	// only one.
	Partition uint32
	// ReadOnly has Windows refuse everything that would be written to the disk.
	ReadOnly bool
	// NewIDsForClones is that of Options, for this disk.
	NewIDsForClones bool
}

// Prepare brings the disk n online, with a data partition, and returns the volume of that,
// which can be used then. It is SetDiskState, PartitionDisk and DataVolumeOfDisk in one
// step, and refuses what these refuse. made says whether it has partitioned the disk.
func (d *Disks) Prepare(ctx context.Context, n disk.Number, p Preparation) (id volume.ID, made bool, _ error) {
	err := d.change(ctx, n, func(ctx context.Context, h *use.Disk) (err error) {
		if err := p.Meant(ctx, h.Disk); err != nil {
			return err
		}
		keepClear := win.DiskAttributes(blocking)
		if p.ReadOnly {
			keepClear = win.DiskOffline
			err = d.makeReadOnly(ctx, h)
		} else {
			made, err = d.makeWritable(ctx, h, p.NewIDsForClones)
		}
		if err != nil {
			return err
		}
		volumes, err := d.awaitVolumes(ctx, h, keepClear)
		if err != nil {
			return err
		}
		id, err = chosen(volumes, p.Partition)
		if err == nil {
			d.bringVolumesOnline(ctx, n, device.Volumes{0: string(id)})
		}
		return err
	})
	return id, made, err
}

// chosen returns the volume of a partition, or the only one.
func chosen(volumes device.Volumes, partition uint32) (volume.ID, error) {
	if partition != 0 {
		if name, ok := volumes[partition]; ok {
			return volume.ID(name), nil
		}
		return "", csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data partition %d", partition)
	}
	if len(volumes) != 1 {
		return "", refuse(fmt.Sprintf("it has %d data partitions, and which one is meant isn't said", len(volumes)))
	}
	for _, name := range volumes {
		return volume.ID(name), nil
	}
	return "", nil
}

// makeWritable brings a disk online for writing, with a data partition.
func (d *Disks) makeWritable(ctx context.Context, h *use.Disk, newIDs bool) (made bool, _ error) {
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return false, err
	}
	if attributes&blocking == win.DiskReadOnly { // somebody may use it so
		paths, err := d.MountedAt(ctx, h)
		if err != nil {
			return false, err
		}
		if len(paths) > 0 {
			return false, refuse("it is in use read-only, at " + quote.Text(strings.Join(paths, ", ")) + ", and writable is asked for")
		}
	}
	made, err = d.ensurePartition(ctx, h, attributes&win.DiskOffline != 0, newIDs)
	if err == nil && !made {
		_, err = d.clear(ctx, h, blocking)
	}
	return made, err
}

// makeReadOnly brings a disk online for reading. Windows mounts file systems for reading
// only if the disk is read-only before they are mounted, so a disk that is online goes
// offline for that.
func (d *Disks) makeReadOnly(ctx context.Context, h *use.Disk) error {
	layout, err := h.Layout(ctx)
	if err != nil {
		return err
	}
	if len(device.DataPartitions(layout)) == 0 {
		return refuse("it has no data partition, and read-only is asked for")
	}
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return err
	}
	if attributes&win.DiskReadOnly == 0 {
		paths, err := d.MountedAt(ctx, h)
		if err != nil {
			return err
		}
		if len(paths) > 0 {
			return refuse("it is in use writable, at " + quote.Text(strings.Join(paths, ", ")) + ", and read-only is asked for")
		}
		if err := d.takeOffline(ctx, h); err != nil {
			return err
		}
		if err := h.Verify(ctx); err != nil {
			return err
		}
		if err := h.SetAttributes(ctx, win.DiskReadOnly, win.DiskReadOnly); err != nil {
			return err
		}
		d.options.Logger.Info("disk made read-only", "disk", h.Number)
		attributes |= win.DiskOffline
	}
	if attributes&win.DiskOffline != 0 {
		if err := d.settleClone(ctx, h, layout, false); err != nil {
			return err
		}
	}
	_, err = d.clear(ctx, h, win.DiskOffline)
	return err
}

// MountedAt returns where the volumes of an online disk are mounted: drives and
// directories.
func (d *Disks) MountedAt(ctx context.Context, h *use.Disk) (paths []string, _ error) {
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	volumes, err := h.AwaitVolumes(ctx, d.sys, device.DataPartitions(layout), 0, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range volumes {
		at, err := device.MountedAt(ctx, d.sys, name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, at...)
	}
	return paths, nil
}

// Retire takes a disk offline unless one of its volumes is mounted, and reports whether it
// has.
func (d *Disks) Retire(ctx context.Context, h *use.Disk) (offline bool, _ error) {
	attributes, err := h.Attributes(ctx)
	if err != nil || attributes&win.DiskOffline != 0 {
		return false, err
	}
	paths, err := d.MountedAt(ctx, h)
	if err != nil || len(paths) > 0 {
		return false, err
	}
	return true, d.takeOffline(ctx, h)
}

// RetireDisk is Retire of the disk n, if that is meant.
func (d *Disks) RetireDisk(ctx context.Context, n disk.Number, meant func(context.Context, *device.Disk) error) (offline bool, _ error) {
	err := d.change(ctx, n, func(ctx context.Context, h *use.Disk) error {
		if err := meant(ctx, h.Disk); err != nil {
			return err
		}
		var err error
		offline, err = d.Retire(ctx, h)
		return err
	})
	return offline, err
}
