// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume does the storage operations on the node's volumes: find them,
// format, mount and grow them.
//
// Each operation first looks at what Windows has and then does what is missing,
// so it may be repeated, also after a process that died half-way through it.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/csi-proxy/csi-proxy/volume"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
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
}

// Options change how the operations behave. The zero value is the default.
type Options struct {
	// AllowRecognizedData lets FormatVolume write over data of another system
	// that it recognises. Default: such a volume is refused. A volume with a
	// file system that Windows knows is refused always.
	AllowRecognizedData bool
	// Logger gets what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Locks serialises changes of the layout of a disk, by disk number. The
	// disk operations of the same node must share it. Default: its own.
	Locks *operation.Locks[disk.Number]
	// Runner runs and observes the operations. The groups of one node share it.
	// Default: its own.
	Runner *operation.Runner
}

// Volumes are the volumes of a node. All methods may be called concurrently.
type Volumes struct {
	sys     System
	paths   *pathpolicy.Policy
	options Options
}

// New returns the operations on the volumes of sys. Paths are reached under
// paths.
func New(sys System, paths *pathpolicy.Policy, o Options) *Volumes {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Locks == nil {
		o.Locks = new(operation.Locks[disk.Number])
	}
	if o.Runner == nil {
		o.Runner = operation.NewRunner(nil)
	}
	return &Volumes{sys: sys, paths: paths, options: o}
}

// Patience with states that pass by themselves.
const (
	arrivalPatience = 10 * time.Second // with a volume that is on its way
	formatPatience  = 5 * time.Second  // with others who have a volume open
	formatInterval  = 100 * time.Millisecond
)

// ListVolumesOnDisk implements [volume.Operations].
func (v *Volumes) ListVolumesOnDisk(ctx context.Context, n disk.Number, partition uint32) ([]volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "ListVolumesOnDisk", "disk "+n.String(), func(ctx context.Context) ([]volume.ID, error) {
		return v.listOnDisk(ctx, n, partition)
	})
}

func (v *Volumes) listOnDisk(ctx context.Context, n disk.Number, partition uint32) ([]volume.ID, error) {
	wanted, err := v.dataPartitions(ctx, n, partition)
	if err != nil || len(wanted) == 0 {
		return []volume.ID{}, err
	}
	volumes, err := device.AwaitVolumes(ctx, v.sys, n, wanted, arrivalPatience)
	if err != nil {
		return nil, err
	}
	ids := []volume.ID{}
	for _, p := range wanted {
		if name, ok := volumes[p]; ok {
			ids = append(ids, volume.ID(name))
		}
	}
	if len(ids) == 0 {
		return nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "no volume of its data partitions has arrived")
	}
	return ids, nil
}

// dataPartitions returns the numbers of the data partitions of an online disk:
// all, or the one asked for if it is one.
func (v *Volumes) dataPartitions(ctx context.Context, n disk.Number, partition uint32) ([]uint32, error) {
	h, err := device.Open(ctx, v.sys, device.PhysicalDrive(n), win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return nil, err
	}
	if attributes&win.DiskOffline != 0 {
		return nil, refuse("the disk is offline")
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if partition == 0 {
		return device.DataPartitions(layout), nil
	}
	for _, p := range layout.Partitions {
		if p.Number != partition {
			continue
		}
		if device.IsDataPartition(p) {
			return []uint32{partition}, nil
		}
		return nil, nil
	}
	return nil, csiproxy.Errorf(csiproxy.ErrNotFound, "it has no partition %d", partition)
}

// DataVolumeOfDisk implements [volume.Operations].
func (v *Volumes) DataVolumeOfDisk(ctx context.Context, n disk.Number) (volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "DataVolumeOfDisk", "disk "+n.String(), func(ctx context.Context) (volume.ID, error) {
		ids, err := v.listOnDisk(ctx, n, 0)
		if err != nil {
			return "", err
		}
		switch len(ids) {
		case 0:
			return "", csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data volume")
		case 1:
			return ids[0], nil
		}
		return "", refuse(fmt.Sprintf("it has %d data volumes, and which one is meant isn't said", len(ids)))
	})
}

func refuse(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: why}
}

// GetDiskNumberFromVolumeID implements [volume.Operations].
func (v *Volumes) GetDiskNumberFromVolumeID(ctx context.Context, id volume.ID) (disk.Number, error) {
	return operation.Get(ctx, v.options.Runner, "GetDiskNumberFromVolumeID", object(id), func(ctx context.Context) (disk.Number, error) {
		h, err := v.open(ctx, id, win.AccessNone)
		if err != nil {
			return 0, err
		}
		defer h.Close()
		extent, err := onlyExtent(ctx, h)
		return disk.Number(extent.DiskNumber), err
	})
}

// onlyExtent returns where a volume lies that isn't spread.
func onlyExtent(ctx context.Context, h device.Handle) (win.DiskExtent, error) {
	extents, err := h.Extents(ctx)
	if err != nil {
		return win.DiskExtent{}, err
	}
	if len(extents) != 1 {
		return win.DiskExtent{}, refuse(fmt.Sprintf("it lies on %d parts of disks", len(extents)))
	}
	return extents[0], nil
}

// open opens the device of a volume. A string that is no volume id is
// csiproxy.ErrInvalidArgument, a volume that isn't there csiproxy.ErrNotFound.
func (v *Volumes) open(ctx context.Context, id volume.ID, access win.Access) (device.Handle, error) {
	if err := id.Validate(); err != nil {
		return device.Handle{}, err
	}
	return device.Open(ctx, v.sys, device.VolumePath(string(id)), access)
}

// information returns the file system of a volume; formatted is false for a raw
// one.
func (v *Volumes) information(ctx context.Context, id volume.ID) (_ win.VolumeInformation, formatted bool, _ error) {
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
	return operation.Get(ctx, v.options.Runner, "IsVolumeFormatted", object(id), func(ctx context.Context) (formatted bool, err error) {
		_, formatted, err = v.information(ctx, id)
		return formatted, err
	})
}

// FormatVolume implements [volume.Operations].
func (v *Volumes) FormatVolume(ctx context.Context, id volume.ID) error {
	return operation.Do(ctx, v.options.Runner, "FormatVolume", object(id), func(ctx context.Context) error {
		return v.withLayout(ctx, id, func(extent win.DiskExtent) error {
			if err := v.checkRaw(ctx, id, extent); err != nil {
				return err
			}
			return v.formatWhenFree(ctx, id)
		})
	})
}

// withLayout calls f with the place of a volume, while nobody else changes the
// layout of its disk. It holds no handle meanwhile, nor while it waits for its
// turn: it would keep the volume from being formatted.
func (v *Volumes) withLayout(ctx context.Context, id volume.ID, f func(win.DiskExtent) error) error {
	extent, err := v.place(ctx, id)
	if err != nil {
		return err
	}
	unlock, err := v.options.Locks.Lock(ctx, extent.DiskNumber)
	if err != nil {
		return err
	}
	defer unlock()
	// Who had the lock before may have grown it.
	if extent, err = v.place(ctx, id); err != nil {
		return err
	}
	return f(extent)
}

// place returns where a volume lies.
func (v *Volumes) place(ctx context.Context, id volume.ID) (win.DiskExtent, error) {
	h, err := v.open(ctx, id, win.AccessNone)
	if err != nil {
		return win.DiskExtent{}, err
	}
	defer h.Close()
	return onlyExtent(ctx, h)
}

// checkRaw refuses a volume that holds anything.
func (v *Volumes) checkRaw(ctx context.Context, id volume.ID, extent win.DiskExtent) error {
	info, formatted, err := v.information(ctx, id)
	if err != nil {
		return err
	}
	if formatted {
		return refuse(fmt.Sprintf("it already has a file system: %s", info.FileSystem))
	}
	sectorSize, err := v.sectorSize(ctx, extent.DiskNumber)
	if err != nil {
		return err
	}
	h, err := v.open(ctx, id, win.GenericRead)
	if err != nil {
		return err
	}
	defer h.Close()
	found, err := signatures.Recognise(ctx, h, extent.Length, sectorSize)
	if err != nil {
		return err
	}
	if found != "" && !v.options.AllowRecognizedData {
		return refuse("it holds " + found)
	}
	return nil
}

// formatWhenFree formats a volume, and waits for those who have it open for a
// moment: virus scanners and the indexer look at every new volume.
func (v *Volumes) formatWhenFree(ctx context.Context, id volume.ID) error {
	inUse := func(err error) bool {
		return errors.Is(err, win.ErrorSharingViolation) || errors.Is(err, win.ErrorLockViolation)
	}
	return operation.Retry(ctx, formatPatience, formatInterval, inUse, func() error {
		return v.sys.FormatVolume(ctx, string(id), win.FormatOptions{FileSystem: "NTFS"})
	})
}

// sectorSize returns the size of the logical sectors of a disk in bytes.
func (v *Volumes) sectorSize(ctx context.Context, diskNumber disk.Number) (uint32, error) {
	h, err := device.Open(ctx, v.sys, device.PhysicalDrive(diskNumber), win.AccessNone)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	geometry, err := h.Geometry(ctx)
	return geometry.BytesPerSector, err
}

// GetVolumeStats implements [volume.Operations].
func (v *Volumes) GetVolumeStats(ctx context.Context, id volume.ID) (volume.Stats, error) {
	return operation.Get(ctx, v.options.Runner, "GetVolumeStats", object(id), func(ctx context.Context) (volume.Stats, error) {
		if err := id.Validate(); err != nil {
			return volume.Stats{}, err
		}
		space, err := v.sys.DiskFreeSpace(ctx, string(id))
		return volume.Stats{TotalBytes: int64(space.Total), UsedBytes: int64(space.Total - space.Free)}, err
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
	err = h.Flush(ctx)
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
