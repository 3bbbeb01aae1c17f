// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/signatures"
	"github.com/csi-proxy/csi-proxy/internal/ops/use"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// The layout that Windows' own tools make on disks of 16 GiB or more: a reserved
// partition that ends at 16 MiB, then one of basic data; partitions end on whole MiB.
// On small disks those tools go on to the last usable sector: the published tests
// record a partition of 1056947712 bytes on a disk of 1 GiB, which ends 33 sectors
// before the end of the disk. Ours ends on a whole MiB there, too.
const (
	mebibyte          = 1 << 20
	reservedEnd       = 16 * mebibyte
	maximumPartitions = 128
)

// PartitionDisk implements [disk.Operations].
func (d *Disks) PartitionDisk(ctx context.Context, n disk.Number) (err error) {
	defer d.options.Runner.Done("PartitionDisk", object(n), time.Now(), &err)
	h, err := d.take(ctx, d.options.Owner, n)
	if err != nil {
		return err
	}
	defer h.Release()
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return err
	}
	made, err := d.EnsurePartition(ctx, h, attributes)
	if err != nil || attributes&win.DiskOffline != 0 && !made {
		return err // the volumes of an offline disk come when it goes online
	}
	mask := win.DiskAttributes(Blocking)
	if !made {
		if mask, err = d.maskOf(ctx, h, attributes); err != nil {
			return err
		}
	}
	volumes, err := d.AwaitVolumes(ctx, h, mask)
	if err != nil {
		return err
	}
	for _, name := range volumes {
		err = errors.Join(err, d.BringVolumeOnline(ctx, n, name))
	}
	return err
}

// EnsurePartition makes a data partition on a disk that has none. attributes are the disk's; it may
// be offline. If it has made one, made is true, and the disk is online and writable.
func (d *Disks) EnsurePartition(ctx context.Context, h *use.Disk,
	attributes win.DiskAttributes) (made bool, _ error) {
	offline := attributes&win.DiskOffline != 0
	layout, partitionMissing, err := d.inspect(ctx, h, offline)
	if err != nil {
		return false, err
	}
	if offline {
		if err := d.refuseUnwantedCopy(ctx, h, layout); err != nil {
			return false, err
		}
	}
	if !partitionMissing {
		return false, nil
	}
	// The disk goes online first, which may take a while. Meanwhile somebody else may partition it, and
	// Windows may read more of it than before. So everything is checked again right before each write.
	// If that check refuses the disk, it gets its attributes back.
	before, err := d.Clear(ctx, h, Blocking)
	if err != nil {
		return false, err
	}
	written, err := d.writeTable(ctx, h)
	if err != nil {
		if !written && csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
			d.putBack(ctx, h, before)
		}
		return false, err
	}
	if err := h.UpdateProperties(ctx); err != nil {
		return false, err
	}
	return true, nil
}

// inspect returns the partition table of a disk, and whether a data partition is missing. If one is
// missing, and the disk holds something else or is too small, inspect returns an error. It reads the
// table again at the end: if somebody has begun to use the disk meanwhile, the disk has one.
func (d *Disks) inspect(ctx context.Context, h *use.Disk,
	offline bool) (_ *win.DriveLayout, partitionMissing bool, _ error) {
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, false, err
	}
	switch {
	case len(opendisk.DataPartitions(layout)) > 0:
		return layout, false, nil
	case hasPartition(layout):
		return nil, false, refuse("it has partitions, but none of a type that Windows makes a volume for")
	case layout.Style == win.StyleMBR:
		return nil, false, refuse("it has an MBR partition table without partitions; " +
			"clean the disk if nothing on it is needed")
	case layout.Style == win.StyleGPT:
		_, err := dataPartition(layout)
		return layout, err == nil, err
	}
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return nil, false, err
	}
	// A GPT will need room for a header and an array of entries at the disk's end.
	const entries = maximumPartitions * 128
	end := (geometry.DiskSize - entries - int64(geometry.BytesPerSector)) / mebibyte * mebibyte
	if end-reservedEnd < mebibyte {
		return nil, false, refuse(fmt.Sprintf("it is too small for a data partition: %d bytes", geometry.DiskSize))
	}
	recognise := signatures.RecogniseDisk
	if offline {
		// Windows may not return the table of an offline disk. So the remains of a table don't
		// count as data until the disk is online.
		recognise = signatures.Recognise
	}
	found, err := recognise(ctx, h, geometry.DiskSize, geometry.BytesPerSector)
	if err != nil {
		return nil, false, err
	}
	// What was read is of this disk, if it still is, and it has no table yet. Reading takes a while, so
	// both are asked last.
	if err := h.Verify(ctx); err != nil {
		return nil, false, err
	}
	if err := h.VerifyLayout(ctx, layout); err != nil {
		return nil, false, err
	}
	if found != "" && !d.options.AllowRecognizedData {
		return nil, false, refuse("it has no partition table that Windows reads, but holds " + found)
	}
	return layout, true, nil
}

// HoldsData reports whether a disk of which Windows returns no table holds data that is recognised.
func (d *Disks) HoldsData(ctx context.Context, h *use.Disk) (bool, error) {
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return false, err
	}
	found, err := signatures.RecogniseDisk(ctx, h, geometry.DiskSize, geometry.BytesPerSector)
	return found != "", err
}

// hasPartition reports whether a table has a partition other than Microsoft's
// reserved one.
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

// writeTable writes a GPT and a data partition in it, as far as the disk lacks these. written
// reports whether it has begun to write.
func (d *Disks) writeTable(ctx context.Context, h *use.Disk) (written bool, _ error) {
	if err := h.Verify(ctx); err != nil {
		return false, err
	}
	layout, partitionMissing, err := d.inspect(ctx, h, false)
	if err != nil || !partitionMissing {
		return false, err
	}
	if layout.Style == win.StyleRAW {
		create := win.CreateDisk{Style: win.StyleGPT, DiskID: win.NewGUID(), MaxPartitionCount: maximumPartitions}
		if err := h.CreateDisk(ctx, create); err != nil {
			return true, err
		}
		d.options.Logger.Info("partition table made", "disk", h.Number, "style", "GPT", "diskID", create.DiskID)
		// Windows may add its reserved partition by itself.
		if err := h.UpdateProperties(ctx); err != nil {
			return true, err
		}
		if err := h.Verify(ctx); err != nil {
			return true, err
		}
		if layout, err = h.Layout(ctx); err != nil {
			return true, err
		}
		if layout.Style != win.StyleGPT {
			return true, fmt.Errorf("the disk has partition style %d after it was given a GPT", layout.Style)
		}
		if hasPartition(layout) {
			return true, opendisk.ErrChanged("it has a partition already")
		}
	}
	partitions, err := dataPartition(layout)
	if err != nil {
		return true, err
	}
	layout.Partitions = append(layout.Partitions, partitions...)
	if err := h.SetLayout(ctx, layout); err != nil {
		return true, err
	}
	data := partitions[len(partitions)-1]
	d.options.Logger.Info("disk partitioned", "disk", h.Number, "partitionID", data.ID, "bytes", data.Length)
	return true, nil
}

// dataPartition returns the partitions to add to a GPT without a data partition: the reserved one,
// if it is missing, and one for data.
func dataPartition(layout *win.DriveLayout) (partitions []win.Partition, _ error) {
	usableEnd := layout.StartingUsableOffset + layout.UsableLength
	start := int64(0)
	for i := range layout.Partitions { // at most the reserved one, see hasPartition
		start = max(start, layout.Partitions[i].End())
	}
	if start == 0 {
		reserved := win.Partition{
			Style:            win.StyleGPT,
			StartingOffset:   layout.StartingUsableOffset,
			Length:           reservedEnd - layout.StartingUsableOffset,
			RewritePartition: true,
			Type:             win.PartitionTypeMicrosoftReserved,
			ID:               win.NewGUID(),
			Name:             "Microsoft reserved partition",
		}
		partitions = append(partitions, reserved)
		start = reserved.End()
	}
	start = (start + mebibyte - 1) / mebibyte * mebibyte
	end := usableEnd / mebibyte * mebibyte
	if end-start < mebibyte {
		return nil, refuse(fmt.Sprintf("it is too small for a data partition: %d usable bytes", layout.UsableLength))
	}
	return append(partitions, win.Partition{
		Style:            win.StyleGPT,
		StartingOffset:   start,
		Length:           end - start,
		RewritePartition: true,
		Type:             win.PartitionTypeBasicData,
		ID:               win.NewGUID(),
		// Without this attribute, automatic mounting would give the volume a letter, at
		// once or after the next restart. The attribute doesn't hide the volume.
		Attributes: win.GPTAttributeNoDriveLetter,
		Name:       "Basic data partition",
	}), nil
}

func refuse(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: why}
}

// AwaitVolumes waits until each data partition of a disk that was brought online has its volume,
// and returns the volumes. When Windows handles the arrival of a disk, it may take the disk offline
// again. Then AwaitVolumes clears the attributes of keepClear again, unless the disk is a copy.
func (d *Disks) AwaitVolumes(ctx context.Context, h *use.Disk,
	keepClear win.DiskAttributes) (opendisk.Volumes, error) {
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	keep := func() error {
		attributes, err := h.Attributes(ctx)
		if attributes &= keepClear; err != nil || attributes == 0 {
			return err
		}
		if attributes&win.DiskOffline != 0 {
			now, err := h.Layout(ctx)
			if err != nil {
				return err
			}
			if len(tableIDs(now)) == 0 {
				now = layout // the disk is offline, so Windows may not return its table any more
			}
			if err := d.refuseCollision(ctx, h, now); err != nil {
				return err
			}
		}
		_, err = d.Clear(ctx, h, keepClear)
		return err
	}
	wanted := opendisk.DataPartitions(layout)
	if len(wanted) == 0 { // the disk may be offline again; Windows may show such a disk without its partition table
		if err := keep(); err != nil {
			return nil, err
		}
		if layout, err = h.Layout(ctx); err != nil {
			return nil, err
		}
		wanted = opendisk.DataPartitions(layout)
	}
	return h.AwaitVolumes(ctx, d.sys, wanted, volumeTimeout, keep)
}

// BringVolumeOnline brings a volume online. A volume is offline if automatic mounting is switched
// off on the node (mountvol /N). A volume that is online, formatted or not, isn't opened, because
// the caller couldn't format it while it is open.
func (d *Disks) BringVolumeOnline(ctx context.Context, n disk.Number, name string) error {
	_, err := d.sys.VolumeInformation(ctx, name)
	switch {
	case err == nil, errors.Is(err, win.ErrorUnrecognizedVolume):
		return nil
	case errors.Is(err, win.ErrorNotReady):
		if err = d.onlineVolume(ctx, name); err == nil {
			d.options.Logger.Info("volume brought online", "volume", name, "disk", n)
			return nil
		}
	}
	why := &csiproxy.Error{Object: "volume " + name, Err: err}
	if csiproxy.KindOf(err) == csiproxy.ErrNotFound { // it has just been there, and may come back
		why.Kind = csiproxy.ErrUnavailable
	}
	return why
}

// onlineVolume brings a volume online that Windows left offline, since automatic mounting is off.
// If the volume is online, onlineVolume does nothing.
//
// The documented call is IOCTL_VOLUME_ONLINE. Public code for this purpose takes the volume
// offline first (rafawo/virtdisk-rs, force_online_volume). That suggests that Windows may
// count a volume as online that isn't. But taking a volume offline is safe only while no
// file system is mounted on it. So onlineVolume does that only if the volume still answers
// a read with ErrorNotReady after the call: every read and write of an offline volume gets
// this error, so nobody can be using it.
func (d *Disks) onlineVolume(ctx context.Context, name string) error {
	h, err := device.Open(ctx, d.sys, device.VolumePath(name), win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.OnlineVolume(ctx); err != nil {
		return err
	}
	// The read is as long as the largest sectors.
	if _, err := h.ReadAt(ctx, make([]byte, 4096), 0); !errors.Is(err, win.ErrorNotReady) {
		return nil // online; what else is wrong with it shows when it is used
	}
	if err := h.OfflineVolume(ctx); err != nil {
		return err
	}
	return h.OnlineVolume(context.WithoutCancel(ctx)) // what was begun
}
