// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
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
		if err := d.partition(ctx, h); err != nil {
			return err
		}
		volumes, err := d.awaitVolumes(ctx, h, n)
		if err != nil {
			return err
		}
		d.bringVolumesOnline(ctx, n, volumes)
		return nil
	})
}

func (d *Disks) partition(ctx context.Context, h device.Handle) error {
	layout, err := h.Layout(ctx)
	if err != nil {
		return err
	}
	if hasPartition(layout) {
		return nil
	}
	if layout.Style == win.StyleMBR {
		return refuse("it has an MBR partition table without partitions")
	}
	if err := d.bringOnline(ctx, h); err != nil {
		return err
	}
	if layout.Style == win.StyleRAW {
		if layout, err = d.initialise(ctx, h); err != nil {
			return err
		}
	}
	return d.addDataPartition(ctx, h, layout)
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

// initialise writes an empty GPT to a disk that has no partition table.
func (d *Disks) initialise(ctx context.Context, h device.Handle) (*win.DriveLayout, error) {
	geometry, err := h.Geometry(ctx)
	if err != nil {
		return nil, err
	}
	found, err := signatures.Recognise(ctx, h, geometry.DiskSize, geometry.BytesPerSector)
	if err != nil {
		return nil, err
	}
	if found != "" && !d.options.AllowRecognizedData {
		return nil, refuse("it has no partition table but holds " + found)
	}
	create := win.CreateDisk{Style: win.StyleGPT, DiskID: win.NewGUID(), MaxPartitionCount: maximumPartitions}
	if err := h.CreateDisk(ctx, create); err != nil {
		return nil, err
	}
	// Windows may add its reserved partition by itself.
	if err := h.UpdateProperties(ctx); err != nil {
		return nil, err
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	if layout.Style != win.StyleGPT {
		return nil, fmt.Errorf("the disk has partition style %d after it was given a GPT", layout.Style)
	}
	return layout, nil
}

// addDataPartition gives a GPT disk the partitions that it lacks.
func (d *Disks) addDataPartition(ctx context.Context, h device.Handle, layout *win.DriveLayout) error {
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
		layout.Partitions = append(layout.Partitions, reserved)
		start = reserved.End()
	}
	start = (start + mebibyte - 1) / mebibyte * mebibyte
	end := usableEnd / mebibyte * mebibyte
	if end-start < mebibyte {
		return refuse(fmt.Sprintf("it is too small for a data partition: %d usable bytes", layout.UsableLength))
	}
	layout.Partitions = append(layout.Partitions, win.Partition{
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
	})
	if err := h.SetLayout(ctx, layout); err != nil {
		return err
	}
	return h.UpdateProperties(ctx)
}

func refuse(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: why}
}

// awaitVolumes waits until each data partition of an online disk has its volume,
// and returns them.
func (d *Disks) awaitVolumes(ctx context.Context, h device.Handle, n disk.Number) (device.Volumes, error) {
	attributes, err := h.Attributes(ctx)
	if err != nil || attributes&win.DiskOffline != 0 {
		return nil, err // its volumes come when it goes online
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	wanted := device.DataPartitions(layout)
	volumes, err := device.AwaitVolumes(ctx, d.sys, n, wanted, volumePatience)
	if err != nil {
		return nil, err
	}
	for _, p := range wanted {
		if _, ok := volumes[p]; !ok {
			return nil, &csiproxy.Error{
				Kind:   csiproxy.ErrUnavailable,
				Detail: fmt.Sprintf("no volume has arrived for partition %d", p),
			}
		}
	}
	return volumes, nil
}

// bringVolumesOnline brings volumes online that are offline since automatic
// mounting is switched off on the node (mountvol /N). To others it does nothing. A
// refusal is passed over: it says nothing about a volume that is online, and one
// that isn't can't be formatted.
func (d *Disks) bringVolumesOnline(ctx context.Context, n disk.Number, volumes device.Volumes) {
	for _, name := range volumes {
		h, err := device.Open(ctx, d.sys, device.VolumePath(name), win.GenericRead|win.GenericWrite)
		if err == nil {
			err = h.OnlineVolume(ctx)
			h.Close()
		}
		if err != nil {
			d.options.Logger.Info("a volume doesn't go online", "disk", n, "volume", name, "err", err)
		}
	}
}
