// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Describe returns everything known about a volume. Problems are in the volume's conditions. The
// error is ctx's.
func (v *Volumes) Describe(ctx context.Context, id csiproxy.VolumeID) (csiproxy.Volume, error) {
	described := csiproxy.Volume{VolumeID: id}
	var extents []win.DiskExtent
	h, err := v.open(ctx, id, win.AccessNone)
	if err == nil {
		defer h.Close()
		extents, err = h.Extents(ctx)
	}
	if winerr.IsGone(err) {
		add(&described, csiproxy.ReasonDiskMissing, true, "its disk has left the node or is offline")
		return described, nil
	}
	diskReadOnly := false
	if err == nil {
		diskReadOnly, err = v.describeDisk(ctx, &described, h, extents)
	}
	if ctx.Err() != nil {
		return described, ctx.Err()
	}
	if err != nil {
		add(&described, csiproxy.ReasonDiskUnreadable, false, "its disk can't be asked: "+err.Error())
	}
	info, formatted, err := v.Information(ctx, id)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, winerr.ErrorNotReady):
		add(&described, csiproxy.ReasonVolumeOffline, true, "Windows has it offline: "+err.Error())
	case err != nil:
		add(&described, csiproxy.ReasonUnreadable, true, "Windows can't read it: "+err.Error())
	case !formatted:
		described.FileSystem = csiproxy.NoFileSystem
		add(&described, csiproxy.ReasonNotFormatted, true, "it has no file system")
	default:
		described.FileSystem, described.Label = info.FileSystem, info.Label
		described.ReadOnly = diskReadOnly || info.Flags&win.FileReadOnlyVolume != 0
		if described.ReadOnly && !diskReadOnly {
			add(&described, csiproxy.ReasonReadOnly, false, "it is read-only, though its disk isn't")
		}
		v.describeFileSystem(ctx, &described)
	}
	return described, ctx.Err()
}

// add adds a condition with a problem of a volume.
func add(described *csiproxy.Volume, reason csiproxy.Reason, inaccessible bool, message string) {
	condition := csiproxy.Condition{Reason: reason, Inaccessible: inaccessible, Message: message}
	described.Conditions = append(described.Conditions, condition)
}

// describeDisk fills in everything known about a volume's disk.
func (v *Volumes) describeDisk(ctx context.Context, described *csiproxy.Volume, volume win.DeviceHandle,
	extents []win.DiskExtent) (readOnly bool, _ error) {
	if len(extents) != 1 {
		return false, usage.SpreadError(len(extents))
	}
	described.Disk = &extents[0].DiskNumber
	h, err := opendisk.Open(ctx, v.sys, *described.Disk, win.AccessNone)
	if err != nil {
		return false, err
	}
	defer h.Close()
	// The open handle of the volume proves that the volume is still the same. The volume's disk was
	// present before and after the disk was opened by number, and a disk keeps its number while
	// present. The open disk is therefore the volume's, with enough certainty for a description.
	if extentsAfter, err := volume.Extents(ctx); err != nil || !slices.Equal(extentsAfter, extents) {
		return false, cmp.Or(err, opendisk.ChangedError("the volume has moved to another place"))
	}
	if h.Hardware.DescriptorErr != nil {
		return false, h.Hardware.DescriptorErr
	}
	described.SerialNumber = strings.TrimSpace(h.Hardware.Descriptor.SerialNumber)
	state, err := h.State(ctx)
	if err != nil {
		return false, err
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return false, err
	}
	switch layout.Style {
	case win.StyleGPT:
		described.DiskID = layout.DiskID.String()
	case win.StyleMBR:
		described.DiskID = fmt.Sprintf("%08x", layout.Signature)
	}
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return false, err
	}
	if partition, ok := partitionAt(layout, extents[0]); ok {
		if obstacle := roomFor(layout, partition, geometry).obstacle(); obstacle != nil {
			add(described, csiproxy.ReasonGrowthBlocked, false, obstacle.Error())
		}
	}
	readOnly = state.ReadOnly
	described.Driver, err = v.options.OwnerOf(ctx, h)
	if ctx.Err() == nil && !winerr.IsGone(err) {
		err = nil // only a departed disk is an error; after any other error, the owner is currently unknown
	}
	return readOnly, err
}

// describeFileSystem fills in the sizes of a file system, and adds a condition if Windows wants to
// check the file system.
func (v *Volumes) describeFileSystem(ctx context.Context, described *csiproxy.Volume) {
	space, err := v.sys.DiskFreeSpace(ctx, string(described.VolumeID))
	if err != nil {
		add(described, csiproxy.ReasonUnreadable, true, "its size can't be read: "+err.Error())
	}
	described.SizeBytes = int64(space.Total)
	described.FreeBytes, described.UsedBytes = int64(space.Free), int64(space.Total-space.Free)
	h, err := v.open(ctx, described.VolumeID, win.GenericRead)
	if err != nil {
		add(described, csiproxy.ReasonUnreadable, true, "it can't be opened: "+err.Error())
		return
	}
	defer h.Close()
	if data, err := h.FileSystemData(ctx, described.FileSystem); err == nil {
		described.AllocationUnitBytes = data.BytesPerCluster
	} // only NTFS and ReFS have such data
	dirty, err := isDirty(ctx, h)
	if err != nil {
		add(described, csiproxy.ReasonDirty, false,
			"Windows doesn't say whether its file system needs a check: "+err.Error())
	} else if dirty {
		add(described, csiproxy.ReasonDirty, false, "Windows requires a check of its file system")
	}
}

// isDirty reports whether Windows wants to check a file system.
func isDirty(ctx context.Context, h win.DeviceHandle) (bool, error) {
	dirty, err := h.IsDirty(ctx)
	if winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported) { // the file system has no such flag
		return false, nil
	}
	return dirty, err
}

// Repair has Windows check a volume, or repair the errors found by a check, and reports whether the
// volume has errors.
func (v *Volumes) Repair(ctx context.Context, id csiproxy.VolumeID, mode win.RepairMode) (errorsFound bool, _ error) {
	var result win.RepairResult
	unknownVolume := []winerr.Errno{winerr.ErrorRetry} // storage management doesn't know the volume yet
	err := operation.Retry(ctx, repairTimeout, repairInterval, unknownVolume, func() (err error) {
		result, err = v.sys.RepairVolume(ctx, string(id), mode)
		return err
	})
	if err == nil && mode != win.RepairScan {
		v.options.Logger.Info("volume repaired", "volume", id)
	}
	return result != win.RepairNoErrors, err
}
