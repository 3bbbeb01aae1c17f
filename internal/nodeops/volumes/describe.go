// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Leads returns what is mounted at the end of a path.
func (v *Volumes) Leads(ctx context.Context, path string) (pathpolicy.Resolved, error) {
	p, err := v.parse(path)
	if err != nil {
		return pathpolicy.Resolved{}, err
	}
	return v.paths.Resolve(ctx, v.sys, p)
}

// Links returns the links and mount points in the allowed directories: see
// [pathpolicy.Policy.Links].
func (v *Volumes) Links(ctx context.Context) (found []pathpolicy.FoundLink, lacking, _ error) {
	return v.paths.Links(ctx, v.sys)
}

// Describe returns what is known of a volume. What is wrong with it is its condition; the
// error is ctx's.
func (v *Volumes) Describe(ctx context.Context, id volume.ID) (storage.Volume, error) {
	d := storage.Volume{VolumeID: id}
	var wrong []string
	// note keeps what Windows refuses, and returns any other error.
	note := func(what string, err error) error {
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		wrong = append(wrong, what+": "+err.Error())
		return nil
	}
	diskReadOnly, gone, err := v.describeDisk(ctx, &d)
	switch {
	case gone && ctx.Err() == nil:
		wrong = append(wrong, "its disk has left the node or is offline")
	case err != nil:
		if err := note("its disk can't be asked", err); err != nil {
			return d, err
		}
	}
	if !gone {
		info, formatted, err := v.information(ctx, id)
		switch {
		case err != nil:
			if err := note("Windows can't read it", err); err != nil {
				return d, err
			}
		case !formatted:
			wrong = append(wrong, "it has no file system")
		default:
			d.FileSystem, d.Label = info.FileSystem, info.Label
			d.ReadOnly = diskReadOnly || info.Flags&win.FileReadOnlyVolume != 0
			if d.ReadOnly && !diskReadOnly {
				wrong = append(wrong, "it is read-only, though its disk isn't")
			}
			if err := v.describeFileSystem(ctx, &d, note); err != nil {
				return d, err
			}
		}
	}
	d.Abnormal, d.Condition = len(wrong) > 0, strings.Join(wrong, "; ")
	return d, nil
}

// describeDisk fills in what is known of a volume's disk. gone says that the volume isn't on
// the node.
func (v *Volumes) describeDisk(ctx context.Context, d *storage.Volume) (readOnly, gone bool, _ error) {
	extent, err := v.extent(ctx, d.VolumeID)
	if errno, ok := errors.AsType[win.Errno](err); ok && (errno.Gone() || errno == win.ErrorNotReady) {
		return false, true, err
	}
	if err != nil {
		return false, false, err
	}
	d.Disk = new(extent.DiskNumber)
	h, err := device.OpenDisk(ctx, v.sys, extent.DiskNumber, win.AccessNone)
	if err != nil {
		return false, false, err
	}
	defer h.Close()
	if err := v.verify(ctx, diskVolume{d.VolumeID, h, extent}); err != nil {
		return false, false, err
	}
	descriptor, err := h.Descriptor(ctx)
	if err != nil {
		return false, false, err
	}
	d.SerialNumber = strings.TrimSpace(descriptor.SerialNumber)
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return false, false, err
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return false, false, err
	}
	switch layout.Style {
	case win.StyleGPT:
		d.DiskID = layout.DiskID.String()
	case win.StyleMBR:
		d.DiskID = fmt.Sprintf("%08x", layout.Signature)
	}
	return attributes&win.DiskReadOnly != 0, false, nil
}

// describeFileSystem fills in the sizes of a file system, and notes whether Windows wants to
// check it.
func (v *Volumes) describeFileSystem(ctx context.Context, d *storage.Volume, note func(string, error) error) error {
	space, err := v.sys.DiskFreeSpace(ctx, string(d.VolumeID))
	if err := note("its size can't be read", err); err != nil {
		return err
	}
	d.TotalBytes, d.FreeBytes, d.UsedBytes = int64(space.Total), int64(space.Free), int64(space.Total-space.Free)
	h, err := v.open(ctx, d.VolumeID, win.GenericRead)
	if err != nil {
		return note("it can't be opened", err)
	}
	defer h.Close()
	if data, err := h.FileSystemData(ctx, d.FileSystem); err == nil {
		d.AllocationUnitBytes = data.BytesPerCluster
	} // else it is neither NTFS nor ReFS
	dirty, err := h.IsDirty(ctx)
	if err == nil && dirty {
		return note("it is dirty", errors.New("its file system is to be checked by Windows"))
	}
	return ctx.Err()
}

// IsGone reports whether a volume isn't on the node.
func (v *Volumes) IsGone(ctx context.Context, id volume.ID) bool {
	_, err := v.extent(ctx, id)
	errno, ok := errors.AsType[win.Errno](err)
	return ok && errno.Gone()
}

// Repair has Windows check a volume, or repair what a check has found, and reports whether
// there are errors.
func (v *Volumes) Repair(ctx context.Context, id volume.ID, mode win.RepairMode) (errorsFound bool, _ error) {
	var result win.RepairResult
	err := operation.Retry(ctx, formatPatience, formatInterval, isUnknownVolume, func() (err error) {
		result, err = v.sys.RepairVolume(ctx, string(id), mode)
		return err
	})
	if err == nil && mode != win.RepairScan {
		v.options.Logger.Info("volume repaired", "volume", id)
	}
	return result != win.RepairNoErrors, err
}

// isUnknownVolume reports whether err says that storage management doesn't know a volume
// yet.
func isUnknownVolume(err error) bool { return errors.Is(err, win.ErrorRetry) }
