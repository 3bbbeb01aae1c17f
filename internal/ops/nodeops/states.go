// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
)

// States returns the online disks and the number of offline disks, among the disks that answer.
func (d *Disks) States(ctx context.Context) (online []csiproxy.DiskNumber, offline int, err error) {
	results, err := d.askStates(ctx)
	for _, f := range d.queries.states.disksOf(results) {
		if f.err != nil {
			continue
		}
		if f.state.Offline {
			offline++
		} else {
			online = append(online, f.number)
		}
	}
	return online, offline, err
}

// AllOnline reports whether each disk that may have a volume of a driver is online; with driver "", each
// disk that may have a volume without a driver. A silent disk may be offline, and AllOnline returns the
// disk's error.
func (d *Disks) AllOnline(ctx context.Context, driver string) (bool, error) {
	results, err := d.askStates(ctx)
	if err != nil {
		return false, err
	}
	for _, f := range results {
		last := d.options.Shared.disks.last(f.path)
		// The first condition is about the caller, the second one about the volume's driver.
		if !last.mayBeOf(d.options.Driver) || last.isOfAnother(driver) {
			continue
		}
		if f.err != nil || f.state.Offline {
			return false, f.err
		}
	}
	return true, nil
}

// askStates asks all disks for their states.
func (d *Disks) askStates(ctx context.Context) ([]found, error) {
	return d.askDisks(ctx, &d.queries.states, nil,
		func(ctx context.Context, h *opendisk.Disk, f *found) (err error) {
			f.state, err = h.State(ctx)
			return err
		})
}
