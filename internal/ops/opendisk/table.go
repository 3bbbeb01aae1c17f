// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Layout returns the partition table of the disk. If there is none, the style is win.StyleRAW,
// regardless of how Windows reports a missing table.
//
// Microsoft documents win.StyleRAW. In the event log of Windows 10, a blank disk has an MBR without
// a signature and without partitions, and the same appears in rufus' logs of freshly erased disks
// (pbatard/rufus#301). A driver may also refuse the query as unknown. The refusal proves nothing
// about the disk's contents, and the sectors of a possible table must also be blank. After any
// other error, whether the disk has a table is unknown.
//
// Source: https://github.com/EricZimmerman/evtx, evtx/Maps,
// Microsoft-Windows-Partition-Diagnostic_Microsoft-Windows-Partition_1006.map
func (d *Disk) Layout(ctx context.Context) (*win.DriveLayout, error) {
	layout, err := d.DeviceHandle.Layout(ctx)
	blank := err == nil && !hasTable(layout)
	if winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported) {
		var readErr error
		if blank, readErr = d.isBlank(ctx); readErr != nil {
			err = errors.Join(err, readErr)
		}
	}
	if blank {
		return &win.DriveLayout{Style: win.StyleRAW}, nil
	}
	if errors.As(err, new(winerr.Errno)) && !winerr.IsGone(err) {
		return nil, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "its partition table isn't known", Err: err}
	}
	return layout, err
}

// hasTable reports whether Windows' answer is a partition table.
func hasTable(l *win.DriveLayout) bool {
	switch l.Style {
	case win.StyleRAW:
		return false
	case win.StyleMBR:
		if l.Signature != 0 {
			return true
		}
		for _, p := range l.Partitions {
			if p.MBRType != 0 || p.StartingOffset != 0 || p.Length != 0 {
				return true
			}
		}
		return false
	}
	return true
}

// isBlank reports whether there are only zeros in the places of the disk's partition tables.
func (d *Disk) isBlank(ctx context.Context) (bool, error) {
	geometry, err := d.Geometry(ctx)
	if err != nil {
		return false, err
	}
	return IsBlank(ctx, d, geometry.DiskSize, geometry.BytesPerSector)
}
