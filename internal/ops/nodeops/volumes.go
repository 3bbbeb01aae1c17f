// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/published"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// volumeOptions configure the operations.
type volumeOptions struct {
	// AllowRecognizedData lets FormatVolume overwrite data that it recognises as another system's.
	// Default: FormatVolume refuses. It always refuses a volume with a file system known to Windows,
	// except as probeReusable permits.
	AllowRecognizedData bool
	// Writers are the accounts with write access to the root of a volume formatted by FormatVolume,
	// as in csiproxy.FormatOptions. Default: the accounts chosen by Windows.
	Writers []string
	// OwnerOf returns the name of the driver that owns an open disk; "" for a disk without an
	// owner.
	OwnerOf func(ctx context.Context, disk *opendisk.Disk) (driver string, err error)

	// Lists makes the calls on all volumes of the node.
	Lists win.System

	// Logger gets each change of the node, and problems that an operation tolerates.
	Logger *slog.Logger
	// Observer is called after each operation. Default: none.
	Observer operation.Observer
	// Locks locks the objects of changing calls; queries take no locks. All groups of a node, or of a
	// driver, share one Locker.
	Locks *usage.Locker
	// Users finds who uses disks and volumes.
	Users *usage.Finder
}

// Volumes are the volumes of a node. All methods may be called concurrently.
type Volumes struct {
	sys     win.System
	paths   *pathpolicy.Policy
	options volumeOptions
}

// newVolumes returns the operations on the volumes of sys, at the paths allowed by paths.
func newVolumes(sys win.System, paths *pathpolicy.Policy, o volumeOptions) *Volumes {
	return &Volumes{sys: sys, paths: paths, options: o}
}

// Timeouts for transient states.
const (
	arrivalTimeout = 10 * time.Second // until a partition has its volume
	repairTimeout  = 15 * time.Second // until Windows' list of volumes has a volume
	repairInterval = 500 * time.Millisecond
	// updateInterval is the time between two updates of Windows' list of volumes: an update asks
	// all disks, and is useless before the volume arrives.
	updateInterval = 10 * time.Second
)

// ListVolumesOnDisk implements [published.VolumeOperations].
func (v *Volumes) ListVolumesOnDisk(ctx context.Context, n csiproxy.DiskNumber, partition uint32) (_ []csiproxy.VolumeID, err error) {
	defer v.options.Observer.End("ListVolumesOnDisk", "disk "+n.String(), time.Now(), &err)
	h, err := opendisk.Open(ctx, v.sys, n, win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	wanted, err := dataPartitions(ctx, h, partition)
	if err != nil || len(wanted) == 0 {
		return []csiproxy.VolumeID{}, err
	}
	return v.arrived(ctx, h, wanted)
}

// arrived waits for the volumes of a disk's partitions, and returns the volumes in the partitions'
// order.
func (v *Volumes) arrived(ctx context.Context, h *opendisk.Disk, partitions []uint32) (ids []csiproxy.VolumeID, _ error) {
	volumes, err := h.AwaitVolumes(ctx, v.sys, v.options.Lists, partitions, arrivalTimeout)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		ids = append(ids, csiproxy.VolumeID(volumes[p]))
	}
	return ids, nil
}

// dataPartitions returns the numbers of the data partitions of an online disk. A partition other than 0
// restricts the result to this partition.
func dataPartitions(ctx context.Context, h *opendisk.Disk, partition uint32) ([]uint32, error) {
	state, err := h.State(ctx)
	if err != nil {
		return nil, err
	}
	if state.Offline {
		return nil, refuse("the disk is offline; bring it online first")
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if partition == 0 {
		return opendisk.DataPartitions(layout), nil
	}
	for _, p := range layout.Partitions {
		if p.Number != partition {
			continue
		}
		if opendisk.IsDataPartition(p) {
			return []uint32{partition}, nil
		}
		return nil, nil
	}
	return nil, csiproxy.Errorf(csiproxy.ErrNotFound, "it has no partition %d", partition)
}

// DataVolumeOfDisk implements [published.VolumeOperations].
func (v *Volumes) DataVolumeOfDisk(ctx context.Context, n csiproxy.DiskNumber) (_ csiproxy.VolumeID, err error) {
	defer v.options.Observer.End("DataVolumeOfDisk", "disk "+n.String(), time.Now(), &err)
	h, err := opendisk.Open(ctx, v.sys, n, win.AccessNone)
	if err != nil {
		return "", err
	}
	defer h.Close()
	wanted, err := dataPartitions(ctx, h, 0)
	if err != nil {
		return "", err
	}
	// This counts partitions rather than volumes: a volume that hasn't arrived may be the wanted
	// volume.
	if len(wanted) == 0 {
		return "", csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data volume")
	}
	if len(wanted) > 1 {
		return "", refuse(fmt.Sprintf("it has %d data partitions; name one of its volumes instead", len(wanted)))
	}
	ids, err := v.arrived(ctx, h, wanted)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// GetDiskNumberFromVolumeID implements [published.VolumeOperations].
func (v *Volumes) GetDiskNumberFromVolumeID(ctx context.Context, id csiproxy.VolumeID) (_ csiproxy.DiskNumber, err error) {
	defer v.options.Observer.End("GetDiskNumberFromVolumeID", volumeObject(id), time.Now(), &err)
	extent, err := usage.Extent(ctx, v.sys, id)
	return extent.DiskNumber, err
}

// open opens the device of a volume. An invalid volume id is csiproxy.ErrInvalidArgument, a missing
// volume csiproxy.ErrNotFound.
func (v *Volumes) open(ctx context.Context, id csiproxy.VolumeID, access win.Access) (win.DeviceHandle, error) {
	if err := id.Validate(); err != nil {
		return win.DeviceHandle{}, err
	}
	return win.OpenDevice(ctx, v.sys, win.VolumePath(string(id)), access)
}

// Information returns the file system of a volume; formatted is false for a raw volume.
func (v *Volumes) Information(ctx context.Context, id csiproxy.VolumeID) (_ win.VolumeInformation, formatted bool, _ error) {
	if err := id.Validate(); err != nil {
		return win.VolumeInformation{}, false, err
	}
	info, err := v.sys.VolumeInformation(ctx, string(id))
	if errors.Is(err, winerr.ErrorUnrecognizedVolume) {
		return win.VolumeInformation{}, false, nil
	}
	return info, err == nil, err
}

// IsVolumeFormatted implements [published.VolumeOperations].
func (v *Volumes) IsVolumeFormatted(ctx context.Context, id csiproxy.VolumeID) (formatted bool, err error) {
	defer v.options.Observer.End("IsVolumeFormatted", volumeObject(id), time.Now(), &err)
	_, formatted, err = v.Information(ctx, id)
	return formatted, err
}

// FormatVolume implements [published.VolumeOperations].
func (v *Volumes) FormatVolume(ctx context.Context, id csiproxy.VolumeID) (err error) {
	defer v.options.Observer.End("FormatVolume", volumeObject(id), time.Now(), &err)
	lockedDisk, extent, err := v.options.Locks.LockDiskOf(ctx, id)
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	lockedVolume, err := lockedDisk.LockVolume(ctx, id)
	if err != nil {
		return err
	}
	defer lockedVolume.Release()
	return v.format(ctx, lockedDisk, lockedVolume, extent, win.FormatOptions{FileSystem: "NTFS"}, nil, true)
}

// Format formats a raw volume, which lies at extent of its disk, and lets writers, by default the
// Writers of the options, write at the volume's root. It retries while Windows refuses: right after
// a partition is made, Windows may take the volume for read-only, and virus scanners and the
// indexer open every new volume for a moment. Before each attempt, Format checks that the volume is
// still raw.
func (v *Volumes) Format(ctx context.Context, lockedDisk *usage.LockedDisk, lockedVolume *usage.LockedVolume,
	extent win.DiskExtent, o win.FormatOptions, writers []string) error {
	return v.format(ctx, lockedDisk, lockedVolume, extent, o, writers, false)
}

// format is Format; with reuse, it also empties a volume accepted by probeReusable.
func (v *Volumes) format(ctx context.Context, lockedDisk *usage.LockedDisk, lockedVolume *usage.LockedVolume,
	extent win.DiskExtent, o win.FormatOptions, writers []string, reuse bool) error {
	if err := v.options.Users.CheckEmptyDisk(ctx, lockedDisk.Disk); err != nil {
		return err
	}
	// Windows supports these options on every disk. It may refuse any others for good.
	isUsual := o == win.FormatOptions{FileSystem: "NTFS", Label: o.Label}
	var failed error // the error of the previous attempt
	var updated time.Time
	err := operation.UntilReady(ctx, func() error {
		if errors.Is(failed, winerr.ErrorWriteProtect) {
			if err := lockedDisk.Writable(ctx); err != nil {
				return &csiproxy.Error{Detail: "the disk itself is read-only", Err: err}
			}
		}
		err := v.checkContent(ctx, lockedVolume.ID, lockedDisk.Disk, extent, reuse)
		if failed != nil && csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
			return &csiproxy.Error{
				Kind: csiproxy.ErrUnavailable, Err: failed,
				Detail: fmt.Sprintf("the format has failed, and the volume has content now (%v); check it before you try again", err),
			}
		}
		return err
	}, func() error {
		start := time.Now()
		// Windows' list of disks and volumes lags behind: it may lack the volume, or list the
		// volume as read-only.
		if o.UpdateList = failed != nil && start.Sub(updated) >= updateInterval; o.UpdateList {
			updated = start
		}
		failed = v.sys.FormatVolume(ctx, string(lockedVolume.ID), o)
		if failed != nil {
			failed = fmt.Errorf("while formatting: %w", failed)
		} else {
			v.options.Logger.Info("volume formatted", "volume", lockedVolume.ID, "disk", lockedDisk.Number,
				"fileSystem", o.FileSystem, "took", time.Since(start).Round(time.Millisecond))
		}
		if isUsual && errors.Is(failed, winerr.ErrorInvalidParameter) {
			// Users have seen this error for a while with newly arrived volumes:
			// https://github.com/PowerShell/PowerShell/issues/7771
			return csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows can't format the volume yet: %v", failed)
		}
		return failed
	})
	if err != nil {
		return err
	}
	return v.allowWriters(ctx, lockedVolume, writers, true)
}

// verify returns an error if a volume no longer lies at extent of the open disk.
func (v *Volumes) verify(ctx context.Context, id csiproxy.VolumeID, disk *opendisk.Disk, extent win.DiskExtent) error {
	extentAfter, err := usage.Extent(ctx, v.sys, id)
	if err != nil {
		return err
	}
	if extentAfter != extent {
		return opendisk.ChangedError("the volume has moved to another place")
	}
	return disk.Verify(ctx) // if nil, the number in extent belongs to this disk
}

// checkRaw returns an error if a volume no longer lies at extent of the open disk, or isn't raw. It
// asks Windows for the file system last, to get a recent answer: if another program formats the raw
// volume meanwhile, Windows' answer shows the new file system.
func (v *Volumes) checkRaw(ctx context.Context, id csiproxy.VolumeID, disk *opendisk.Disk, extent win.DiskExtent) error {
	h, err := v.open(ctx, id, win.GenericRead)
	if err != nil {
		return err
	}
	defer h.Close()
	extentsAfter, err := h.Extents(ctx)
	if err == nil && !slices.Equal(extentsAfter, []win.DiskExtent{extent}) {
		err = opendisk.ChangedError("the volume has moved to another place")
	}
	if err != nil {
		return err
	}
	geometry, err := disk.Geometry(ctx)
	if err != nil {
		return err
	}
	found, err := opendisk.Recognise(ctx, h, extent.Length, geometry.BytesPerSector)
	if err != nil {
		return err
	}
	if found != "" && !v.options.AllowRecognizedData {
		return refuse("it holds " + found)
	}
	if err := disk.Verify(ctx); err != nil { // if nil, the number in extent belongs to this disk
		return err
	}
	info, formatted, err := v.Information(ctx, id)
	if err == nil && formatted {
		err = refuse(fmt.Sprintf("it already has a file system: %s", info.FileSystem))
	}
	return err
}

// GetVolumeStats implements [published.VolumeOperations].
func (v *Volumes) GetVolumeStats(ctx context.Context, id csiproxy.VolumeID) (_ published.VolumeStats, err error) {
	defer v.options.Observer.End("GetVolumeStats", volumeObject(id), time.Now(), &err)
	if err := id.Validate(); err != nil {
		return published.VolumeStats{}, err
	}
	space, err := v.sys.DiskFreeSpace(ctx, string(id))
	return published.VolumeStats{SizeBytes: int64(space.Total), UsedBytes: int64(space.Total - space.Free)}, err
}

// WriteVolumeCache implements [published.VolumeOperations].
func (v *Volumes) WriteVolumeCache(ctx context.Context, id csiproxy.VolumeID) (err error) {
	defer v.options.Observer.End("WriteVolumeCache", volumeObject(id), time.Now(), &err)
	return v.flush(ctx, id)
}

func (v *Volumes) flush(ctx context.Context, id csiproxy.VolumeID) error {
	h, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
	if errors.Is(err, winerr.ErrorWriteProtect) {
		return nil // see nothingToFlush
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return flushHandle(ctx, h)
}

// flushHandle flushes an open volume. It succeeds if the volume has nothing to flush.
func flushHandle(ctx context.Context, h win.DeviceHandle) error {
	err := h.Flush(ctx)
	if winerr.IsAny(err, nothingToFlush...) {
		return nil
	}
	return err
}

// nothingToFlush are the errors of a flush that show that no data are unwritten: the volume is
// write-protected, or its driver doesn't handle the request, since it has no cache. Windows has such
// a driver for a raw volume, and for a volume whose file system is too damaged to be mounted;
// unmounting must work for these volumes too.
//
// Windows reports write protection here or, since a flush needs the right to write, at the open of
// the volume for writing.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/kernel/dispatchflushbuffers-routines
var nothingToFlush = []winerr.Errno{winerr.ErrorWriteProtect, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported}

// volumeObject names the volume in errors. An invalid volume id may contain any text.
func volumeObject(id csiproxy.VolumeID) string { return "volume " + quote.Text(string(id)) }
