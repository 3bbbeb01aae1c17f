// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// States returns how many disks are online and offline, of those that answer.
func (d *Disks) States(ctx context.Context) (online, offline int, err error) {
	all, err := eachDisk(ctx, d, "attributes", othersTimeout,
		func(ctx context.Context, h *opendisk.Disk) (win.DiskAttributes, error) { return h.Attributes(ctx) })
	for _, a := range all {
		switch {
		case a.err != nil:
		case a.value&win.DiskOffline == 0:
			online++
		default:
			offline++
		}
	}
	return online, offline, err
}

// AllOnline reports whether all disks of the node are online. If a disk doesn't answer, it may be
// offline, and AllOnline returns its error.
func (d *Disks) AllOnline(ctx context.Context) (bool, error) {
	isOnline := func(ctx context.Context, path string) (any, error) {
		h, err := d.openPath(ctx, path)
		if err != nil || h == nil {
			return true, err
		}
		defer h.Close()
		attributes, err := h.Attributes(ctx)
		return attributes&win.DiskOffline == 0, err
	}
	results, err := d.all.all(ctx, query{"online", othersTimeout, isOnline})
	if err != nil {
		return false, err
	}
	for _, r := range results {
		if r.err != nil || r.value != true {
			return false, r.err
		}
	}
	return true, nil
}
