// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/signatures"
	"github.com/csi-proxy/csi-proxy/internal/win"
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
func (d *Disks) PartitionDisk(ctx context.Context, n disk.Number) error {
	return operation.Do(ctx, d.options.Runner, "PartitionDisk", object(n), func(ctx context.Context) error {
		return d.change(ctx, n, func(ctx context.Context, h *use.Disk) error {
			attributes, err := h.Attributes(ctx)
			if err != nil {
				return err
			}
			made, err := d.EnsurePartition(ctx, h, attributes, d.options.NewIDsForClones)
			if err != nil || attributes&win.DiskOffline != 0 && !made {
				return err // the volumes of an offline disk come when it goes online
			}
			mask := win.DiskAttributes(Blocking)
			if !made {
				if mask, err = d.maskOf(ctx, h, attributes); err != nil {
					return err
				}
			}
			volumes, err := d.AwaitVolumes(ctx, h, mask, d.options.NewIDsForClones)
			if err != nil {
				return err
			}
			for _, name := range volumes {
				err = errors.Join(err, d.BringVolumeOnline(ctx, n, name))
			}
			return err
		})
	})
}

// EnsurePartition makes sure that a disk with attributes, which may be offline, has a data
// partition. It says whether it has made one: then the disk is online and writable.
func (d *Disks) EnsurePartition(ctx context.Context, h *use.Disk, attributes win.DiskAttributes,
	newIDs bool) (made bool, _ error) {
	offline := attributes&win.DiskOffline != 0
	layout, partitionMissing, err := d.inspect(ctx, h, offline)
	if err == nil && offline {
		err = d.SettleClone(ctx, h, layout, newIDs, false)
	}
	if err != nil || !partitionMissing {
		return false, err
	}
	// The disk goes online first, which may take a while: somebody else may partition it then, and
	// Windows may see more of it than before. So all is looked at again, right before each write.
	// If the disk is refused then, it gets its attributes back.
	before, err := d.Clear(ctx, h, Blocking)
	if err != nil {
		return false, err
	}
	written, err := d.writeTable(ctx, h)
	if !written && csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
		d.putBack(ctx, h, before)
	}
	if err == nil {
		err = h.UpdateProperties(ctx)
	}
	return err == nil, err
}

// inspect looks at what a disk holds. It returns the partition table, and whether a data
// partition is missing. If one is missing and the disk must not be written to, it refuses the
// disk. The last thing that it looks at is the table: a disk that somebody has begun to use
// has one.
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
	// Before the disk is given a GPT: that takes a header and an array of entries at its end.
	const entries = maximumPartitions * 128
	end := (geometry.DiskSize - entries - int64(geometry.BytesPerSector)) / mebibyte * mebibyte
	if end-reservedEnd < mebibyte {
		return nil, false, refuse(fmt.Sprintf("it is too small for a data partition: %d bytes", geometry.DiskSize))
	}
	recognise := signatures.RecogniseDisk
	if offline {
		// Windows may not show the table of an offline disk. What is left of one counts only when
		// the disk is online.
		recognise = signatures.Recognise
	}
	found, err := recognise(ctx, h, geometry.DiskSize, geometry.BytesPerSector)
	if err != nil {
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

// HoldsData reports whether something is recognised on a disk of which Windows shows no table.
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

// writeTable writes what is missing on a disk: a GPT, and a data partition in it. written says
// whether it has begun to.
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

// dataPartition returns the partitions to add to a GPT that has none for data: the reserved
// one, unless it is there, and one for data.
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
		// Without this, automatic mounting would give a letter at once or after
		// the next restart. It doesn't hide the volume.
		Attributes: win.GPTAttributeNoDriveLetter,
		Name:       "Basic data partition",
	}), nil
}

func refuse(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: why}
}

// AwaitVolumes waits until each data partition of a disk that was brought online has its
// volume, and returns them. Windows may take a disk offline again when it handles its
// arrival: then the attributes of keepClear are cleared again, unless it is a copy, which gets new
// ids with newIDs, or may be one.
func (d *Disks) AwaitVolumes(ctx context.Context, h *use.Disk, keepClear win.DiskAttributes,
	newIDs bool) (opendisk.Volumes, error) {
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	wanted := opendisk.DataPartitions(layout)
	if len(wanted) == 0 { // Windows may have taken it offline again, and hide its table
		attributes, err := h.Attributes(ctx)
		if err == nil && attributes&keepClear != 0 && d.isCopy(ctx, h.Number) {
			return nil, refuse(copyIsOnline)
		}
		if _, err := d.Clear(ctx, h, keepClear); err != nil {
			return nil, err
		}
		if layout, err = h.Layout(ctx); err != nil {
			return nil, err
		}
		wanted = opendisk.DataPartitions(layout)
	}
	return h.AwaitVolumes(ctx, d.finder, wanted, volumePatience, func() error {
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
				now = layout // Windows may not show it any more
			}
			if err := d.SettleClone(ctx, h, now, newIDs, true); err != nil {
				return err
			}
		}
		_, err = d.Clear(ctx, h, keepClear)
		return err
	})
}

// BringVolumeOnline brings a volume online that is offline, since automatic mounting is
// switched off on the node (mountvol /N). One that is online, formatted or not, isn't opened:
// that would keep its caller from formatting it.
func (d *Disks) BringVolumeOnline(ctx context.Context, n disk.Number, name string) error {
	_, err := d.sys.VolumeInformation(ctx, name)
	switch {
	case err == nil, errors.Is(err, win.ErrorUnrecognizedVolume):
		return nil
	case errors.Is(err, win.ErrorNotReady):
		if err = d.onVolume(ctx, name, onlineVolume); err == nil {
			d.options.Logger.Info("volume brought online", "volume", name, "disk", n)
			return nil
		}
	}
	why := &csiproxy.Error{Object: "volume " + name, Err: err}
	if csiproxy.KindOf(err) == csiproxy.ErrNotFound { // it has just arrived, and may again
		why.Kind = csiproxy.ErrUnavailable
	}
	return why
}

// onlineVolume brings a volume online that automatic mounting has left offline. To a volume
// that is online it does nothing.
//
// IOCTL_VOLUME_ONLINE is what the documentation gives. Public code of this purpose
// takes the volume offline first (rafawo/virtdisk-rs, force_online_volume), which
// suggests that a volume may be taken for online that isn't. But to take a volume
// offline is safe only while no file system is mounted on it. So that is done only
// where the volume, told to go online, still answers a read with ErrorNotReady: every
// read and write of an offline volume gets this, so nobody can be using it.
func onlineVolume(h device.Handle, ctx context.Context) error {
	if err := h.OnlineVolume(ctx); err != nil {
		return err
	}
	// As long as the largest sectors are.
	if _, err := h.ReadAt(ctx, make([]byte, 4096), 0); !errors.Is(err, win.ErrorNotReady) {
		return nil // online; what else is wrong with it shows when it is used
	}
	if err := h.OfflineVolume(ctx); err != nil {
		return err
	}
	return h.OnlineVolume(context.WithoutCancel(ctx)) // what was begun
}
