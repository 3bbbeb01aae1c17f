// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

const (
	settleInterval = 25 * time.Millisecond
	settlePatience = 5 * time.Second
)

// Rescan implements [disk.Operations].
func (d *Disks) Rescan(ctx context.Context) error {
	return operation.Do(ctx, d.options.Runner, "Rescan", "", func(ctx context.Context) error {
		return d.rescan.Do(ctx, d.scan)
	})
}

func (d *Disks) scan(ctx context.Context) error {
	before, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	if err != nil {
		return err
	}
	slices.Sort(before)
	// Only if the adapters find nothing is the whole device tree asked, which costs
	// more: a new disk may come with an adapter of its own, as NVMe disks do.
	if err := device.ReenumerateAdapters(ctx, d.sys); err != nil {
		return err
	}
	after, err := d.settle(ctx)
	if err != nil {
		return err
	}
	if slices.Equal(before, after) {
		if err := d.sys.ReenumerateDevice(ctx, ""); err != nil {
			return err
		}
		if after, err = d.settle(ctx); err != nil {
			return err
		}
	}
	for _, path := range after {
		if err := d.refresh(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until the list of disks stays as it is, and returns it sorted:
// re-enumeration returns before the disks that it found have started.
func (d *Disks) settle(ctx context.Context) ([]string, error) {
	var last []string
	first := true
	_, err := operation.Poll(ctx, operation.Polling{Patience: settlePatience, First: settleInterval, Longest: settleInterval}, func() (bool, error) {
		now, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
		if err != nil {
			return false, err
		}
		slices.Sort(now)
		same := !first && slices.Equal(now, last)
		last, first = now, false
		return same, nil
	})
	return last, err
}

// refresh makes Windows read the size and the partitions of a disk anew.
// Whatever a single disk answers must not keep the others from being seen.
func (d *Disks) refresh(ctx context.Context, path string) error {
	h, err := device.Open(ctx, d.sys, path, win.GenericRead|win.GenericWrite)
	if err == nil {
		err = errors.Join(h.UpdateDriveSize(ctx), h.UpdateProperties(ctx))
		h.Close()
	}
	if err != nil {
		d.options.Logger.Info("a disk isn't refreshed by the rescan", "device", path, "err", err)
	}
	return ctx.Err()
}
