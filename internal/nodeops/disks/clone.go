// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// SettleClone deals with an offline disk whose table has ids of a disk that is online,
// such as the disk of a snapshot next to its original. Windows can't have both online: it
// would take the second one offline again, or give it new ids itself. Without newIDs such a disk
// is refused, with it it gets new ids.
//
// A disk that doesn't answer, and isn't known to have one of the ids, may be the original, too.
// With certain, that is an error. But the disk may never answer again, and must not keep all others
// offline. So before a disk goes online, certain is false; if it turns out to be a copy, since
// Windows takes it offline again, AwaitVolumes refuses it.
func (d *Disks) SettleClone(ctx context.Context, h *use.Disk, layout *win.DriveLayout, newIDs, certain bool) error {
	original, id, err := d.findOriginal(ctx, h.Number, tableIDs(layout), certain)
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
	ids := tableIDs(layout)
	if len(ids) == 0 {
		return refuse("it is a copy of a disk that is online, and Windows doesn't show its partition table while it is " +
			"offline, so it can't be given new ids; detach one of them")
	}
	original, id, err := d.findOriginal(ctx, h.Number, ids, false)
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
// returns that id; "" if there is no such disk. A disk that doesn't answer is an error if it had
// one of ids when it last answered, or with certain.
func (d *Disks) findOriginal(ctx context.Context, n disk.Number, ids []string,
	certain bool) (original disk.Number, id string, _ error) {
	if len(ids) == 0 {
		return 0, "", nil
	}
	shared := func(others []string) string {
		for _, id := range ids {
			if slices.Contains(others, id) {
				return id
			}
		}
		return ""
	}
	// There may be hundreds of other disks, and any program may write their tables. So each is
	// asked, but only for its table. The rest matters only if that has one of the ids.
	table := question{"ids of the table", othersPatience, d.idsOf, nil}
	var known []result
	if !certain {
		// The disk n itself, which had its number a moment ago, needn't be asked. A disk without ids is
		// asked each time: it gets some when it is partitioned.
		table.skip = func(path string, v *visited) bool {
			if v.numbered && v.number == n && time.Since(v.numberedAt) < recent {
				return true
			}
			isKnown := len(v.ids) > 0 && time.Since(v.idsAt) < recent
			if isKnown && shared(v.ids) != "" {
				known = append(known, result{path: path, value: v.ids})
			}
			return isKnown
		}
	}
	online := question{"number and ids if online", othersPatience, d.idsIfOnline, nil}
	asked, err := d.visits.all(ctx, table)
	if err != nil {
		return 0, "", err
	}
	var unknown error
	for _, other := range append(known, asked...) {
		value, err := d.secondAnswer(ctx, table, other)
		others, _ := value.([]string)
		if err == nil && shared(others) == "" {
			continue
		}
		if err == nil {
			value, err = d.visits.one(ctx, other.path, online)
			value, err = d.secondAnswer(ctx, online, result{other.path, value, err})
		}
		if ctx.Err() != nil {
			return 0, "", ctx.Err()
		}
		if a, ok := value.(answer[[]string]); err == nil && ok && a.number != n && shared(a.value) != "" {
			return a.number, shared(a.value), nil
		}
		before := d.visits.of(other.path)
		if err != nil && !isGone(err) && (certain || shared(before.ids) != "") {
			name := "the disk " + other.path
			if before.numbered {
				name = object(before.number)
			}
			unknown = &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
				Detail: "it may be a copy of " + name + ", which doesn't answer; Windows can't have both online; " +
					"try again later, or detach one of them"}
		}
	}
	return 0, "", unknown
}

// recent is how long a look at the tables of other disks counts. A disk that is looked at doesn't go
// online at once either: it is verified, and Windows may refuse for a moment. Whoever writes the
// ids of a copy to a disk that is online, or changes disks, within this time isn't seen at that
// look, and neither is who does so right after it. Windows looks itself, and AwaitVolumes
// then asks all disks again. Where many volumes are staged one after another, each disk is asked
// every other second instead of each time.
const recent = 2 * time.Second

// secondAnswer returns an answer that isn't an error of Windows, or else asks once more: the error
// may have been one of the moment.
func (d *Disks) secondAnswer(ctx context.Context, q question, first result) (any, error) {
	if !errors.As(first.err, new(win.Errno)) {
		return first.value, first.err
	}
	return d.visits.one(ctx, first.path, q)
}

// idsOf returns the ids in the table of a disk, and remembers them. Windows may not show the table
// of an offline disk, nor that of a path below a multipath disk: these have none.
func (d *Disks) idsOf(ctx context.Context, path string) (any, error) {
	asked := time.Now()
	h, err := device.Open(ctx, d.sys, path, win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	layout, err := h.Layout(ctx)
	if err != nil {
		if number, askErr := h.Number(ctx); askErr == nil && !isDisk(number) {
			return nil, nil
		}
		if attributes, askErr := h.Attributes(ctx); askErr == nil && attributes&win.DiskOffline != 0 {
			return nil, nil
		}
		return nil, err
	}
	ids := tableIDs(layout)
	d.visits.update(path, func(v *visited) { v.ids, v.idsAt = ids, asked })
	return ids, nil
}

// idsIfOnline returns the number of a disk that is online, with the ids in its table; nil for one
// that is offline, and for what is no disk.
func (d *Disks) idsIfOnline(ctx context.Context, path string) (any, error) {
	h, err := device.Open(ctx, d.sys, path, win.AccessNone)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	attributes, err := h.Attributes(ctx)
	if err != nil || attributes&win.DiskOffline != 0 {
		return nil, err
	}
	number, err := h.Number(ctx)
	if err != nil || !isDisk(number) {
		return nil, err
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return nil, err
	}
	return answer[[]string]{number: number.DeviceNumber, value: tableIDs(layout)}, nil
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
