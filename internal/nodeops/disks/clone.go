// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// SettleClone deals with an offline disk whose table has ids of a disk that is online,
// such as the disk of a snapshot next to its original. Windows can't have both online: it
// would take the second one offline again. Without newIDs such a disk is refused, with it it
// gets new ids.
func (d *Disks) SettleClone(ctx context.Context, h *use.Disk, layout *win.DriveLayout, newIDs bool) error {
	original, id, err := d.findOriginal(ctx, h.Number, tableIDs(layout))
	if err != nil || id == "" {
		return err
	}
	if !newIDs {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"it is a copy of disk %d, which is online: both have the %s, and Windows can't have both online; "+
				"detach one of them, or let CSI Proxy give copies new ids (-new-ids-for-clones)", original, id)
	}
	return d.giveNewIDs(ctx, h)
}

// giveNewIDs replaces the ids in the table of a disk that is offline, while they are still
// those of another one. Its partitions and what they hold stay.
//
// That IOCTL_DISK_SET_DRIVE_LAYOUT_EX works while a disk is offline isn't documented.
// diskpart's "uniqueid disk", which is the documented way out of such a collision, does
// the same to a disk that is offline since there is one.
//
// Source: https://learn.microsoft.com/windows-server/administration/windows-commands/uniqueid
func (d *Disks) giveNewIDs(ctx context.Context, h *use.Disk) error {
	if err := h.Verify(ctx); err != nil {
		return err
	}
	attributes, err := h.Attributes(ctx)
	if err != nil {
		return err
	}
	if attributes&win.DiskReadOnly != 0 {
		if err := h.SetAttributes(ctx, 0, win.DiskReadOnly); err != nil {
			return err
		}
		d.options.Logger.Info("disk made writable", "disk", h.Number)
	}
	// Another process may have given it new ids, or used it, meanwhile.
	layout, err := h.Layout(ctx)
	if err != nil {
		return err
	}
	original, id, err := d.findOriginal(ctx, h.Number, tableIDs(layout))
	if err != nil || id == "" {
		return err
	}
	if err := h.Verify(ctx); err != nil {
		return err
	}
	if err := h.VerifyLayout(ctx, layout); err != nil {
		return err
	}
	switch layout.Style {
	case win.StyleGPT:
		layout.DiskID = win.NewGUID()
		for i := range layout.Partitions {
			layout.Partitions[i].ID = win.NewGUID()
			layout.Partitions[i].RewritePartition = true
		}
	case win.StyleMBR:
		random := win.NewGUID()
		layout.Signature = binary.LittleEndian.Uint32(random[:]) | 1 // 0 means that there is none
		for i := range layout.Partitions {
			layout.Partitions[i].RewritePartition = true
		}
	}
	if err := h.SetLayout(ctx, layout); err != nil {
		return err
	}
	d.options.Logger.Info("disk given new ids", "disk", h.Number, "copyOf", original, "both", id)
	return h.UpdateProperties(ctx)
}

// findOriginal looks for a disk other than n that is online and has one of ids in its table. It
// returns that id; "" if there is no such disk.
func (d *Disks) findOriginal(ctx context.Context, n disk.Number, ids []string) (original disk.Number, id string, _ error) {
	if len(ids) == 0 {
		return 0, "", nil
	}
	// An original that doesn't answer is missed. Windows takes the copy offline again then.
	//
	// There may be hundreds of other disks, and whether their tables have these ids may have
	// changed since somebody last looked, so each is asked, but only for its table. Its state
	// and its number matter only if it has one of the ids.
	tables, err := d.visits.all(ctx, question{win.InterfaceClassDisk, "ids of the table", othersPatience, d.idsOf, nil})
	if err != nil {
		return 0, "", err
	}
	for _, other := range tables {
		others, _ := other.value.([]string)
		i := slices.IndexFunc(ids, func(id string) bool { return slices.Contains(others, id) })
		if other.err != nil || i < 0 {
			continue
		}
		value, err := d.visits.one(ctx, other.path,
			question{win.InterfaceClassDisk, "number if online", othersPatience, d.numberIfOnline, nil})
		if ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
		number, online := value.(disk.Number)
		if err == nil && online && number != n {
			return number, ids[i], nil
		}
	}
	return 0, "", nil
}

// idsOf returns the ids in the table of a disk. Windows may not show the table of an offline
// disk, nor that of a path below a multipath disk: these have none.
func (d *Disks) idsOf(ctx context.Context, path string) (any, error) {
	h, err := device.Open(ctx, d.sys, path, win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	layout, err := h.Layout(ctx)
	if err == nil {
		return tableIDs(layout), nil
	}
	if number, askErr := h.Number(ctx); askErr == nil && !isDisk(number) {
		return nil, nil
	}
	if attributes, askErr := h.Attributes(ctx); askErr == nil && attributes&win.DiskOffline != 0 {
		return nil, nil
	}
	return nil, err
}

// numberIfOnline returns the number of a disk that is online; nil for one that is offline, and
// for what is no disk.
func (d *Disks) numberIfOnline(ctx context.Context, path string) (any, error) {
	h, err := device.Open(ctx, d.sys, path, win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	number, err := h.Number(ctx)
	if err != nil || !isDisk(number) {
		return nil, err
	}
	attributes, err := h.Attributes(ctx)
	if err != nil || attributes&win.DiskOffline != 0 {
		return nil, err
	}
	return number.DeviceNumber, nil
}

// tableIDs names the ids in a partition table by which Windows tells disks and volumes
// apart.
func tableIDs(l *win.DriveLayout) (ids []string) {
	switch l.Style {
	case win.StyleGPT:
		ids = append(ids, "disk id {"+l.DiskID.String()+"}")
		for _, p := range l.Partitions {
			if !p.ID.IsZero() {
				ids = append(ids, "partition id {"+p.ID.String()+"}")
			}
		}
	case win.StyleMBR:
		if l.Signature != 0 {
			ids = append(ids, fmt.Sprintf("disk signature %08X", l.Signature))
		}
	}
	return ids
}

// tableIDsOf is tableIDs for a disk that was described: its own id, without those of its
// partitions.
func tableIDsOf(d storage.Disk) []string {
	switch d.Style {
	case storage.GPT:
		return []string{"disk id {" + d.DiskID + "}"}
	case storage.MBR:
		return []string{"disk signature " + strings.ToUpper(d.DiskID)}
	}
	return nil
}
