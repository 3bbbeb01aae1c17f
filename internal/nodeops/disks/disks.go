// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disk does the storage operations on the node's disks: find them, bring
// them online and partition them.
//
// Each operation first looks at what Windows has and then does what is missing,
// so it may be repeated, also after a process that died half-way through it.
package disks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the operations on disks use of Windows.
type System interface {
	win.Devices
	win.Notices
	win.VolumeNames
}

// Options change how the operations behave. The zero value is the default.
type Options struct {
	// AllowRecognizedData lets PartitionDisk write over data of another system
	// that it recognises. Default: such a disk is refused.
	AllowRecognizedData bool
	// Logger gets what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Locks serialises changes of the layout of a disk, by disk number. The
	// volume operations of the same node must share it. Default: its own.
	Locks *operation.Locks[disk.Number]
	// Runner runs and observes the operations. The groups of one node share it.
	// Default: its own.
	Runner *operation.Runner
}

// Disks are the disks of a node. All methods may be called concurrently.
type Disks struct {
	sys     System
	options Options
	rescan  operation.Shared
}

// New returns the operations on the disks of sys.
func New(sys System, o Options) *Disks {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Locks == nil {
		o.Locks = new(operation.Locks[disk.Number])
	}
	if o.Runner == nil {
		o.Runner = operation.NewRunner(nil)
	}
	return &Disks{sys: sys, options: o}
}

// object names the disk in errors.
func object(n disk.Number) string { return "disk " + n.String() }

// open opens the disk n. A disk that isn't there is csiproxy.ErrNotFound.
func (d *Disks) open(ctx context.Context, n disk.Number, access win.Access) (device.Handle, error) {
	return device.Open(ctx, d.sys, device.PhysicalDrive(n), access)
}

// GetDiskStats implements [disk.Operations].
func (d *Disks) GetDiskStats(ctx context.Context, n disk.Number) (disk.Stats, error) {
	return operation.Get(ctx, d.options.Runner, "GetDiskStats", object(n), func(ctx context.Context) (disk.Stats, error) {
		h, err := d.open(ctx, n, win.AccessNone)
		if err != nil {
			return disk.Stats{}, err
		}
		defer h.Close()
		geometry, err := h.Geometry(ctx)
		return disk.Stats{TotalBytes: geometry.DiskSize}, err
	})
}

// GetDiskState implements [disk.Operations].
func (d *Disks) GetDiskState(ctx context.Context, n disk.Number) (online bool, err error) {
	return operation.Get(ctx, d.options.Runner, "GetDiskState", object(n), func(ctx context.Context) (bool, error) {
		h, err := d.open(ctx, n, win.AccessNone)
		if err != nil {
			return false, err
		}
		defer h.Close()
		attributes, err := h.Attributes(ctx)
		return err == nil && attributes&win.DiskOffline == 0, err
	})
}

// SetDiskState implements [disk.Operations].
func (d *Disks) SetDiskState(ctx context.Context, n disk.Number, online bool) error {
	return operation.Do(ctx, d.options.Runner, "SetDiskState", object(n), func(ctx context.Context) error {
		unlock, err := d.options.Locks.Lock(ctx, n)
		if err != nil {
			return err
		}
		defer unlock()

		h, err := d.open(ctx, n, win.GenericRead|win.GenericWrite)
		if err != nil {
			return err
		}
		defer h.Close()
		if !online {
			return d.takeOffline(ctx, h, n)
		}
		if err := d.bringOnline(ctx, h); err != nil {
			return err
		}
		_, err = d.awaitVolumes(ctx, h, n)
		return err
	})
}

// bringOnline clears the attributes that keep a disk from being used.
func (d *Disks) bringOnline(ctx context.Context, h device.Handle) error {
	const blocking = win.DiskOffline | win.DiskReadOnly
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return err
	}
	if attributes&blocking == 0 {
		return nil
	}
	// Right after its arrival a disk may be refused while the partition manager
	// still works on it.
	err = operation.Retry(ctx, freshDiskPatience, retryInterval, isFreshDiskError, func() error {
		return h.SetAttributes(ctx, 0, blocking)
	})
	if err != nil {
		return err
	}
	if err := h.UpdateProperties(ctx); err != nil {
		return err
	}
	attributes, err = h.Attributes(ctx)
	if err == nil && attributes&blocking != 0 {
		err = &csiproxy.Error{
			Kind:   csiproxy.ErrUnavailable,
			Detail: "Windows accepted the request but the disk is still offline or read-only",
		}
	}
	return err
}

func (d *Disks) takeOffline(ctx context.Context, h device.Handle, n disk.Number) error {
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return err
	}
	if attributes&win.DiskOffline != 0 {
		return nil
	}
	d.flushVolumes(ctx, h, n)
	if err := h.SetAttributes(ctx, win.DiskOffline, win.DiskOffline); err != nil {
		return err
	}
	return h.UpdateProperties(ctx)
}

// flushVolumes writes out the volumes of a disk as far as that is possible. It
// doesn't fail: a driver that takes a disk offline has unmounted its volumes,
// which flushes, and a broken disk must get offline too.
func (d *Disks) flushVolumes(ctx context.Context, h device.Handle, n disk.Number) {
	var volumes device.Volumes
	layout, err := h.Layout(ctx)
	if err == nil {
		volumes, err = device.AwaitVolumes(ctx, d.sys, n, device.DataPartitions(layout), 0)
	}
	if err != nil {
		d.options.Logger.Info("volumes aren't flushed before the disk goes offline", "disk", n, "err", err)
		return
	}
	for _, name := range volumes {
		h, err := device.Open(ctx, d.sys, device.VolumePath(name), win.GenericRead|win.GenericWrite)
		if err == nil {
			err = h.Flush(ctx)
			h.Close()
		}
		if err != nil {
			d.options.Logger.Info("a volume isn't flushed before its disk goes offline", "disk", n, "volume", name, "err", err)
		}
	}
}

// Patience with states that pass by themselves. Windows Server needs up to some
// seconds to have a fresh disk's partitions and volumes ready.
const (
	freshDiskPatience = 10 * time.Second
	volumePatience    = 30 * time.Second
	retryInterval     = 50 * time.Millisecond
)

// isFreshDiskError reports whether err is one that a disk gives for a short time
// after its arrival.
func isFreshDiskError(err error) bool {
	var errno win.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case win.ErrorAccessDenied, win.ErrorWriteProtect, win.ErrorNotReady,
		win.ErrorSharingViolation, win.ErrorBusy:
		return true
	}
	return false
}
