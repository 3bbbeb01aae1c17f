// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	settleInterval = 25 * time.Millisecond
	// settleTimeout is short because another driver's disks may come and go all the time.
	settleTimeout = time.Second
)

// Rescan implements [published.DiskOperations].
func (d *Disks) Rescan(ctx context.Context) (err error) {
	defer d.options.Observer.End("Rescan", "", time.Now(), &err)
	return d.sharedScan(ctx, true)
}

// RescanAdapters is Rescan without the device tree.
func (d *Disks) RescanAdapters(ctx context.Context) (err error) {
	defer d.options.Observer.End("Rescan", "", time.Now(), &err)
	return d.sharedScan(ctx, false)
}

// sharedScan is scan, shared with concurrent callers. A caller that arrives during a scan shares
// the next scan: the caller's disk may have arrived too late for the current one.
func (d *Disks) sharedScan(ctx context.Context, tree bool) error {
	_, err := d.rescans.Do(ctx, tree, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.scan(ctx, tree)
	})
	return err
}

// scan has Windows search for new disks. With tree, if the adapters find nothing, Windows
// re-enumerates the whole device tree: a new disk may come with an adapter of its own, as NVMe
// disks do. A search of the whole tree costs more, and also starts devices that the administrator left
// unstarted. In the end, a driver waits only for disks that may be its own.
func (d *Disks) scan(ctx context.Context, tree bool) error {
	before, err := d.options.Lists.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	if err != nil {
		return err
	}
	slices.Sort(before)
	if err := d.ReenumerateAdapters(ctx); err != nil {
		return err
	}
	after, err := d.settle(ctx)
	if err != nil {
		return err
	}
	if tree && slices.Equal(before, after) {
		if err := d.options.Lists.ReenumerateDevice(ctx, ""); err != nil {
			return err
		}
		if _, err := d.settle(ctx); err != nil {
			return err
		}
	}
	// Windows reads the size and the partitions of each disk again. The scan continues after the
	// error of a disk.
	_, err = d.queries.refreshes.all(ctx, nil, d.refresh)
	return err
}

// An adapter slower than adapterTimeout counts as slow for slowAdapterTimeout. The cause may be
// another driver's target.
const (
	adapterTimeout     = 500 * time.Millisecond
	slowAdapterTimeout = 10 * time.Minute
)

// ReenumerateAdapters makes each storage adapter ask its bus again. Windows then finds logical units
// that came or went without a notice. ReenumerateAdapters skips refusing and silent adapters. If all
// adapters refuse, it returns the error of one of them. A driver doesn't wait for slow adapters: a disk
// there may arrive later.
func (d *Disks) ReenumerateAdapters(ctx context.Context) error {
	adapters := &d.queries.reenumerations
	asked, err := adapters.all(ctx, nil, func(ctx context.Context, path string) (found, error) {
		noteSlow := func() { adapters.devices.note(path, func(t *knowledge) { t.slow = time.Now() }) }
		defer time.AfterFunc(adapterTimeout, noteSlow).Stop()
		return found{}, d.options.Lists.ReenumerateDevice(ctx, path)
	})
	if err != nil {
		return err
	}
	if len(asked) > 0 && !slices.ContainsFunc(asked, func(f found) bool {
		return f.err == nil || f.err == errOtherDriver || deviceDepartedOrUnready(f.err)
	}) {
		return asked[0].err
	}
	return nil
}

// settle waits until the list of disks stops changing, and returns the list, sorted. Re-enumeration
// returns before the found disks have started.
func (d *Disks) settle(ctx context.Context) ([]string, error) {
	var last []string
	isFirst := true
	polling := operation.Polling{Timeout: settleTimeout, First: settleInterval, Longest: settleInterval}
	for polling.Next(ctx) {
		interfaces, err := d.options.Lists.DeviceInterfaces(ctx, win.InterfaceClassDisk)
		if err != nil {
			return last, err
		}
		slices.Sort(interfaces)
		if !isFirst && slices.Equal(interfaces, last) {
			return last, nil
		}
		last, isFirst = interfaces, false
	}
	return last, ctx.Err()
}

// refresh makes Windows read the size and the partitions of a disk again.
func (d *Disks) refresh(ctx context.Context, path string) (none found, _ error) {
	// The disk at this path may differ from the disk in the last list.
	if scratch, err := d.isScratch(ctx, path); err != nil || scratch {
		return none, err
	}
	h, err := win.OpenDevice(ctx, d.options.Lists, path, win.GenericRead|win.GenericWrite)
	if err != nil {
		return none, err
	}
	defer h.Close()
	return none, errors.Join(h.UpdateDriveSize(ctx), h.UpdateProperties(ctx))
}

// isScratch is askScratch for a closed disk.
func (d *Disks) isScratch(ctx context.Context, path string) (bool, error) {
	h, err := win.OpenDevice(ctx, d.options.Lists, path, win.AccessNone)
	if err != nil {
		return false, err
	}
	defer h.Close()
	_, scratch, err := d.options.Shared.askScratch(ctx, path, h)
	return scratch, err
}
