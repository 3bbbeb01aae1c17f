// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// A copy is a disk whose table has ids of a disk that is online, such as the disk of a snapshot beside
// its original. If a copy is writable when it goes online, Windows gives it new ids. So a copy that is
// wanted writable is brought online like any other disk, and its contents are checked then. A copy that
// stays read-only keeps its ids, and can't be online beside its original.

// RefuseCopy returns an error if an offline disk is the copy of one that is online. Detaching one of
// them helps; advice is what else does, for the error.
func (d *Disks) RefuseCopy(ctx context.Context, h *usage.LockedDisk, layout *win.DriveLayout, advice string) error {
	original, id, err := d.findOriginal(ctx, h.Number, tableIDs(layout))
	if err == nil && id != "" {
		err = refuse(fmt.Sprintf("it is a copy of %s, which is online: both have the %s; detach one of them, or %s",
			original, id, advice))
	}
	return err
}

// refuseUnwantedCopy is RefuseCopy if the administrator wants no copies online. Only then is the table of
// an offline disk needed, which Windows may not return.
func (d *Disks) refuseUnwantedCopy(ctx context.Context, h *usage.LockedDisk) error {
	if !d.options.RefuseClones {
		return nil
	}
	layout, err := h.Layout(ctx)
	if err != nil {
		return err
	}
	return d.RefuseCopy(ctx, h, layout, "let Windows give it new ids, by leaving out -refuse-clones")
}

// refuseCollision returns an error if Windows has left a disk offline, or taken it offline again,
// because it is a copy. ids are those in its partition table as Windows last showed it.
func (d *Disks) refuseCollision(ctx context.Context, h *usage.LockedDisk, ids []string) error {
	original, id, err := d.findOriginal(ctx, h.Number, ids)
	if err != nil {
		return err
	}
	if id != "" {
		return refuse(fmt.Sprintf("it is a copy of %s, which is online: both have the %s, and Windows keeps it "+
			"offline; detach one of them", original, id))
	}
	return ctx.Err()
}

// findOriginal searches the online disks but n for one with one of ids in its partition table. It returns the name of that disk for
// errors, and the id; "" if no disk has one. A silent disk is skipped: it may stay silent, and would keep all others offline.
func (d *Disks) findOriginal(ctx context.Context, n csiproxy.DiskNumber,
	ids []string) (original, id string, _ error) {
	if len(ids) == 0 {
		return "", "", nil
	}
	others, err := d.shared.eachDisk(ctx, "", &d.shared.queries.idsIfOnline, nil, idsIfOnline)
	if err != nil {
		return "", "", err
	}
	for _, other := range others {
		for _, id := range ids {
			if other.number != n && slices.Contains(other.tableIDs, id) {
				return d.name(other.number, other.driver), id, nil
			}
		}
	}
	return "", "", nil
}

// name names a disk of the node in errors, given the driver that has it. A driver isn't told the numbers of disks
// that aren't its own.
func (d *Disks) name(n csiproxy.DiskNumber, driver string) string {
	if own := d.options.Driver; own != "" && own != driver {
		return "a disk that isn't driver " + quote.Text(own) + "'s"
	}
	return diskObject(n)
}

// idsIfOnline fills in the ids in the table of a disk that is online; none for one that is offline.
func idsIfOnline(ctx context.Context, h *opendisk.Disk, f *found) error {
	state, err := h.State(ctx)
	if err != nil || state.Offline {
		return err
	}
	layout, err := h.Layout(ctx)
	f.tableIDs = tableIDs(layout)
	return err
}

// tableIDs returns the ids in a partition table by which Windows tells disks and volumes
// apart.
func tableIDs(l *win.DriveLayout) (ids []string) {
	if l == nil {
		return nil
	}
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

// tableIDsOf is tableIDs for a description of a disk. That has the disk's id only, and no ids of
// partitions.
func tableIDsOf(disk csiproxy.Disk) []string {
	switch disk.Style {
	case csiproxy.PartitionStyleGPT:
		return []string{"disk id {" + disk.DiskID + "}"}
	case csiproxy.PartitionStyleMBR:
		return []string{"disk signature " + strings.ToUpper(disk.DiskID)}
	}
	return nil
}
