// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/volume"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// minimumGrowth is the least growth that is worth a change of the partition
// table: partitions end on whole MiB.
const minimumGrowth = 1 << 20

// ResizeVolume implements [volume.Operations].
func (v *Volumes) ResizeVolume(ctx context.Context, id volume.ID, sizeBytes int64) error {
	return operation.Do(ctx, v.options.Runner, "ResizeVolume", object(id), func(ctx context.Context) error {
		if sizeBytes < 0 {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative", sizeBytes)
		}
		return v.withLayout(ctx, id, func(extent win.DiskExtent) error {
			return v.resize(ctx, id, extent, sizeBytes)
		})
	})
}

func (v *Volumes) resize(ctx context.Context, id volume.ID, extent win.DiskExtent, sizeBytes int64) error {
	info, formatted, err := v.information(ctx, id)
	if err != nil {
		return err
	}
	growable := !formatted || info.FileSystem == "NTFS" || info.FileSystem == "ReFS"
	length, err := v.growPartition(ctx, extent, sizeBytes, growable)
	if err != nil || !formatted || !growable {
		return err
	}
	h, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	return growFileSystem(ctx, h, info.FileSystem, length)
}

// growPartition grows the partition under a volume as far as is asked and
// possible, and returns its length in bytes after that. A file system that isn't
// growable keeps its partition as it is.
func (v *Volumes) growPartition(ctx context.Context, extent win.DiskExtent, sizeBytes int64, growable bool) (int64, error) {
	h, err := device.Open(ctx, v.sys, device.PhysicalDrive(extent.DiskNumber), win.GenericRead|win.GenericWrite)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	// The disk may have grown since Windows last looked. Reading the partitions
	// anew also moves the backup table to the new end.
	if err := h.UpdateDriveSize(ctx); err != nil && csiproxy.KindOf(err) != csiproxy.ErrUnimplemented {
		return 0, err // a bus whose disks can't change their size may refuse
	}
	if err := h.UpdateProperties(ctx); err != nil {
		return 0, err
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return 0, err
	}
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return 0, err
	}
	if layout, err = useWholeDisk(ctx, h, layout, geometry); err != nil {
		return 0, err
	}
	partition, ok := partitionAt(layout, extent.StartingOffset)
	if !ok {
		return 0, refuse("it lies on no partition of a basic disk")
	}

	maximum := maximumLength(layout, partition, geometry.DiskSize)
	wanted := sizeBytes
	if wanted == 0 {
		wanted = maximum
	}
	growth := wanted - partition.Length
	if growth < minimumGrowth {
		return partition.Length, nil
	}
	if wanted > maximum {
		return 0, &csiproxy.Error{
			Kind:   csiproxy.ErrResourceExhausted,
			Detail: fmt.Sprintf("%d bytes are asked for, its disk has room for %d", sizeBytes, maximum),
		}
	}
	if !growable {
		return 0, csiproxy.Errorf(csiproxy.ErrUnimplemented, "Windows can grow only NTFS and ReFS file systems")
	}
	// A whole number of MiB, unless that is more than there is.
	growth = min((growth+minimumGrowth-1)/minimumGrowth*minimumGrowth, maximum-partition.Length)
	if err := h.GrowPartition(ctx, win.GrowPartition{PartitionNumber: partition.Number, BytesToGrow: growth}); err != nil {
		return 0, err
	}
	return partition.Length + growth, h.UpdateProperties(ctx)
}

// useWholeDisk moves the end of a GPT to the end of its disk where Windows hasn't
// done so by itself when it read the new size. Whether it does on each of its
// versions isn't documented.
func useWholeDisk(ctx context.Context, h device.Handle, layout *win.DriveLayout, geometry win.DiskGeometryEx) (*win.DriveLayout, error) {
	// The table's copy at the end takes one sector less than what is in front: the
	// protective MBR has no copy.
	whole := geometry.DiskSize - (layout.StartingUsableOffset - int64(geometry.BytesPerSector)) - layout.StartingUsableOffset
	if layout.Style != win.StyleGPT || whole-layout.UsableLength < minimumGrowth {
		return layout, nil
	}
	layout.UsableLength = whole
	if err := h.SetLayout(ctx, layout); err != nil {
		return nil, err
	}
	if err := h.UpdateProperties(ctx); err != nil {
		return nil, err
	}
	return h.Layout(ctx)
}

func partitionAt(l *win.DriveLayout, offset int64) (win.Partition, bool) {
	for _, p := range l.Partitions {
		if p.StartingOffset == offset && p.Number != 0 {
			return p, true
		}
	}
	return win.Partition{}, false
}

// maximumLength is how long a partition can be: up to the next one or the end of
// the usable part of the disk, and to a whole MiB there.
func maximumLength(l *win.DriveLayout, p win.Partition, diskSize int64) int64 {
	end := diskSize
	if l.Style == win.StyleGPT {
		end = l.StartingUsableOffset + l.UsableLength
	}
	for _, other := range l.Partitions {
		if other.Length > 0 && other.StartingOffset > p.StartingOffset {
			end = min(end, other.StartingOffset)
		}
	}
	return end/minimumGrowth*minimumGrowth - p.StartingOffset
}

// growFileSystem makes the file system as large as its partition, if it isn't.
func growFileSystem(ctx context.Context, h device.Handle, fileSystem string, partitionLength int64) error {
	data, err := h.FileSystemData(ctx, fileSystem)
	if err != nil {
		return err
	}
	if data.BytesPerSector == 0 || data.BytesPerCluster == 0 {
		return fmt.Errorf("%s has sectors of %d and clusters of %d bytes", fileSystem, data.BytesPerSector, data.BytesPerCluster)
	}
	// Windows refuses a growth below one cluster, and NTFS keeps the last sector
	// for the copy of its boot sector.
	sectors := partitionLength / int64(data.BytesPerSector)
	if (sectors-1-data.NumberSectors)*int64(data.BytesPerSector) < int64(data.BytesPerCluster) {
		return nil
	}
	return h.ExtendFileSystem(ctx, sectors)
}
