// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumes does the storage operations on the node's volumes: find them,
// format, mount and grow them.
//
// Each operation first looks at what Windows has and then does what is missing,
// so it may be repeated, also after a process that died half-way through it.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/csi-proxy/csi-proxy/volume"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/shared"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/signatures"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the operations on volumes use of Windows.
type System interface {
	win.DeviceOpener
	win.Notices
	win.Volumes
	win.Files
	win.Registry
	win.Processes
}

// Options change how the operations behave.
type Options = shared.Options

// Volumes are the volumes of a node. All methods may be called concurrently.
type Volumes struct {
	sys     System
	finder  *opendisk.Finder
	paths   *pathpolicy.Policy
	options Options
}

// New returns the operations on the volumes of sys. Paths are reached under
// paths.
func New(sys System, paths *pathpolicy.Policy, o Options) *Volumes {
	return &Volumes{sys: sys, finder: opendisk.NewFinder(sys), paths: paths, options: o.On(sys, paths)}
}

// Patience with states that pass by themselves.
const (
	arrivalPatience = 10 * time.Second // with a volume that is on its way
	formatPatience  = 15 * time.Second // with those who look at a new volume, and with Windows' list of volumes
	formatInterval  = 500 * time.Millisecond
)

// ListVolumesOnDisk implements [volume.Operations].
func (v *Volumes) ListVolumesOnDisk(ctx context.Context, n disk.Number, partition uint32) ([]volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "ListVolumesOnDisk", "disk "+n.String(),
		func(ctx context.Context) ([]volume.ID, error) {
			h, err := opendisk.Open(ctx, v.sys, n, win.AccessNone)
			if err != nil {
				return nil, err
			}
			defer h.Close()
			wanted, err := dataPartitions(ctx, h, partition)
			if err != nil || len(wanted) == 0 {
				return []volume.ID{}, err
			}
			return v.arrived(ctx, h, wanted)
		})
}

// arrived returns the volumes of partitions of a disk, in their order, and waits for them.
func (v *Volumes) arrived(ctx context.Context, h *opendisk.Disk, partitions []uint32) (ids []volume.ID, _ error) {
	volumes, err := h.AwaitVolumes(ctx, v.finder, partitions, arrivalPatience, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		ids = append(ids, volume.ID(volumes[p]))
	}
	return ids, nil
}

// dataPartitions returns the numbers of the data partitions of an online disk:
// all, or the one asked for if it is one.
func dataPartitions(ctx context.Context, h *opendisk.Disk, partition uint32) ([]uint32, error) {
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return nil, err
	}
	if attributes&win.DiskOffline != 0 {
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

// DataVolumeOfDisk implements [volume.Operations].
func (v *Volumes) DataVolumeOfDisk(ctx context.Context, n disk.Number) (volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "DataVolumeOfDisk", "disk "+n.String(),
		func(ctx context.Context) (volume.ID, error) {
			h, err := opendisk.Open(ctx, v.sys, n, win.AccessNone)
			if err != nil {
				return "", err
			}
			defer h.Close()
			wanted, err := dataPartitions(ctx, h, 0)
			switch {
			case err != nil:
				return "", err
			// Partitions count, not volumes: one that hasn't arrived may be the one that is meant.
			case len(wanted) == 0:
				return "", csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data volume")
			case len(wanted) > 1:
				return "", refuse(fmt.Sprintf("it has %d data partitions; name one of its volumes instead", len(wanted)))
			}
			ids, err := v.arrived(ctx, h, wanted)
			if err != nil {
				return "", err
			}
			return ids[0], nil
		})
}

func refuse(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: why}
}

// GetDiskNumberFromVolumeID implements [volume.Operations].
func (v *Volumes) GetDiskNumberFromVolumeID(ctx context.Context, id volume.ID) (disk.Number, error) {
	return operation.Get(ctx, v.options.Runner, "GetDiskNumberFromVolumeID", object(id),
		func(ctx context.Context) (disk.Number, error) {
			extent, err := use.Extent(ctx, v.sys, id)
			return extent.DiskNumber, err
		})
}

// open opens the device of a volume. A string that is no volume id is
// csiproxy.ErrInvalidArgument, a volume that isn't there csiproxy.ErrNotFound.
func (v *Volumes) open(ctx context.Context, id volume.ID, access win.Access) (device.Handle, error) {
	if err := id.Validate(); err != nil {
		return device.Handle{}, err
	}
	return device.Open(ctx, v.sys, device.VolumePath(string(id)), access)
}

// Information returns the file system of a volume; formatted is false for a raw one.
func (v *Volumes) Information(ctx context.Context, id volume.ID) (_ win.VolumeInformation, formatted bool, _ error) {
	if err := id.Validate(); err != nil {
		return win.VolumeInformation{}, false, err
	}
	info, err := v.sys.VolumeInformation(ctx, string(id))
	if errors.Is(err, win.ErrorUnrecognizedVolume) {
		return win.VolumeInformation{}, false, nil
	}
	return info, err == nil, err
}

// IsVolumeFormatted implements [volume.Operations].
func (v *Volumes) IsVolumeFormatted(ctx context.Context, id volume.ID) (formatted bool, err error) {
	return operation.Get(ctx, v.options.Runner, "IsVolumeFormatted", object(id), func(ctx context.Context) (bool, error) {
		_, formatted, err := v.Information(ctx, id)
		return formatted, err
	})
}

// FormatVolume implements [volume.Operations].
func (v *Volumes) FormatVolume(ctx context.Context, id volume.ID) error {
	return operation.Do(ctx, v.options.Runner, "FormatVolume", object(id), func(ctx context.Context) error {
		ctx, d, extent, err := v.options.Owner.DiskOf(ctx, id)
		if err != nil {
			return err
		}
		defer d.Release()
		ctx, right, err := v.options.Owner.Volume(ctx, id)
		if err != nil {
			return err
		}
		defer right.Release()
		return v.Format(ctx, d, right, extent, win.FormatOptions{FileSystem: "NTFS"})
	})
}

// Format formats a raw volume, which lies at extent of its disk, and waits for those who have
// it open for a moment: virus scanners and the indexer look at every new volume. Before each
// attempt it looks whether the volume is still raw.
func (v *Volumes) Format(
	ctx context.Context, d *use.Disk, right *use.Volume, extent win.DiskExtent, o win.FormatOptions,
) error {
	var failed error // of the attempt before
	return operation.Retry(ctx, formatPatience, formatInterval, formatMaySucceed, func() error {
		if err := v.checkRaw(ctx, right.ID, d.Disk, extent); err != nil {
			if failed != nil && csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
				return &csiproxy.Error{
					Kind: csiproxy.ErrUnavailable, Err: failed,
					Detail: fmt.Sprintf("the format has failed, and the volume has content now (%v); "+
						"check it before you try again", err),
				}
			}
			return err
		}
		start := time.Now()
		failed = v.sys.FormatVolume(ctx, string(right.ID), o)
		if failed == nil {
			v.options.Logger.Info("volume formatted", "volume", right.ID, "disk", d.Number, "fileSystem", o.FileSystem,
				"took", time.Since(start).Round(time.Millisecond))
		}
		return failed
	})
}

// verify returns an error unless a volume lies where it did, on the disk that is open.
func (v *Volumes) verify(ctx context.Context, id volume.ID, d *opendisk.Disk, extent win.DiskExtent) error {
	now, err := use.Extent(ctx, v.sys, id)
	if err != nil {
		return err
	}
	if now != extent {
		return opendisk.ErrChanged("the volume lies at another place")
	}
	return d.Verify(ctx) // so the number in extent was that of this disk
}

// checkRaw refuses a volume that lies elsewhere by now, on another disk than the one that is open,
// or that holds anything. What Windows knows of it is looked at last: what others make of a raw
// volume are file systems of Windows.
func (v *Volumes) checkRaw(ctx context.Context, id volume.ID, d *opendisk.Disk, extent win.DiskExtent) error {
	h, err := v.open(ctx, id, win.GenericRead)
	if err != nil {
		return err
	}
	defer h.Close()
	now, err := h.Extents(ctx)
	if err == nil && !slices.Equal(now, []win.DiskExtent{extent}) {
		err = opendisk.ErrChanged("the volume lies at another place")
	}
	if err == nil {
		err = d.Verify(ctx) // so the number in extent was that of this disk
	}
	if err != nil {
		return err
	}
	geometry, err := d.Geometry(ctx)
	if err != nil {
		return err
	}
	found, err := signatures.Recognise(ctx, h, extent.Length, geometry.BytesPerSector)
	if err != nil {
		return err
	}
	if found != "" && !v.options.AllowRecognizedData {
		return refuse("it holds " + found)
	}
	info, formatted, err := v.Information(ctx, id)
	if err == nil && formatted {
		err = refuse(fmt.Sprintf("it already has a file system: %s", info.FileSystem))
	}
	return err
}

// formatMaySucceed reports whether a format that has failed with err may succeed in a
// moment: the volume was in use (results 2, 3 and 4 of MSFT_Volume.Format don't say more),
// or Windows' list of volumes doesn't have it yet. An error of a look before the format isn't
// transient.
func formatMaySucceed(err error) bool {
	return win.IsAny(err, win.ErrorGenFailure, win.ErrorSemTimeout, win.ErrorRetry) &&
		!errors.As(err, new(*csiproxy.Error))
}

// GetVolumeStats implements [volume.Operations].
func (v *Volumes) GetVolumeStats(ctx context.Context, id volume.ID) (volume.Stats, error) {
	return operation.Get(ctx, v.options.Runner, "GetVolumeStats", object(id),
		func(ctx context.Context) (volume.Stats, error) {
			if err := id.Validate(); err != nil {
				return volume.Stats{}, err
			}
			space, err := v.sys.DiskFreeSpace(ctx, string(id))
			return volume.Stats{SizeBytes: int64(space.Total), UsedBytes: int64(space.Total - space.Free)}, err
		})
}

// WriteVolumeCache implements [volume.Operations].
func (v *Volumes) WriteVolumeCache(ctx context.Context, id volume.ID) error {
	return operation.Do(ctx, v.options.Runner, "WriteVolumeCache", object(id), func(ctx context.Context) error {
		return v.flush(ctx, id)
	})
}

func (v *Volumes) flush(ctx context.Context, id volume.ID) error {
	h, err := v.open(ctx, id, win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	return flushHandle(ctx, h)
}

// flushHandle writes out an open volume.
func flushHandle(ctx context.Context, h device.Handle) error {
	err := h.Flush(ctx)
	if errors.Is(err, win.ErrorWriteProtect) {
		return nil // nothing can be waiting to be written
	}
	return err
}

// object names the volume in errors. A text that is no volume id may hold anything, so
// it is quoted.
func object(id volume.ID) string {
	if id.Validate() != nil {
		return "volume " + strconv.Quote(string(id))
	}
	return "volume " + string(id)
}
