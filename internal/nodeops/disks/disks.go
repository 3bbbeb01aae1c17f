// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disks does the storage operations on the node's disks: find them, bring
// them online and partition them.
//
// Each operation first looks at what Windows has and then does what is missing,
// so it may be repeated, also after a process that died half-way through it. What it
// changes is the disk that had the number when it was called, and it looks at what that
// holds right before each change: see [opendisk.Disk].
package disks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/shared"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the operations on disks use of Windows.
type System interface {
	win.Devices
	win.Notices
	win.FileSystems
	use.System
}

// Options change how the operations behave.
type Options = shared.Options

// DefaultSilentDiskTimeout is the default of Options.SilentDiskTimeout.
const DefaultSilentDiskTimeout = 5 * time.Second

// Disks are the disks of a node. All methods may be called concurrently.
type Disks struct {
	sys     System
	finder  *opendisk.Finder
	options Options
	rescan  rescans

	visits   *visits // of the disks
	adapters *visits
}

// New returns the operations on the disks of sys.
func New(sys System, o Options) *Disks {
	if o.Owner == nil {
		o.Owner = use.Default(sys)
	}
	o = o.On(sys, nil)
	if o.SilentDiskTimeout <= 0 {
		o.SilentDiskTimeout = DefaultSilentDiskTimeout
	}
	return &Disks{sys: sys, finder: opendisk.NewFinder(sys), options: o,
		visits:   newVisits(sys, win.InterfaceClassDisk, o, o.OnSkippedDisks),
		adapters: newVisits(sys, win.InterfaceClassStoragePort, o, nil)}
}

// object names the disk in errors.
func object(n disk.Number) string { return "disk " + n.String() }

// open opens the disk n. A disk that isn't there is csiproxy.ErrNotFound.
func (d *Disks) open(ctx context.Context, n disk.Number, access win.Access) (*opendisk.Disk, error) {
	h, err := opendisk.Open(ctx, d.sys, n, access)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.noSuchDisk(ctx, n, err)
	}
	return h, err
}

// noSuchDisk says in err which disks there are.
func (d *Disks) noSuchDisk(ctx context.Context, n disk.Number, err error) error {
	numbers, listErr := d.numbers(ctx)
	if listErr != nil || len(numbers) == 0 || slices.Contains(numbers, n) {
		return err
	}
	return &csiproxy.Error{Detail: fmt.Sprintf("there is no disk %d; the node has %s", n, enumerate(numbers)), Err: err}
}

// enumerate names numbers in a sentence: "0, 1 and 2".
func enumerate(numbers []disk.Number) string {
	var b strings.Builder
	for i, n := range numbers {
		switch {
		case i > 0 && i == len(numbers)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(n.String())
	}
	return b.String()
}

// change calls f with the right to the disk that has the number n now. The disk may have
// left, or have got another number, while the right was waited for: f verifies it right
// before each change.
func (d *Disks) change(ctx context.Context, n disk.Number, f func(context.Context, *use.Disk) error) error {
	ctx, right, err := d.options.Owner.Disk(ctx, n)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.noSuchDisk(ctx, n, err)
	}
	if err != nil {
		return err
	}
	defer right.Release()
	return f(ctx, right)
}

// GetDiskStats implements [disk.Operations].
func (d *Disks) GetDiskStats(ctx context.Context, n disk.Number) (disk.Stats, error) {
	return operation.Get(ctx, d.options.Runner, "GetDiskStats", object(n),
		func(ctx context.Context) (stats disk.Stats, _ error) {
			h, err := d.open(ctx, n, win.AccessNone)
			if err != nil {
				return stats, err
			}
			defer h.Close()
			geometry, err := h.Geometry(ctx)
			stats.SizeBytes = geometry.DiskSize
			return stats, err
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
		return d.change(ctx, n, func(ctx context.Context, h *use.Disk) error {
			attributes, err := h.Attributes(ctx)
			if err != nil {
				return err
			}
			if !online {
				return d.setOffline(ctx, h, attributes)
			}
			if attributes&win.DiskOffline != 0 {
				layout, err := h.Layout(ctx)
				if err == nil {
					err = d.SettleClone(ctx, h, layout, d.options.NewIDsForClones, false)
				}
				if err != nil {
					return err
				}
			}
			mask, err := d.maskOf(ctx, h, attributes)
			if err != nil {
				return err
			}
			if _, err := d.Clear(ctx, h, mask); err != nil {
				return err
			}
			_, err = d.AwaitVolumes(ctx, h, mask, d.options.NewIDsForClones)
			return err
		})
	})
}

// setOffline takes a disk offline unless a volume of it is mounted in the allowed
// directories: a pod may be using it.
func (d *Disks) setOffline(ctx context.Context, h *use.Disk, attributes win.DiskAttributes) error {
	if attributes&win.DiskOffline != 0 {
		return nil
	}
	volumes, paths, err := d.Mounted(ctx, h)
	if err != nil { // one error proves nothing
		volumes, paths, err = d.Mounted(ctx, h)
	}
	if err != nil {
		// A broken disk must get offline, too, if nobody uses it.
		d.options.Logger.Warn("a disk that is to go offline doesn't say where its volumes are mounted", "disk", h.Number,
			"err", err)
		paths, err = d.options.Owner.MountsOf(ctx, h.Number)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
				Detail: "whether a volume of it is mounted can't be found out; try again later"}
		}
	}
	staged, err := d.options.Owner.Allowed(ctx, paths)
	if err != nil {
		return err
	}
	if len(staged) > 0 {
		return refuse("a volume of it is mounted at " + use.Listed(staged) + "; unmount it first")
	}
	return d.TakeOffline(ctx, h, volumes, 0)
}

// Blocking are the attributes that keep a disk from being used.
const Blocking = win.DiskOffline | win.DiskReadOnly

// maskOf returns the attributes that are to be cleared so that a disk with attributes can be
// used: one that is staged read-only stays so.
func (d *Disks) maskOf(ctx context.Context, h *use.Disk, attributes win.DiskAttributes) (win.DiskAttributes, error) {
	if attributes&win.DiskReadOnly == 0 {
		return Blocking, nil
	}
	staged, err := d.StagedReadOnly(ctx, h, attributes)
	if len(staged) > 0 {
		return win.DiskOffline, nil
	}
	return Blocking, err
}

// StagedReadOnly returns where volumes of a read-only disk with attributes are mounted: somebody has
// staged it so. A disk that nobody uses may be read-only for any reason, such as that the one before
// it at its place was.
//
// The volumes of a disk that is offline don't show. If one may be mounted, the disk goes
// online for a look, read-only, and offline again if none is.
func (d *Disks) StagedReadOnly(ctx context.Context, h *use.Disk,
	attributes win.DiskAttributes) (paths []string, _ error) {
	offline := attributes&win.DiskOffline != 0
	if offline {
		awaited, err := d.options.Owner.MountsAway(ctx)
		if err != nil || !awaited {
			return nil, err
		}
		layout, err := h.Layout(ctx)
		if err != nil {
			return nil, err
		}
		// A copy can't go online for that. What is mounted with its ids is of its original.
		if _, id, err := d.findOriginal(ctx, h.Number, tableIDs(layout), false); err != nil || id != "" {
			return nil, err
		}
		if _, err := d.Clear(ctx, h, win.DiskOffline); err != nil {
			return nil, err
		}
		if _, err := d.AwaitVolumes(ctx, h, win.DiskOffline, false); err != nil {
			return nil, err
		}
	}
	volumes, paths, err := d.Mounted(ctx, h)
	if err != nil || len(paths) > 0 {
		return paths, err
	}
	if !offline {
		now, err := h.Attributes(ctx)
		if err == nil && now&win.DiskOffline != 0 { // so its volumes weren't there to be asked
			err = opendisk.ErrChanged("it went offline")
		}
		return nil, err
	}
	return nil, d.TakeOffline(ctx, h, volumes, 0)
}

// Mounted returns the volumes of an online disk, and at which directories they are mounted. One
// that hasn't arrived yet may be one that is mounted in the allowed directories and isn't there:
// if there is such a one, it is waited for.
func (d *Disks) Mounted(ctx context.Context, h *use.Disk) (volumes opendisk.Volumes, paths []string, _ error) {
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, nil, err
	}
	wanted := opendisk.DataPartitions(layout)
	if volumes, err = h.AwaitVolumes(ctx, d.finder, wanted, 0, nil); err != nil {
		return nil, nil, err
	}
	if len(volumes) < len(wanted) {
		awaited, err := d.options.Owner.MountsAway(ctx)
		if err == nil && awaited {
			volumes, err = h.AwaitVolumes(ctx, d.finder, wanted, freshDiskPatience, nil)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for _, name := range volumes {
		at, err := opendisk.MountedAt(ctx, d.sys, name)
		if err != nil {
			return nil, nil, err
		}
		paths = append(paths, use.Directories(at)...)
	}
	slices.Sort(paths)
	return volumes, paths, nil
}

// Clear clears those attributes of mask that a disk has, and returns them.
func (d *Disks) Clear(ctx context.Context, h *use.Disk,
	mask win.DiskAttributes) (before win.DiskAttributes, err error) {
	before, err = h.Attributes(ctx)
	if before &= mask; err != nil || before == 0 {
		return 0, err
	}
	// First read-only: the file systems are mounted as soon as the disk is online, and
	// would be so for reading only. Those of a disk that is online may be mounted so already, and
	// may stay so, so it goes offline for that.
	type change struct{ attributes, mask win.DiskAttributes }
	changes := []change{{0, before & win.DiskReadOnly}, {0, before & win.DiskOffline}}
	if before == win.DiskReadOnly {
		changes = []change{{win.DiskOffline, win.DiskOffline | win.DiskReadOnly}, {0, win.DiskOffline}}
	}
	for _, c := range changes {
		if c.mask == 0 {
			continue
		}
		// Right after its arrival a disk may be refused while the partition manager
		// still works on it.
		err := operation.Retry(ctx, freshDiskPatience, retryInterval, isFreshDiskError, func() error {
			if err := h.Verify(ctx); err != nil {
				return err
			}
			return h.SetAttributes(ctx, c.attributes, c.mask)
		})
		if err != nil {
			return 0, err
		}
	}
	if err := h.UpdateProperties(ctx); err != nil {
		return 0, err
	}
	now, err := h.Attributes(ctx)
	switch {
	case err != nil:
		return before, err
	case now&mask != 0 && d.isCopy(ctx, h.Number):
		return before, refuse(copyIsOnline)
	case now&mask != 0:
		return before, csiproxy.Errorf(csiproxy.ErrUnavailable,
			"Windows accepted the request, but the disk is still offline or read-only; try again")
	}
	d.options.Logger.Info("disk brought online", "disk", h.Number,
		"wasOffline", before&win.DiskOffline != 0, "wasReadOnly", before&win.DiskReadOnly != 0)
	return before, nil
}

// isCopy reports whether Windows says that it keeps a disk offline since another one has the same
// ids. Those of a disk whose table Windows hides while it is offline can't be compared before.
func (d *Disks) isCopy(ctx context.Context, n disk.Number) bool {
	reasons, err := d.sys.OfflineReasons(ctx)
	return err == nil && reasons[n] == win.OfflineCollision
}

// copyIsOnline is why a disk stays offline.
const copyIsOnline = "it is a copy of a disk that is online, and Windows can't have both online; detach one of them"

// putBack gives a disk the attributes again that Clear has cleared, after the disk
// turned out to be one that must not be written to.
func (d *Disks) putBack(ctx context.Context, h *use.Disk, attributes win.DiskAttributes) {
	if attributes == 0 {
		return
	}
	if err := h.SetAttributes(ctx, attributes, attributes); err != nil {
		d.options.Logger.Warn("a disk that was refused stays online and writable", "disk", h.Number, "err", err)
		return
	}
	d.options.Logger.Info("disk put back, since it was refused", "disk", h.Number,
		"offline", attributes&win.DiskOffline != 0, "readOnly", attributes&win.DiskReadOnly != 0)
}

// TakeOffline takes a disk offline, after it has written out its volumes as far as that is
// possible: a broken disk must get offline, too.
//
// staged are the attributes of a disk that was staged: if it was so read-only, it is writable
// from then on, since Windows keeps the attribute for the place of the disk, and the next disk
// there would inherit it. One call does both: if the disk leaves or the process dies after the
// call, a repeated UnstageVolume may not know the disk any more.
func (d *Disks) TakeOffline(ctx context.Context, h *use.Disk, volumes opendisk.Volumes,
	staged win.DiskAttributes) error {
	for _, name := range volumes {
		err := d.onVolume(ctx, name, func(h device.Handle, ctx context.Context) error { return h.Flush(ctx) })
		if err != nil && !errors.Is(err, win.ErrorWriteProtect) { // nothing can be waiting to be written
			d.options.Logger.Warn("a volume isn't flushed before its disk goes offline", "disk", h.Number,
				"volume", name, "err", err)
		}
	}
	if err := h.Verify(ctx); err != nil {
		return err
	}
	change := win.DiskOffline&^staged | win.DiskReadOnly&staged
	if err := h.SetAttributes(ctx, win.DiskOffline&change, change); err != nil {
		return err
	}
	if change&win.DiskOffline != 0 {
		d.options.Logger.Info("disk taken offline", "disk", h.Number)
	}
	if change&win.DiskReadOnly != 0 {
		d.options.Logger.Info("disk made writable, since it is staged no more", "disk", h.Number)
	}
	return h.UpdateProperties(ctx)
}

// onVolume calls f with a volume, open for reading and writing.
func (d *Disks) onVolume(ctx context.Context, name string, f func(device.Handle, context.Context) error) error {
	h, err := device.Open(ctx, d.sys, device.VolumePath(name), win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	return f(h, ctx)
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
	return win.IsAny(err, win.ErrorAccessDenied, win.ErrorWriteProtect, win.ErrorNotReady, win.ErrorSharingViolation,
		win.ErrorBusy)
}
