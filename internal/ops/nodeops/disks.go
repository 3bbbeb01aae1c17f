// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/published"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// diskOptions configure the operations.
type diskOptions struct {
	// AllowRecognizedData lets PartitionDisk overwrite data that it recognises as another system's.
	// Default: PartitionDisk refuses.
	AllowRecognizedData bool
	// RefuseClones keeps a disk offline if its ids are those of an online disk, as with a snapshot
	// next to its original. Default: Windows gives the copy new ids.
	RefuseClones bool
	// Driver is the driver whose disks the system of newDisks shows. Default: it shows all disks of
	// the node.
	Driver string
	// Shared is the state shared by the disk operations of a node and of its drivers.
	Shared *SharedDisks
	// Lists makes the calls on all disks of the node.
	Lists win.System
	// OwnerOf returns the name of the driver that owns a disk opened by Lists; "" for a disk without
	// an owner.
	OwnerOf func(ctx context.Context, disk *opendisk.Disk) (driver string, err error)

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

// DefaultSilentDiskTimeout is the default of sharedDiskOptions.SilentDiskTimeout.
const DefaultSilentDiskTimeout = 5 * time.Second

// SharedDisks is the state shared by the disk operations of a node and of its drivers: the findings
// of the queries of all disks.
type SharedDisks struct {
	log      *slog.Logger
	disks    *devices
	adapters *devices
}

// sharedDiskOptions configure the queries of all disks.
type sharedDiskOptions struct {
	// SilentDiskTimeout is how long calls on all disks wait for a silent disk. Default:
	// DefaultSilentDiskTimeout.
	SilentDiskTimeout time.Duration
	// OnSkippedDisks is called with the number of disks that calls on all disks skip, because the
	// disks are silent or answer with errors, whenever the number changes. Default: none.
	OnSkippedDisks func(count int)
	// Logger gets the disks that the queries skip.
	Logger *slog.Logger
}

// newSharedDisks returns the state shared by the disk operations on a node.
func newSharedDisks(o sharedDiskOptions) *SharedDisks {
	if o.SilentDiskTimeout <= 0 {
		o.SilentDiskTimeout = DefaultSilentDiskTimeout
	}
	return &SharedDisks{log: o.Logger,
		disks:    newDevices(win.InterfaceClassDisk, o, o.OnSkippedDisks),
		adapters: newDevices(win.InterfaceClassStoragePort, o, nil)}
}

// Disks are the disks of a node, or of one driver. All methods may be called concurrently.
type Disks struct {
	sys     win.System
	options diskOptions

	queries queries                           // of disks and adapters
	rescans operation.NextRun[bool, struct{}] // the key is true if Windows re-enumerates the whole device tree
}

// newDisks returns the operations on the disks of sys. Comparisons of a driver's disk with further
// disks, as with the original of a clone, cover all disks of the node.
func newDisks(sys win.System, o diskOptions) *Disks {
	d := &Disks{sys: sys, options: o}
	d.queries.init(d)
	d.rescans.Timeout = scanTimeout(d.options.Shared.disks.timeout)
	return d
}

// OwnerHas returns a text for errors: that the node, or the driver, has disks.
func (d *Disks) OwnerHas(disks string) string {
	if d.options.Driver == "" {
		return "the node has " + disks
	}
	return "driver " + d.options.Driver + " has " + disks + " (by its patterns in the file of drivers)"
}

// scanTimeout returns how long a rescan or a query may take, given the timeout for one silent
// device. The time has three equal parts: for silent adapters, for silent disks, and for Windows to
// find disks. A rescan that takes longer is hanging: in Windows' list of disks or in the device tree.
// Calls that stage a volume then fail at the timeout, before their deadlines.
func scanTimeout(silentDisk time.Duration) time.Duration { return 3 * silentDisk }

// diskObject names the disk in errors.
func diskObject(n csiproxy.DiskNumber) string { return "disk " + n.String() }

// open opens the disk n. A missing disk is csiproxy.ErrNotFound.
func (d *Disks) open(ctx context.Context, n csiproxy.DiskNumber, access win.Access) (*opendisk.Disk, error) {
	h, err := opendisk.Open(ctx, d.sys, n, access)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.noSuchDisk(ctx, n, err)
	}
	return h, err
}

// noSuchDisk adds the existing disks to err.
func (d *Disks) noSuchDisk(ctx context.Context, n csiproxy.DiskNumber, err error) error {
	numbers, listErr := d.numbers(ctx)
	if listErr != nil || slices.Contains(numbers, n) {
		return err
	}
	if len(numbers) == 0 { // "no disks" would be wrong beside a silent disk of unknown number
		if paths, listErr := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk); listErr != nil || len(paths) > 0 {
			return err
		}
	}
	has := d.OwnerHas(enumerate(numbers))
	if d.options.Driver == "" { // for a driver, err says already that the disk isn't there
		has = fmt.Sprintf("there is no disk %d; %s", n, has)
	}
	return &csiproxy.Error{Detail: has, Err: err}
}

// enumerate names disks in a sentence: "no disks", "disk 0", "disks 0, 1 and 2".
func enumerate(numbers []csiproxy.DiskNumber) string {
	var b strings.Builder
	switch len(numbers) {
	case 0:
		return "no disks"
	case 1:
		b.WriteString("disk ")
	default:
		b.WriteString("disks ")
	}
	for i, n := range numbers {
		if i > 0 && i == len(numbers)-1 {
			b.WriteString(" and ")
		} else if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(n.String())
	}
	return b.String()
}

// lockDisk locks the disk with the current number n: see [usage.Locker.LockDisk].
func (d *Disks) lockDisk(ctx context.Context, n csiproxy.DiskNumber) (*usage.LockedDisk, error) {
	lockedDisk, err := d.options.Locks.LockDisk(ctx, n)
	if errors.Is(err, fs.ErrNotExist) {
		err = d.noSuchDisk(ctx, n, err)
	}
	return lockedDisk, err
}

// GetDiskStats implements [published.DiskOperations].
func (d *Disks) GetDiskStats(ctx context.Context, n csiproxy.DiskNumber) (stats published.DiskStats, err error) {
	defer d.options.Observer.End("GetDiskStats", diskObject(n), time.Now(), &err)
	h, err := d.open(ctx, n, win.AccessNone)
	if err != nil {
		return stats, err
	}
	defer h.Close()
	geometry, err := h.Geometry(ctx)
	stats.SizeBytes = geometry.DiskSize
	return stats, err
}

// GetDiskState implements [published.DiskOperations].
func (d *Disks) GetDiskState(ctx context.Context, n csiproxy.DiskNumber) (online bool, err error) {
	defer d.options.Observer.End("GetDiskState", diskObject(n), time.Now(), &err)
	h, err := d.open(ctx, n, win.AccessNone)
	if err != nil {
		return false, err
	}
	defer h.Close()
	state, err := h.State(ctx)
	return err == nil && !state.Offline, err
}

// IsOnline reports whether a disk of the node is online. A driver may ask about disks of all
// drivers.
func (d *Disks) IsOnline(ctx context.Context, n csiproxy.DiskNumber) (bool, error) {
	h, err := opendisk.Open(ctx, d.options.Lists, n, win.AccessNone)
	if err != nil {
		return false, err
	}
	defer h.Close()
	state, err := h.State(ctx)
	return err == nil && !state.Offline, err
}

// SetDiskState implements [published.DiskOperations].
func (d *Disks) SetDiskState(ctx context.Context, n csiproxy.DiskNumber, online bool) (err error) {
	defer d.options.Observer.End("SetDiskState", diskObject(n), time.Now(), &err)
	h, err := d.lockDisk(ctx, n)
	if err != nil {
		return err
	}
	defer h.Release()
	state, err := h.State(ctx)
	if err != nil {
		return err
	}
	if !online {
		return d.setOffline(ctx, h, state)
	}
	if state.Offline {
		if _, err := d.checkOffline(ctx, h); err != nil {
			return err
		}
	}
	wanted, err := d.onlineState(ctx, h, state)
	if err != nil {
		return err
	}
	return d.WhileOnline(ctx, h, state, wanted, nil, func(layout *win.DriveLayout) error {
		volumes, err := d.AwaitVolumes(ctx, h, layout, wanted)
		for _, name := range volumes {
			// The disk is online even if a volume has a problem. Calls on the volume report the
			// problem.
			_, _ = d.BringVolumeOnline(ctx, n, name)
		}
		return err
	})
}

// setOffline takes a disk offline. It refuses if one of the disk's volumes is mounted in the
// allowed directories: a pod may be using the volume.
func (d *Disks) setOffline(ctx context.Context, h *usage.LockedDisk, state win.DiskState) error {
	if state.Offline {
		return nil
	}
	volumes, paths, err := d.Mounted(ctx, h)
	if err != nil { // a single error may be transient
		volumes, paths, err = d.Mounted(ctx, h)
	}
	if err != nil {
		// A broken, unused disk must go offline, too. MountsOf searches the directories, and asks the
		// disk nothing.
		d.options.Logger.Warn("can't find out where the volumes of a disk are mounted before it goes offline", "disk", h.Number,
			"err", err)
		paths, err = d.options.Users.MountsOf(ctx, h.Number)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
				Detail: "Windows doesn't say whether a volume of the disk is mounted; try again later"}
		}
	}
	if len(paths) > 0 {
		return refuse("a volume of it is mounted at " + quote.List(paths) + "; unmount it first")
	}
	return d.TakeOffline(ctx, h, volumes, state, win.DiskState{Offline: true, ReadOnly: state.ReadOnly})
}

// onlineState returns the state to bring a disk to for use: online and, except for a disk staged
// read-only, writable.
func (d *Disks) onlineState(ctx context.Context, h *usage.LockedDisk, state win.DiskState) (win.DiskState, error) {
	if state.Offline || !state.ReadOnly {
		return onlineWritable, nil
	}
	staged, err := d.StagedReadOnly(ctx, h)
	return win.DiskState{ReadOnly: len(staged) > 0}, err
}

// StagedReadOnly returns where volumes of an online, read-only disk are mounted. A result with
// paths means that the disk was staged read-only. A disk without mounted volumes may be read-only
// for another reason: for example, the previous disk in its place was read-only. If the disk has
// gone offline, StagedReadOnly fails with opendisk.ChangedError (csiproxy.ErrUnavailable).
func (d *Disks) StagedReadOnly(ctx context.Context, h *usage.LockedDisk) (paths []string, _ error) {
	_, paths, err := d.Mounted(ctx, h)
	if err != nil || len(paths) > 0 {
		return paths, err
	}
	state, err := h.State(ctx)
	if err == nil && state.Offline { // an offline disk has no volumes to query
		err = opendisk.ChangedError("it went offline")
	}
	return nil, err
}

// Mounted returns the volumes of an online disk, and the allowed directories where they are
// mounted. Mount points elsewhere may be planted, and must not cause refusals.
func (d *Disks) Mounted(ctx context.Context, h *usage.LockedDisk) (volumes opendisk.Volumes, paths []string, err error) {
	if volumes, err = d.Volumes(ctx, h); err != nil {
		return nil, nil, err
	}
	if paths, err = d.DirectoriesOf(ctx, volumes); err != nil {
		return nil, nil, err
	}
	return volumes, d.options.Users.Allowed(paths), nil
}

// Volumes returns the volumes of an online disk. If a volume of the disk hasn't arrived, and an
// allowed directory is the mount point of a volume that is missing on the node, the mount point may
// belong to the volume of this disk. Volumes then waits for the arrival.
func (d *Disks) Volumes(ctx context.Context, h *usage.LockedDisk) (volumes opendisk.Volumes, _ error) {
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	wanted := opendisk.DataPartitions(layout)
	if volumes, err = h.PresentVolumes(ctx, d.sys, d.options.Lists, wanted); err != nil {
		return nil, err
	}
	if len(volumes) < len(wanted) {
		awaited, err := d.options.Users.MountsMissingVolume(ctx, h.Number)
		if err == nil && awaited {
			volumes, err = h.AwaitVolumes(ctx, d.sys, d.options.Lists, wanted, freshDiskTimeout)
		}
		if err != nil {
			return nil, err
		}
	}
	return volumes, nil
}

// DirectoriesOf returns the directories at which volumes are mounted, sorted.
func (d *Disks) DirectoriesOf(ctx context.Context, volumes opendisk.Volumes) (paths []string, _ error) {
	for _, name := range volumes {
		mounted, err := d.options.Users.MountedAt(ctx, name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, usage.Directories(mounted)...)
	}
	slices.Sort(paths)
	return paths, nil
}

// Timeouts for transient states. Windows Server needs up to some seconds to prepare the partitions
// and volumes of a fresh disk.
const (
	freshDiskTimeout = 10 * time.Second
	volumeTimeout    = 30 * time.Second
)
