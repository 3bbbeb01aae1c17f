// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	// minimumGrowth is the least growth for which the partition table is changed: partitions
	// end on whole MiB.
	minimumGrowth = 1 << 20
	// tolerance is how much larger than the largest possible partition a requested size may be:
	// the partition then gets all that there is. Drivers request the size of the disk, which is
	// larger than the data partition can become. On a disk that CSI Proxy has partitioned, the
	// difference is less than tolerance.
	tolerance = 20 << 20
	// mbrSectors is how many sectors an MBR can address.
	mbrSectors = 1 << 32
)

// ResizeVolume implements [published.VolumeOperations].
func (v *Volumes) ResizeVolume(ctx context.Context, id csiproxy.VolumeID, sizeBytes int64) (err error) {
	defer v.options.Runner.Done("ResizeVolume", object(id), time.Now(), &err)
	if sizeBytes < 0 {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative", sizeBytes)
	}
	lockedDisk, extent, err := v.options.Locks.LockDiskOf(ctx, id, locks.ToChange)
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	return v.Grow(ctx, lockedDisk, id, extent, sizeBytes)
}

// Grow grows a volume, which lies at extent of its disk, to a size. With size 0 it grows the
// volume as far as the disk allows.
func (v *Volumes) Grow(ctx context.Context, lockedDisk *locks.LockedDisk, id csiproxy.VolumeID, extent win.DiskExtent,
	sizeBytes int64) error {
	dv := diskVolume{id, lockedDisk.Disk, extent}
	info, formatted, err := v.Information(ctx, dv.id)
	if err != nil {
		return err
	}
	growable := !formatted || info.FileSystem == "NTFS" || info.FileSystem == "ReFS"
	if err := refreshSize(ctx, dv.disk); err != nil {
		return err
	}
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
	id     csiproxy.VolumeID
	disk   *opendisk.Disk
	extent win.DiskExtent
}

// refreshSize has Windows read the capacity of a disk again, which may have grown, and then the
// partitions. That also moves the backup of the partition table to the new end of the disk: the class
// driver tells the partition manager of another capacity (Windows-driver-samples, classpnp/src/class.c).
func refreshSize(ctx context.Context, h *opendisk.Disk) error {
	err := h.UpdateDriveSize(ctx)
	if err != nil && csiproxy.KindOf(err) != csiproxy.ErrUnimplemented {
		return err // a bus whose disks can't change their size may not implement the call, which is no error
	}
	return h.UpdateProperties(ctx)
}

// growPartition grows the partition under a volume as far as requested and
// possible, and returns its length in bytes after that. If the file system isn't
// growable, the partition stays as it is.
func (v *Volumes) growPartition(ctx context.Context, dv diskVolume, sizeBytes int64, growable bool) (int64, error) {
	partition, growth, err := plan(ctx, dv, sizeBytes)
	if err != nil || growth == 0 || !growable && sizeBytes == 0 {
		return partition.Length, err
	}
	if !growable {
		return 0, csiproxy.Errorf(csiproxy.ErrUnimplemented, "Windows can grow only NTFS and ReFS file systems")
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

// plan returns the partition under a volume and by how many bytes to grow it: in whole MiB, and
// never above the requested size; 0 if it is large enough. It reads the partition table last, so
// that the plan is based on its latest state.
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
	if usableEnd := layout.StartingUsableOffset + layout.UsableLength; layout.Style == win.StyleGPT &&
		geometry.DiskSize-usableEnd > tolerance && usableEnd-partition.StartingOffset-maximum < minimumGrowth &&
		(sizeBytes == 0 || sizeBytes > maximum) {
		return win.Partition{}, 0, csiproxy.Errorf(csiproxy.ErrUnavailable, "its disk has %d bytes, and the partition "+
			"table ends at %d, since Windows hasn't moved it to the new end; try again later", geometry.DiskSize, usableEnd)
	}
	wanted := sizeBytes
	switch {
	case sizeBytes == 0:
		wanted = maximum
	case sizeBytes > geometry.DiskSize+tolerance:
		return win.Partition{}, 0, refuse(
			fmt.Sprintf("%d bytes are asked for, but its disk has only %d", sizeBytes, geometry.DiskSize))
	case sizeBytes >= geometry.DiskSize, sizeBytes > maximum && sizeBytes-maximum <= tolerance:
		wanted = maximum // a request for the size of the disk means all that is possible: see tolerance
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

// partitionAt returns the partition that a volume on a basic disk lies on. A volume on a
// dynamic disk may begin where a partition begins, too. Such a partition has a type of its
// own, and isn't returned.
func partitionAt(l *win.DriveLayout, e win.DiskExtent) (win.Partition, bool) {
	for _, p := range l.Partitions {
		if p.StartingOffset == e.StartingOffset && p.Number != 0 && opendisk.IsDataPartition(p) {
			return p, true
		}
	}
	return win.Partition{}, false
}

// maximumLength is how long a partition can become: up to the next partition or the
// end of the usable part of the disk, rounded down to a whole MiB.
func maximumLength(l *win.DriveLayout, p win.Partition, g win.DiskGeometryEx) int64 {
	end := g.DiskSize
	switch l.Style {
	case win.StyleGPT:
		end = l.StartingUsableOffset + l.UsableLength
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
	// Windows refuses to grow by less than one cluster. NTFS keeps the last sector for the
	// copy of its boot sector.
	sectors := partitionLength / int64(data.BytesPerSector)
	if (sectors-1-data.NumberSectors)*int64(data.BytesPerSector) < int64(data.BytesPerCluster) {
		return nil
	}
	// The partition is on dv.disk, so the open volume must be on it, too.
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
