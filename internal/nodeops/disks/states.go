// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// States returns how many disks are online and offline, of those that answer.
func (d *Disks) States(ctx context.Context) (online, offline int, err error) {
	all, err := eachDisk(ctx, d, "attributes", othersPatience, nil,
		func(ctx context.Context, _ string, _ disk.Number, h device.Handle) (win.DiskAttributes, error) {
			return h.Attributes(ctx)
		})
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

// AllOnline reports whether all disks of the node are online. It returns the error of one that
// doesn't tell: that may be offline.
func (d *Disks) AllOnline(ctx context.Context) (bool, error) {
	isOnline := func(ctx context.Context, path string) (any, error) {
		h, err := device.Open(ctx, d.sys, path, win.AccessNone)
		if err != nil {
			return false, err
		}
		defer h.Close()
		attributes, err := h.Attributes(ctx)
		return attributes&win.DiskOffline == 0, err
	}
	results, err := d.visits.all(ctx, question{"online", othersPatience, isOnline, nil})
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
