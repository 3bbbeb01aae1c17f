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

// A copy is a disk whose partition table has ids of an online disk, such as the disk of a snapshot
// beside its original. When a writable copy goes online, Windows gives the copy new ids. A copy
// that should be writable is therefore brought online like any disk, and the contents are checked
// then. A read-only copy keeps the ids, and must stay offline while the original is online.

// RefuseCopy returns an error if an offline disk is a copy of an online disk. The error tells the
// user to detach one of the two disks, or to do what advice says.
func (d *Disks) RefuseCopy(ctx context.Context, h *usage.LockedDisk, layout *win.DriveLayout, advice string) error {
	original, id, err := d.findOriginal(ctx, h.Number, tableIDs(layout))
	if err == nil && id != "" {
		err = refuse(fmt.Sprintf("it is a copy of %s, which is online: both have the %s; detach one of them, or %s",
			original, id, advice))
	}
	return err
}

// refuseUnwantedCopy calls RefuseCopy if the administrator wants no copies online. Only then does
// it read the table of the offline disk: Windows may refuse to return the table.
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

// refuseCollision returns an error if Windows has kept a disk offline, or has taken the disk
// offline again, for being a copy. ids are from the disk's partition table as Windows last showed
// the table.
func (d *Disks) refuseCollision(ctx context.Context, h *usage.LockedDisk, ids []string) error {
	original, id, err := d.findOriginal(ctx, h.Number, ids)
	if err != nil {
		return err
	}
	if id != "" {
		return refuse(fmt.Sprintf("it is a copy of %s, which is online: both have the %s, and Windows keeps it "+
			"offline; detach one of them", original, id))
	}
	return ctx.Err() // the disk isn't a copy: the caller tries again, unless ctx has ended
}

// findOriginal searches all online disks except n for a disk with any of ids in its partition
// table. It returns the disk's name for errors, and the shared id; "" if no disk matches. Silent
// disks are skipped: a disk that stays silent would keep all other disks offline.
func (d *Disks) findOriginal(ctx context.Context, n csiproxy.DiskNumber,
	ids []string) (original, id string, _ error) {
	if len(ids) == 0 {
		return "", "", nil
	}
	others, err := d.eachDisk(ctx, &d.queries.idsIfOnline, nil, idsIfOnline)
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

// name names a disk of the node in errors, given the driver that owns the disk. A driver only
// learns the numbers of its own disks.
func (d *Disks) name(n csiproxy.DiskNumber, driver string) string {
	if own := d.options.Driver; own != "" && own != driver {
		return "a disk that isn't driver " + quote.Text(own) + "'s"
	}
	return diskObject(n)
}

// idsIfOnline fills in the ids in an online disk's table; none for an offline disk.
func idsIfOnline(ctx context.Context, h *opendisk.Disk, f *found) error {
	state, err := h.State(ctx)
	if err != nil || state.Offline {
		return err
	}
	layout, err := h.Layout(ctx)
	f.tableIDs = tableIDs(layout)
	return err
}

// tableIDs returns the ids by which Windows distinguishes disks and volumes, from a partition
// table.
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

// tableIDsOf is tableIDs for a description of a disk. A description has the disk's id only, and
// lacks the ids of partitions.
func tableIDsOf(disk csiproxy.Disk) []string {
	switch disk.Style {
	case csiproxy.PartitionStyleGPT:
		return []string{"disk id {" + disk.DiskID + "}"}
	case csiproxy.PartitionStyleMBR:
		return []string{"disk signature " + strings.ToUpper(disk.DiskID)}
	}
	return nil
}
