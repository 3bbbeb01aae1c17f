// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/volume"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

const (
	// minimumGrowth is the least growth that is worth a change of the partition table:
	// partitions end on whole MiB.
	minimumGrowth = 1 << 20
	// tolerance is by how much a size may be above what the disk allows, and the volume
	// below the size: what comes before a partition and behind it on the disks that we
	// partition is less.
	tolerance = 20 << 20
	// mbrSectors is how many sectors an MBR can address.
	mbrSectors = 1 << 32
)

// ResizeVolume implements [volume.Operations].
func (v *Volumes) ResizeVolume(ctx context.Context, id volume.ID, sizeBytes int64) error {
	return operation.Do(ctx, v.options.Runner, "ResizeVolume", object(id), func(ctx context.Context) error {
		if sizeBytes < 0 {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative", sizeBytes)
		}
		ctx, d, extent, err := v.options.Owner.DiskOf(ctx, id)
		if err != nil {
			return err
		}
		defer d.Release()
		return v.Grow(ctx, d, id, extent, sizeBytes)
	})
}

// Grow grows a volume, which lies at extent of its disk, to a size; 0 stands for as much as
// the disk allows.
func (v *Volumes) Grow(ctx context.Context, d *use.Disk, id volume.ID, extent win.DiskExtent, sizeBytes int64) error {
	dv := diskVolume{id, d.Disk, extent}
	info, formatted, err := v.Information(ctx, dv.id)
	if err != nil {
		return err
	}
	growable := !formatted || info.FileSystem == "NTFS" || info.FileSystem == "ReFS"
	if err := refreshSize(ctx, dv.disk); err != nil {
		return err
	}
	// Whether a handle that was open before takes in the new size isn't documented.
	fresh, err := dv.disk.Reopen(ctx, v.sys, win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer fresh.Close()
	dv.disk = fresh
	length, err := v.growPartition(ctx, dv, sizeBytes, growable)
	if err != nil || !formatted || !growable {
		return err
	}
	h, err := v.open(ctx, dv.id, win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	return v.growFileSystem(ctx, h, dv, info.FileSystem, length)
}

// diskVolume is a volume with the disk and the extent that it lies on.
type diskVolume struct {
	id     volume.ID
	disk   *opendisk.Disk
	extent win.DiskExtent
}

// refreshSize has Windows read the capacity of a disk: it may have grown since Windows
// last looked. Reading the partitions again also moves the backup table to the new end.
func refreshSize(ctx context.Context, h *opendisk.Disk) error {
	err := h.UpdateDriveSize(ctx)
	if err != nil && csiproxy.KindOf(err) != csiproxy.ErrUnimplemented {
		return err // a bus whose disks can't change their size may refuse
	}
	return h.UpdateProperties(ctx)
}

// growPartition grows the partition under a volume as far as is asked and
// possible, and returns its length in bytes after that. A file system that isn't
// growable keeps its partition as it is.
func (v *Volumes) growPartition(ctx context.Context, dv diskVolume, sizeBytes int64, growable bool) (int64, error) {
	partition, growth, err := plan(ctx, dv, sizeBytes)
	if err != nil || growth == 0 || !growable && sizeBytes == 0 {
		return partition.Length, err
	}
	if !growable {
		return 0, csiproxy.Errorf(csiproxy.ErrUnimplemented, "Windows can grow only NTFS and ReFS file systems")
	}
	if err := v.useWholeDisk(ctx, dv.disk); err != nil {
		return 0, err
	}
	// Another process may have grown it, or made another partition behind it.
	if err := v.verify(ctx, dv.id, dv.disk, dv.extent); err != nil {
		return 0, err
	}
	if partition, growth, err = plan(ctx, dv, sizeBytes); err != nil || growth == 0 {
		return partition.Length, err
	}
	grow := win.GrowPartition{PartitionNumber: partition.Number, BytesToGrow: growth}
	if err := dv.disk.GrowPartition(ctx, grow); err != nil {
		return 0, err
	}
	v.options.Logger.Info("partition grown", "volume", dv.id, "disk", dv.disk.Number, "partition", partition.Number,
		"bytesBefore", partition.Length, "bytes", partition.Length+growth)
	return partition.Length + growth, dv.disk.UpdateProperties(ctx)
}

// plan returns the partition under a volume and by how many bytes to grow it, in whole MiB
// and never above the size that is asked for; 0 if it is large enough. The last thing that
// it looks at is the partition table.
func plan(ctx context.Context, dv diskVolume, sizeBytes int64) (_ win.Partition, growth int64, _ error) {
	geometry, err := dv.disk.Geometry(ctx)
	if err != nil {
		return win.Partition{}, 0, err
	}
	layout, err := dv.disk.Layout(ctx)
	if err != nil {
		return win.Partition{}, 0, err
	}
	partition, ok := partitionAt(layout, dv.extent)
	if !ok {
		return win.Partition{}, 0, refuse("it lies on no data partition of a basic disk, and only such a volume can grow")
	}
	maximum := maximumLength(layout, partition, geometry)
	wanted := sizeBytes
	switch {
	case sizeBytes == 0:
		wanted = maximum
	case sizeBytes > geometry.DiskSize+tolerance:
		return win.Partition{}, 0, refuse(
			fmt.Sprintf("%d bytes are asked for, but its disk has only %d", sizeBytes, geometry.DiskSize))
	case sizeBytes >= geometry.DiskSize, sizeBytes > maximum && sizeBytes-maximum <= tolerance:
		wanted = maximum // the size of the disk stands for what is possible on it
	}
	if wanted-partition.Length < minimumGrowth {
		return partition, 0, nil
	}
	if wanted > maximum {
		return win.Partition{}, 0, csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"%d bytes are asked for, its disk has room for %d", sizeBytes, maximum)
	}
	return partition, (wanted - partition.Length) / minimumGrowth * minimumGrowth, nil
}

// useWholeDisk moves the end of a GPT to the end of its disk where Windows hasn't
// done so by itself when it read the new size. Whether it does on each of its
// versions isn't documented.
func (v *Volumes) useWholeDisk(ctx context.Context, h *opendisk.Disk) error {
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return err
	}
	if err := h.Verify(ctx); err != nil {
		return err
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return err
	}
	whole := wholeUsableLength(layout, geometry)
	if layout.Style != win.StyleGPT || whole-layout.UsableLength < minimumGrowth {
		return nil
	}
	layout.UsableLength = whole
	if err := h.SetLayout(ctx, layout); err != nil {
		return err
	}
	v.options.Logger.Info("partition table moved to the end of its disk", "disk", h.Number, "bytes", geometry.DiskSize)
	return h.UpdateProperties(ctx)
}

// wholeUsableLength is the usable length of a GPT that takes in its whole disk. The
// table's copy at the end takes one sector less than what is in front: the protective MBR
// has no copy.
func wholeUsableLength(l *win.DriveLayout, g win.DiskGeometryEx) int64 {
	return g.DiskSize - (l.StartingUsableOffset - int64(g.BytesPerSector)) - l.StartingUsableOffset
}

// partitionAt returns the partition of a basic disk that is what a volume lies on. A
// volume on a dynamic disk may lie where a partition begins, too; such a partition has a
// type of its own.
func partitionAt(l *win.DriveLayout, e win.DiskExtent) (win.Partition, bool) {
	for _, p := range l.Partitions {
		if p.StartingOffset == e.StartingOffset && p.Number != 0 && opendisk.IsDataPartition(p) {
			return p, true
		}
	}
	return win.Partition{}, false
}

// maximumLength is how long a partition can be: up to the next one or the end of
// the usable part of the disk, and to a whole MiB there.
func maximumLength(l *win.DriveLayout, p win.Partition, g win.DiskGeometryEx) int64 {
	end := g.DiskSize
	switch l.Style {
	case win.StyleGPT:
		end = l.StartingUsableOffset + max(l.UsableLength, wholeUsableLength(l, g))
	case win.StyleMBR:
		end = min(end, mbrSectors*int64(g.BytesPerSector))
	}
	for _, other := range l.Partitions {
		if other.Length > 0 && other.StartingOffset > p.StartingOffset {
			end = min(end, other.StartingOffset)
		}
	}
	return end/minimumGrowth*minimumGrowth - p.StartingOffset
}

// growFileSystem makes the file system of the open volume h as large as its partition.
func (v *Volumes) growFileSystem(ctx context.Context, h device.Handle, dv diskVolume, fileSystem string,
	partitionLength int64) error {
	data, err := h.FileSystemData(ctx, fileSystem)
	if err != nil {
		return err
	}
	if data.BytesPerSector == 0 || data.BytesPerCluster == 0 {
		return fmt.Errorf("the %s file system has sectors of %d and clusters of %d bytes, as Windows says, and 0 can't be",
			fileSystem, data.BytesPerSector, data.BytesPerCluster)
	}
	// Windows refuses a growth below one cluster, and NTFS keeps the last sector
	// for the copy of its boot sector.
	sectors := partitionLength / int64(data.BytesPerSector)
	if (sectors-1-data.NumberSectors)*int64(data.BytesPerSector) < int64(data.BytesPerCluster) {
		return nil
	}
	// The partition is that of the disk dv.disk; so must this volume be.
	extents, err := h.Extents(ctx)
	if err != nil {
		return err
	}
	if len(extents) != 1 || extents[0].DiskNumber != dv.extent.DiskNumber ||
		extents[0].StartingOffset != dv.extent.StartingOffset {
		return opendisk.ErrChanged("the volume lies at another place")
	}
	if err := dv.disk.Verify(ctx); err != nil {
		return err
	}
	if err := h.ExtendFileSystem(ctx, sectors); err != nil {
		return err
	}
	v.options.Logger.Info("file system grown", "volume", dv.id, "disk", dv.disk.Number, "fileSystem", fileSystem,
		"bytesBefore", data.NumberSectors*int64(data.BytesPerSector), "bytes", sectors*int64(data.BytesPerSector))
	return nil
}
