// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	// minimumGrowth is the least growth worth a change of the partition table: partitions end on
	// whole MiB.
	minimumGrowth = 1 << 20
	// tolerance is how much of a disk may be lost behind the largest possible partition, to the
	// copy of the partition table and to the rounding of partitions to whole MiB. A requested size
	// may exceed the possible size by tolerance: drivers request the size of the disk.
	tolerance = 20 << 20
	// mbrSectors is how many sectors an MBR can address.
	mbrSectors = 1 << 32
	// extendTimeout is how long to retry while Windows refuses the new size of the file system: perhaps
	// the file system learns of the new end of its partition late. No source confirms such a delay.
	extendTimeout  = 5 * time.Second
	extendInterval = 100 * time.Millisecond
)

// ResizeVolume implements [published.VolumeOperations].
func (v *Volumes) ResizeVolume(ctx context.Context, id csiproxy.VolumeID, sizeBytes int64) (err error) {
	defer v.options.Observer.End("ResizeVolume", volumeObject(id), time.Now(), &err)
	if sizeBytes < 0 {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative", sizeBytes)
	}
	lockedDisk, extent, err := v.options.Locks.LockDiskOf(ctx, id)
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	_, obstacle, err := v.Grow(ctx, lockedDisk, id, extent, sizeBytes)
	if err != nil || obstacle == nil {
		return err
	}
	if sizeBytes > 0 {
		return obstacle
	}
	// GCE's driver calls ResizeVolume(0) after each mount, and should get the volume at its current
	// size.
	v.options.Logger.Warn("a volume stays smaller than its disk allows", "volume", id, "disk", lockedDisk.Number, "err", obstacle)
	return nil
}

// Grow grows a volume, which lies at extent of its disk, to a size. With size 0, Grow grows the
// volume as far as the disk allows. diskBytes is the size of the disk on which the growth was based.
// obstacle says why the volume can't reach the size, or can't get all free space of its disk; the
// volume stays usable.
func (v *Volumes) Grow(ctx context.Context, lockedDisk *usage.LockedDisk, id csiproxy.VolumeID, extent win.DiskExtent,
	sizeBytes int64) (diskBytes int64, obstacle, _ error) {
	dv := diskVolume{id, lockedDisk.Disk, extent}
	info, formatted, err := v.Information(ctx, dv.id)
	if err != nil {
		return 0, nil, err
	}
	if err := refreshSize(ctx, dv.disk); err != nil {
		return 0, nil, err
	}
	p, err := planFor(ctx, dv, sizeBytes)
	if err != nil {
		return 0, nil, err
	}
	canGrow := info.FileSystem == "NTFS" || info.FileSystem == "ReFS"
	if formatted && !canGrow {
		if p.growth > 0 {
			p.obstacle = csiproxy.Errorf(csiproxy.ErrUnimplemented, "Windows can grow only NTFS and ReFS file systems")
		}
		return p.diskBytes, p.obstacle, nil
	}
	if p.growth > 0 {
		if p, err = v.growPartition(ctx, dv, sizeBytes); err != nil {
			return 0, nil, err
		}
	}
	if !formatted {
		return p.diskBytes, p.obstacle, nil
	}
	h, err := v.open(ctx, dv.id, win.GenericRead|win.GenericWrite)
	if err != nil {
		return 0, nil, err
	}
	defer h.Close()
	checkNeeded, err := v.growFileSystem(ctx, h, dv, info.FileSystem, p.partition.Length)
	return p.diskBytes, cmp.Or(checkNeeded, p.obstacle), err
}

// diskVolume is a volume with its disk and its extent there.
type diskVolume struct {
	id     csiproxy.VolumeID
	disk   *opendisk.Disk
	extent win.DiskExtent
}

// refreshSize has Windows read the capacity of a disk again, which may have grown, and then the
// partitions. A changed capacity also moves the backup of the partition table to the new end of the
// disk: the class driver reports the capacity to the partition manager (Windows-driver-samples,
// classpnp/src/class.c).
func refreshSize(ctx context.Context, h *opendisk.Disk) error {
	err := h.UpdateDriveSize(ctx) // a bus with fixed disk sizes may lack the call
	if err != nil && csiproxy.KindOf(err) != csiproxy.ErrUnimplemented {
		return err
	}
	return h.UpdateProperties(ctx)
}

// growPartition grows the partition under a volume as far as requested and possible, and returns
// the partition after the growth.
func (v *Volumes) growPartition(ctx context.Context, dv diskVolume, sizeBytes int64) (plan, error) {
	// Another process may have grown the partition, or made another partition behind it.
	if err := v.verify(ctx, dv.id, dv.disk, dv.extent); err != nil {
		return plan{}, err
	}
	p, err := planFor(ctx, dv, sizeBytes)
	if err != nil || p.growth == 0 {
		return p, err
	}
	grow := win.GrowPartition{PartitionNumber: p.partition.Number, BytesToGrow: p.growth}
	if err := dv.disk.GrowPartition(ctx, grow); err != nil {
		return plan{}, err
	}
	before := p.partition.Length
	p.partition.Length += p.growth
	v.options.Logger.Info("partition grown", "volume", dv.id, "disk", dv.disk.Number, "partition", p.partition.Number,
		"bytesBefore", before, "bytes", p.partition.Length)
	return p, dv.disk.UpdateProperties(ctx)
}

// plan describes the growth of a partition.
type plan struct {
	diskBytes int64 // the size of the disk
	partition win.Partition
	growth    int64 // in bytes, whole MiB; 0 for a partition that is large enough
	obstacle  error // what blocks the free space of the disk, if all free space was requested
}

// planFor plans the growth of the partition under a volume: at most to the requested size, or as
// far as possible for size 0. It reads the partition table last, to base the plan on the latest
// state.
func planFor(ctx context.Context, dv diskVolume, sizeBytes int64) (p plan, _ error) {
	geometry, err := dv.disk.Geometry(ctx)
	if err != nil {
		return p, err
	}
	layout, err := dv.disk.Layout(ctx)
	if err != nil {
		return p, err
	}
	partition, ok := partitionAt(layout, dv.extent)
	if !ok {
		return p, refuse("it lies on no data partition of a basic disk, and only such a volume can grow")
	}
	p.diskBytes, p.partition = geometry.DiskSize, partition
	room := roomFor(layout, partition, geometry)
	usableEnd := layout.StartingUsableOffset + layout.UsableLength
	// Perhaps Windows still ends the table at the disk's old end, and only this end limits the partition.
	hasOldEnd := layout.Style == win.StyleGPT && geometry.DiskSize-usableEnd > tolerance
	reachesEnd := room.length+partition.StartingOffset > usableEnd-minimumGrowth
	needsMore := sizeBytes == 0 || sizeBytes > room.length
	if hasOldEnd && reachesEnd && needsMore {
		return p, csiproxy.Errorf(csiproxy.ErrUnavailable, "its disk has %d bytes, and the partition "+
			"table ends at %d, since Windows hasn't moved it to the new end; try again later", geometry.DiskSize, usableEnd)
	}
	wanted := sizeBytes
	switch {
	case sizeBytes > geometry.DiskSize+tolerance:
		return p, refuse(
			fmt.Sprintf("%d bytes are requested, but its disk has only %d", sizeBytes, geometry.DiskSize))
	case sizeBytes == 0, sizeBytes >= geometry.DiskSize-tolerance: // the size of the disk means the largest possible size
		wanted, p.obstacle = room.length, room.obstacle()
	case sizeBytes > room.length && sizeBytes <= room.length+tolerance:
		wanted = room.length
	}
	if wanted-partition.Length < minimumGrowth {
		return p, nil
	}
	if wanted > room.length {
		return p, csiproxy.Errorf(csiproxy.ErrResourceExhausted, "%d bytes are requested, but its disk has room for %d%s",
			sizeBytes, room.length, room.blocked)
	}
	p.growth = (wanted - partition.Length) / minimumGrowth * minimumGrowth
	return p, nil
}

// partitionAt returns the partition of a volume on a basic disk. A volume on a dynamic disk may
// also begin where a partition begins. partitionAt skips such a partition, which has a type of its
// own.
func partitionAt(l *win.DriveLayout, e win.DiskExtent) (win.Partition, bool) {
	for _, p := range l.Partitions {
		if p.StartingOffset == e.StartingOffset && p.Number != 0 && opendisk.IsDataPartition(p) {
			return p, true
		}
	}
	return win.Partition{}, false
}

// room is how far a partition can grow.
type room struct {
	length  int64  // the largest possible length, in whole MiB
	blocked string // the obstacle before the end of the disk, as text to append to an error; "" if there is none
	free    int64  // free space at the end of the disk that the partition can't get
}

// roomFor returns how far a partition can grow: up to the next partition or the end of the usable
// part of its disk.
func roomFor(l *win.DriveLayout, p win.Partition, g win.DiskGeometryEx) (r room) {
	diskEnd := g.DiskSize
	if l.Style == win.StyleGPT {
		diskEnd = l.StartingUsableOffset + l.UsableLength
	}
	end, last := diskEnd, int64(0)
	if limit := mbrSectors * int64(g.BytesPerSector); l.Style == win.StyleMBR && limit < end {
		end, r.blocked = limit, fmt.Sprintf(": a master boot record reaches no further than %d bytes; "+
			"copy the data to a disk with a GPT", limit)
	}
	for _, other := range l.Partitions {
		if other.Length == 0 || other.Number == p.Number {
			continue
		}
		last = max(last, other.End())
		if other.StartingOffset > p.StartingOffset && other.StartingOffset < end {
			end, r.blocked = other.StartingOffset, fmt.Sprintf(": partition %d lies behind it; move it, or delete it if nothing on it is needed", other.Number)
		}
	}
	r.length = end/minimumGrowth*minimumGrowth - p.StartingOffset
	if end < diskEnd {
		r.free = diskEnd - max(end, last)
	}
	return r
}

// obstacle returns an error if the partition can't get the free space at the disk's end, and the
// space exceeds the overhead of a disk layout.
func (r room) obstacle() error {
	if r.free <= tolerance {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrResourceExhausted, "%d bytes at the end of its disk are free, and it can't grow into them%s",
		r.free, r.blocked)
}

// growFileSystem makes the file system of the open volume h as large as its partition, except if
// Windows wants to check the file system: then checkNeeded says so.
func (v *Volumes) growFileSystem(ctx context.Context, h win.DeviceHandle, dv diskVolume, fileSystem string,
	partitionLength int64) (checkNeeded, _ error) {
	data, err := h.FileSystemData(ctx, fileSystem)
	if err != nil {
		return nil, err
	}
	if data.BytesPerSector == 0 || data.BytesPerCluster == 0 {
		return nil, fmt.Errorf("the %s file system has sectors of %d and clusters of %d bytes, says Windows; neither can be 0",
			fileSystem, data.BytesPerSector, data.BytesPerCluster)
	}
	// Windows refuses to grow by less than one cluster. NTFS keeps the last sector for the copy of
	// its boot sector.
	sectors := partitionLength / int64(data.BytesPerSector)
	if (sectors-1-data.NumberSectors)*int64(data.BytesPerSector) < int64(data.BytesPerCluster) {
		return nil, nil
	}
	if dirty, err := isDirty(ctx, h); err != nil {
		return nil, err
	} else if dirty {
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows requires a check of its file system first: let CheckVolume check "+
			"and repair it, then try again"), nil
	}
	// The partition is on dv.disk. The open volume must be on the same disk.
	extents, err := h.Extents(ctx)
	if err != nil {
		return nil, err
	}
	if len(extents) != 1 || extents[0].DiskNumber != dv.extent.DiskNumber ||
		extents[0].StartingOffset != dv.extent.StartingOffset {
		return nil, opendisk.ChangedError("the volume has moved to another place")
	}
	tooLarge := []winerr.Errno{winerr.ErrorInvalidParameter}
	err = operation.Retry(ctx, extendTimeout, extendInterval, tooLarge, func() error {
		if err := dv.disk.Verify(ctx); err != nil {
			return err
		}
		return h.ExtendFileSystem(ctx, sectors)
	})
	if err != nil {
		return nil, err
	}
	v.options.Logger.Info("file system grown", "volume", dv.id, "disk", dv.disk.Number, "fileSystem", fileSystem,
		"bytesBefore", data.NumberSectors*int64(data.BytesPerSector), "bytes", sectors*int64(data.BytesPerSector))
	return nil, nil
}
