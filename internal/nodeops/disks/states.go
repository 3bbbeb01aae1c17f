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
	err = eachDisk(ctx, d, "attributes", aside,
		func(ctx context.Context, _ disk.Number, h device.Handle) (bool, error) {
			attributes, err := h.Attributes(ctx)
			return attributes&win.DiskOffline == 0, err
		},
		func(_ disk.Number, isOnline bool) {
			if isOnline {
				online++
			} else {
				offline++
			}
		}, nil)
	return online, offline, err
}
