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
	// treeInterval is how much time lies between two walks of the whole device tree that
	// find nothing: a walk also starts devices that the administrator left unstarted.
	treeInterval = 30 * time.Second
)

// rescans are the rescans of a node.
type rescans struct {
	shared operation.Shared
	// treeWalked is when the whole device tree was last asked. Only one scan runs at a
	// time, so nothing guards it.
	treeWalked time.Time
}

// Rescan implements [disk.Operations].
func (d *Disks) Rescan(ctx context.Context) error {
	return operation.Do(ctx, d.options.Runner, "Rescan", "", func(ctx context.Context) error {
		return d.rescan.shared.Do(ctx, d.scan)
	})
}

func (d *Disks) scan(ctx context.Context) error {
	before, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	if err != nil {
		return err
	}
	slices.Sort(before)
	if err := d.AskAdapters(ctx); err != nil {
		return err
	}
	after, err := d.settle(ctx)
	if err != nil {
		return err
	}
	// Only if the adapters find nothing is the whole device tree asked, which costs more:
	// a new disk may come with an adapter of its own, as NVMe disks do.
	if slices.Equal(before, after) && (d.rescan.treeWalked.IsZero() || time.Since(d.rescan.treeWalked) >= treeInterval) {
		if err := d.sys.ReenumerateDevice(ctx, ""); err != nil {
			return err
		}
		if after, err = d.settle(ctx); err != nil {
			return err
		}
		if slices.Equal(before, after) {
			d.rescan.treeWalked = time.Now()
		}
	}
	// Windows reads the size and the partitions of each disk again. Whatever a single disk
	// answers must not keep the others from being seen.
	_, err = d.visits.all(ctx, question{"refresh", d.visits.patience, d.refresh, nil})
	d.options.Owner.Changed()
	return err
}

// AskAdapters has each storage adapter ask its bus again, which finds logical units that
// came and went without a notice. One that refuses keeps no other from it, nor does one
// that doesn't answer. If all refuse, so that nothing was looked for, the error is that of
// one of them.
func (d *Disks) AskAdapters(ctx context.Context) error {
	ask := func(ctx context.Context, path string) (any, error) { return nil, d.sys.ReenumerateDevice(ctx, path) }
	asked, err := d.adapters.all(ctx, question{"re-enumeration", d.adapters.patience, ask, nil})
	if err != nil {
		return err
	}
	if len(asked) > 0 && !slices.ContainsFunc(asked, func(r result) bool { return r.err == nil || isGone(r.err) }) {
		return asked[0].err
	}
	return nil
}

// settle waits until the list of disks stays as it is, and returns it sorted:
// re-enumeration returns before the disks that it found have started.
func (d *Disks) settle(ctx context.Context) ([]string, error) {
	var last []string
	first := true
	_, err := operation.Poll(ctx, operation.Polling{Patience: settlePatience, First: settleInterval,
		Longest: settleInterval}, func() (bool, error) {
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

// refresh makes Windows read the size and the partitions of a disk again.
func (d *Disks) refresh(ctx context.Context, path string) (any, error) {
	h, err := device.Open(ctx, d.sys, path, win.GenericRead|win.GenericWrite)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return nil, errors.Join(h.UpdateDriveSize(ctx), h.UpdateProperties(ctx))
}
