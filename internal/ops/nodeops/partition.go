// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// The layout of Windows' own tools on disks of 16 GiB or more: a reserved partition that ends at 16
// MiB, then a basic data partition; partitions end on whole MiB. On small disks, Windows' tools use
// the space up to the last usable sector: the published tests record a partition of 1056947712
// bytes on a disk of 1 GiB, ending 33 sectors before the disk's end. Our partitions end on whole
// MiB on all disks.
const (
	mebibyte          = 1 << 20
	reservedEnd       = 16 * mebibyte
	maximumPartitions = 128
)

// PartitionDisk implements [published.DiskOperations].
func (d *Disks) PartitionDisk(ctx context.Context, n csiproxy.DiskNumber) (err error) {
	defer d.options.Observer.End("PartitionDisk", diskObject(n), time.Now(), &err)
	h, err := d.lockDisk(ctx, n)
	if err != nil {
		return err
	}
	defer h.Release()
	before, err := h.State(ctx)
	if err != nil {
		return err
	}
	shown, err := d.CheckBeforeChange(ctx, h, before)
	if err != nil {
		return err
	}
	if before.Offline && shown != nil { // the volumes arrive when a caller brings the disk online
		return nil
	}
	wanted, err := d.onlineState(ctx, h, before)
	if err != nil {
		return err
	}
	return d.WhilePartitioned(ctx, h, before, wanted, func(layout *win.DriveLayout, made bool) error {
		if before.Offline && !made {
			// Windows shows the partitions only now. Had Windows shown them before, this call would
			// have left the disk offline.
			d.PutBack(ctx, h, before)
			return nil
		}
		volumes, err := d.AwaitVolumes(ctx, h, layout, wanted)
		for _, name := range volumes {
			_, onlineErr := d.BringVolumeOnline(ctx, n, name)
			err = errors.Join(err, onlineErr)
		}
		return err
	})
}

// CheckBeforeChange returns an error if a disk must stay offline or read-only, because the disk
// holds data of another system or is an unwanted copy. For an offline disk, it returns the table if
// Windows shows partitions in it; for some disks, Windows shows none before they are online. For an
// online, read-only disk, it returns the table. An online, writable disk isn't checked.
func (d *Disks) CheckBeforeChange(ctx context.Context, h *usage.LockedDisk, state win.DiskState) (shown *win.DriveLayout, err error) {
	if state.Offline {
		// If Windows shows partitions of the offline disk, check them now. Going online could change
		// a disk partitioned by others: Windows mounts the volumes and starts using storage pools.
		if shown, err = d.checkOffline(ctx, h); err == nil && shown != nil {
			err = refuseForeign(shown)
		}
	} else if state.ReadOnly {
		if shown, err = h.Layout(ctx); err == nil {
			_, err = d.inspect(ctx, h, shown)
		}
	}
	return shown, err
}

// WhilePartitioned is WhileOnline for a disk with a data partition. An empty disk gets a data
// partition, and made tells use that this call made the partition. Foreign contents are an error,
// and the disk stays unchanged. As in WhileOnline, use may run several times; made stays true.
func (d *Disks) WhilePartitioned(ctx context.Context, h *usage.LockedDisk, before, wanted win.DiskState,
	use func(layout *win.DriveLayout, made bool) error) error {
	// Going online may take a while, and somebody else may partition the disk meanwhile. All checks
	// are therefore done right before each write.
	partitionMissing, made := false, false
	judge := func(layout *win.DriveLayout) (err error) {
		partitionMissing, err = d.inspect(ctx, h, layout)
		return err
	}
	return d.WhileOnline(ctx, h, before, wanted, judge, func(layout *win.DriveLayout) error {
		if !partitionMissing {
			return use(layout, made)
		}
		if err := d.writeTable(ctx, h, layout); err != nil {
			return err
		}
		made = true
		d.updateProperties(ctx, h)
		layout, err := h.Layout(ctx)
		if err != nil {
			return err
		}
		return use(layout, made)
	})
}

// checkOffline returns an error if an offline disk must stay offline: as an unwanted copy, or as a
// disk with data of another system and no partition table. A user has seen Windows write a
// signature into the first sector of such a disk
// (https://github.com/exfatprogs/exfatprogs/issues/261). shown is the table if Windows shows
// partitions in it: for some disks, Windows shows none before they are online.
func (d *Disks) checkOffline(ctx context.Context, h *usage.LockedDisk) (shown *win.DriveLayout, _ error) {
	if err := d.refuseUnwantedCopy(ctx, h); err != nil {
		return nil, err
	}
	layout, err := h.Layout(ctx)
	if err != nil { // as for some offline disks
		layout = nil
	} else if hasPartition(layout) {
		return layout, nil
	}
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return nil, err
	}
	contents, err := readContents(ctx, h, geometry, layout)
	if err != nil || contents.HasTable {
		return nil, err
	}
	return nil, d.refuseRecognized(contents)
}

// readContents reads the contents that identify the system whose data a disk holds. layout is the
// disk's table, or nil if Windows returns no table. Reading takes a while, and ends with a
// verification of disk and table.
func readContents(ctx context.Context, h *usage.LockedDisk, geometry win.DiskGeometryEx, layout *win.DriveLayout) (
	opendisk.Contents, error) {
	contents, err := opendisk.ReadContents(ctx, h, geometry.DiskSize, geometry.BytesPerSector)
	if err == nil {
		err = h.Verify(ctx)
	}
	if err == nil && layout != nil {
		err = h.VerifyLayout(ctx, layout)
	}
	return contents, err
}

// refuseRecognized returns an error if a disk without a partition table holds data of another
// system.
func (d *Disks) refuseRecognized(contents opendisk.Contents) error {
	if found := contents.Recognised; found != "" && !d.options.AllowRecognizedData {
		return refuse("it has no partition table that Windows reads, but holds " + found)
	}
	return nil
}

// inspect reports whether the table of an online disk lacks a data partition. If the partition is
// missing, and the disk has foreign contents or is too small, inspect returns an error; at the end,
// it reads the table again: a changed table means that somebody has begun to use the disk.
func (d *Disks) inspect(ctx context.Context, h *usage.LockedDisk, layout *win.DriveLayout) (partitionMissing bool, _ error) {
	if hasPartition(layout) {
		return false, refuseForeign(layout)
	}
	if err := d.options.Users.CheckEmptyDisk(ctx, h.Disk); err != nil {
		return false, err
	}
	if layout.Style == win.StyleMBR {
		return false, refuse("it has an MBR partition table without partitions; " +
			"clean the disk if nothing on it is needed")
	}
	if layout.Style == win.StyleGPT {
		if _, err := partitionsToAdd(layout); err != nil { // too small
			return false, err
		}
		err := cmp.Or(h.Verify(ctx), h.VerifyLayout(ctx, layout))
		return err == nil, err
	}
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return false, err
	}
	// A GPT will need room for a header and an array of entries at the disk's end.
	const entries = maximumPartitions * 128
	end := (geometry.DiskSize - entries - int64(geometry.BytesPerSector)) / mebibyte * mebibyte
	if end-reservedEnd < mebibyte {
		return false, refuse(fmt.Sprintf("it is too small for a data partition: %d bytes", geometry.DiskSize))
	}
	contents, err := readContents(ctx, h, geometry, layout)
	if err != nil {
		return false, err
	}
	if err := d.refuseRecognized(contents); err != nil {
		return false, err
	}
	return true, nil
}

// refuseForeign returns an error for a table with partitions, but without a data partition.
func refuseForeign(l *win.DriveLayout) error {
	if len(opendisk.DataPartitions(l)) > 0 {
		return nil
	}
	return refuse("it has partitions, but none of a type that Windows makes a volume for")
}

// hasPartition reports whether a table has a partition besides Microsoft's reserved partition.
func hasPartition(l *win.DriveLayout) bool {
	for _, p := range l.Partitions {
		switch l.Style {
		case win.StyleGPT:
			if !p.Type.IsZero() && p.Type != win.PartitionTypeMicrosoftReserved {
				return true
			}
		case win.StyleMBR:
			// Blank removable disks show one entry at offset 0.
			if p.MBRType != 0 && p.StartingOffset > 0 {
				return true
			}
		}
	}
	return false
}

// writeTable writes a GPT and its data partition, as far as missing from the disk. layout is the
// disk's current table.
func (d *Disks) writeTable(ctx context.Context, h *usage.LockedDisk, layout *win.DriveLayout) error {
	if layout.Style == win.StyleRAW {
		create := win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: maximumPartitions}
		if err := repeatOn(ctx, h, layout, func() error { return h.CreateDisk(ctx, create) }); err != nil {
			return err
		}
		d.options.Logger.Info("partition table made", "disk", h.Number, "style", "GPT", "diskID", create.DiskID)
		// The documentation of IOCTL_DISK_CREATE_DISK says that Windows adds its reserved partition
		// by itself. Windows may also leave the partition to us: rufus and virtdisk-rs write their
		// own at once.
		d.updateProperties(ctx, h)
		if err := h.Verify(ctx); err != nil {
			return err
		}
		var err error
		if layout, err = h.Layout(ctx); err != nil {
			return err
		}
		if layout.Style != win.StyleGPT {
			return fmt.Errorf("the disk has the partition style %d after Windows made a GPT", layout.Style)
		}
		if hasPartition(layout) {
			return opendisk.ChangedError("it has a partition already")
		}
	}
	partitions, err := partitionsToAdd(layout)
	if err != nil {
		return err
	}
	wanted := *layout
	wanted.Partitions = slices.Concat(layout.Partitions, partitions)
	if err := repeatOn(ctx, h, layout, func() error { return h.SetLayout(ctx, &wanted) }); err != nil {
		return err
	}
	data := partitions[len(partitions)-1]
	d.options.Logger.Info("disk partitioned", "disk", h.Number, "partitionID", data.ID, "bytes", data.Length)
	return nil
}

// repeatOn makes a change to a disk with a verified partition table, and retries while Windows
// refuses and the disk still has the same table.
func repeatOn(ctx context.Context, h *usage.LockedDisk, layout *win.DriveLayout, change func() error) error {
	isRepeated := false // the caller has verified disk and table before the first attempt
	return operation.UntilReady(ctx, func() error {
		if !isRepeated {
			isRepeated = true
			return nil
		}
		return cmp.Or(h.Verify(ctx), h.VerifyLayout(ctx, layout))
	}, change)
}

// updateProperties has Windows read a new partition table. A failure is only logged: Windows
// learned the table when the table was written. Rufus ignores the failure, too.
func (d *Disks) updateProperties(ctx context.Context, h *usage.LockedDisk) {
	if err := h.UpdateProperties(ctx); err != nil {
		d.options.Logger.Warn("Windows doesn't read a new partition table", "disk", h.Number, "err", err)
	}
}

// partitionsToAdd returns the partitions to add to a GPT without a data partition: the reserved
// partition, if missing, and a data partition.
func partitionsToAdd(layout *win.DriveLayout) (partitions []win.Partition, _ error) {
	usableEnd := layout.StartingUsableOffset + layout.UsableLength
	// Like rufus, partitionsToAdd sets the numbers. Unset, the volume's number could stay 0, which means
	// the whole disk, until Windows reads the table again.
	start, number := int64(0), uint32(0)
	for _, p := range layout.Partitions { // at most the reserved partition, see hasPartition
		start, number = max(start, p.End()), max(number, p.Number)
	}
	if start == 0 {
		reserved := win.Partition{
			Style:            win.StyleGPT,
			Number:           number + 1,
			StartingOffset:   layout.StartingUsableOffset,
			Length:           reservedEnd - layout.StartingUsableOffset,
			RewritePartition: true,
			Type:             win.PartitionTypeMicrosoftReserved,
			ID:               winid.NewGUID(),
			Name:             "Microsoft reserved partition",
		}
		partitions = append(partitions, reserved)
		start, number = reserved.End(), reserved.Number
	}
	start = (start + mebibyte - 1) / mebibyte * mebibyte
	end := usableEnd / mebibyte * mebibyte
	if end-start < mebibyte {
		return nil, refuse(fmt.Sprintf("it is too small for a data partition: %d usable bytes", layout.UsableLength))
	}
	return append(partitions, win.Partition{
		Style:            win.StyleGPT,
		Number:           number + 1,
		StartingOffset:   start,
		Length:           end - start,
		RewritePartition: true,
		Type:             win.PartitionTypeBasicData,
		ID:               winid.NewGUID(),
		// The attribute keeps automatic mounting from giving the volume a letter, at once or after
		// the next restart. The volume stays visible.
		Attributes: win.GPTAttributeNoDriveLetter,
		Name:       "Basic data partition",
	}), nil
}

//go:noinline // 4 kB smaller
func refuse(reason string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: reason}
}

// AwaitVolumes waits until each data partition of a disk has its volume, and returns the volumes.
// If the disk leaves the wanted state meanwhile, AwaitVolumes returns an error, and WhileOnline
// starts again. layout is the disk's table.
func (d *Disks) AwaitVolumes(ctx context.Context, h *usage.LockedDisk, layout *win.DriveLayout, wanted win.DiskState) (
	opendisk.Volumes, error) {
	return h.AwaitVolumesInState(ctx, d.sys, d.options.Lists, opendisk.DataPartitions(layout), volumeTimeout, wanted)
}

// onlineGrace is how long a volume may take to come online after Windows has named it.
const onlineGrace = 5 * time.Second

// BringVolumeOnline brings a volume online, and returns its file system, "" for a raw volume.
// Normally Windows does so by itself a moment after naming the volume; with automatic mounting
// switched off on the node (mountvol /N), Windows leaves the volume offline. BringVolumeOnline
// doesn't open an online volume, formatted or raw: an open handle would keep the caller from
// formatting.
func (d *Disks) BringVolumeOnline(ctx context.Context, n csiproxy.DiskNumber, name string) (fileSystem string, _ error) {
	fileSystem, err := d.askOnline(ctx, name)
	if errors.Is(err, volumeOffline) && !d.mountsByHand(ctx) {
		fileSystem, err = d.awaitOnline(ctx, name)
	}
	if errors.Is(err, volumeOffline) {
		if fileSystem, err = d.onlineVolume(ctx, name); err == nil {
			d.options.Logger.Info("volume brought online", "volume", name, "disk", n)
		}
	}
	if err == nil {
		return fileSystem, nil
	}
	refusal := &csiproxy.Error{Object: "volume " + name, Err: err}
	if csiproxy.KindOf(err) == csiproxy.ErrNotFound { // the volume was there a moment ago, and may come back
		refusal.Kind = csiproxy.ErrUnavailable
	}
	return "", refusal
}

// askOnline returns the file system of an online volume, "" for a raw volume. For an offline
// volume, the error is volumeOffline.
func (d *Disks) askOnline(ctx context.Context, name string) (fileSystem string, _ error) {
	info, err := d.sys.VolumeInformation(ctx, name)
	if errors.Is(err, winerr.ErrorUnrecognizedVolume) {
		return "", nil
	}
	return info.FileSystem, err
}

// awaitOnline is askOnline for a volume that comes online within onlineGrace.
func (d *Disks) awaitOnline(ctx context.Context, name string) (fileSystem string, err error) {
	err = operation.Retry(ctx, onlineGrace, onlineInterval, []winerr.Errno{volumeOffline}, func() (err error) {
		fileSystem, err = d.askOnline(ctx, name)
		return err
	})
	return fileSystem, err
}

// volumeOffline is the error of queries for an offline volume.
const volumeOffline = winerr.ErrorNotReady

// mountsByHand reports whether automatic mounting is known to be off on the node.
func (d *Disks) mountsByHand(ctx context.Context) bool {
	off, err := d.sys.RegistryNumber(ctx, win.RegistryMountManager, win.RegistryNoAutoMount)
	return err == nil && off != 0
}

// onlineVolume brings a volume online that Windows has left offline, and returns its file system.
// The volume is unused, since its file system isn't mounted.
//
// The documented call is IOCTL_VOLUME_ONLINE. Public code for this purpose takes the volume offline
// first (rafawo/virtdisk-rs, force_online_volume): perhaps Windows' record of the state is wrong,
// and says that the volume is online already. onlineVolume does the same if the documented call has
// no effect.
func (d *Disks) onlineVolume(ctx context.Context, name string) (fileSystem string, _ error) {
	err := d.setVolumeOnline(ctx, name, win.DeviceHandle.OnlineVolume)
	if err == nil {
		fileSystem, err = d.awaitOnline(ctx, name)
	}
	if !errors.Is(err, volumeOffline) {
		return fileSystem, err
	}
	err = d.setVolumeOnline(ctx, name, func(h win.DeviceHandle, ctx context.Context) error {
		if err := h.OfflineVolume(ctx); err != nil {
			return err
		}
		return h.OnlineVolume(context.WithoutCancel(ctx)) // finish what was begun
	})
	if err != nil {
		return "", err
	}
	return d.awaitOnline(ctx, name)
}

// setVolumeOnline opens a volume and calls set.
func (d *Disks) setVolumeOnline(ctx context.Context, name string, set func(win.DeviceHandle, context.Context) error) error {
	h, err := win.OpenDevice(ctx, d.sys, win.VolumePath(name), win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	return set(h, ctx)
}
