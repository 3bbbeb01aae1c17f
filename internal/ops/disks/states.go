// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
)

// States returns how many disks are online and offline, of those that answer.
func (d *Disks) States(ctx context.Context) (online, offline int, err error) {
	results, err := d.askStates(ctx)
	for _, a := range answersOf[device.State](d.shared, d.options.Driver, results) {
		switch {
		case a.err != nil:
		case !a.value.Offline:
			online++
		default:
			offline++
		}
	}
	return online, offline, err
}

// AllOnline reports whether all disks are online: those of the node, or those that may be the driver's. If a disk doesn't
// answer, it may be offline, and AllOnline returns its error.
func (d *Disks) AllOnline(ctx context.Context) (bool, error) {
	results, err := d.askStates(ctx)
	if err != nil {
		return false, err
	}
	for _, r := range results {
		if !d.shared.all.last(r.path).mayBeOf(d.options.Driver) {
			continue
		}
		if r.err != nil {
			return false, r.err
		}
		if a, ok := r.value.(*answer[device.State]); ok && a.value.Offline {
			return false, nil
		}
	}
	return true, nil
}

// askStates asks all disks for their states.
func (d *Disks) askStates(ctx context.Context) ([]result, error) {
	return askDisks(ctx, d.shared, d.options.Driver, &d.shared.queries.states, nil,
		func(ctx context.Context, h *opendisk.Disk) (device.State, error) { return h.State(ctx) })
}
