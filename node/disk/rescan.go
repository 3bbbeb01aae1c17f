// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Bounds of one rescan, which may serve several callers.
const (
	rescanTimeout  = 2 * time.Minute
	settleInterval = 25 * time.Millisecond
	settlePatience = 5 * time.Second
)

// Rescan makes Windows see new, removed and grown disks before it returns.
// Callers at the same time share one scan, which begins after each of them has
// called.
func (d *Disks) Rescan(ctx context.Context) error {
	return operation.Do(ctx, d.options.Runner, "Rescan", "", func(ctx context.Context) error {
		return d.rescan.do(ctx, func() error {
			// A caller that gives up must not end the scan of the others.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rescanTimeout)
			defer cancel()
			return d.scan(ctx)
		})
	})
}

func (d *Disks) scan(ctx context.Context) error {
	before, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	if err != nil {
		return err
	}
	slices.Sort(before)
	// The storage adapters ask their buses again, which finds logical units that
	// came and went without a notice. Only if that finds nothing is the whole
	// device tree asked, which costs more: a new disk may come with an adapter
	// of its own, as NVMe disks do.
	adapters, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassStoragePort)
	if err != nil {
		return err
	}
	for _, adapter := range adapters {
		if err := d.sys.ReenumerateDevice(ctx, adapter); err != nil && !isGone(err) {
			return err
		}
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
	deadline := time.Now().Add(settlePatience)
	for first := true; ; first = false {
		now, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
		if err != nil {
			return nil, err
		}
		slices.Sort(now)
		if !first && slices.Equal(now, last) || time.Now().After(deadline) {
			return now, nil
		}
		last = now
		if err := win.Sleep(ctx, settleInterval); err != nil {
			return nil, err
		}
	}
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

// coalescer lets callers share runs of one function: at most one run is under
// way, and at most one more is awaited by all who came since it began.
type coalescer struct {
	mu      sync.Mutex
	running bool
	waiting *run // the next run; nil if nobody waits for one
}

type run struct {
	f    func() error
	done chan struct{}
	// Set before done is closed.
	err      error
	panicked any
}

// do returns the result of a run of f, or of a like function of another caller, that
// begins after do was called.
func (c *coalescer) do(ctx context.Context, f func() error) error {
	c.mu.Lock()
	r := c.waiting
	if r == nil {
		r = &run{f: f, done: make(chan struct{})}
		c.waiting = r
		if !c.running {
			c.running = true
			go c.work()
		}
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work makes the runs that somebody waits for, one after the other.
func (c *coalescer) work() {
	for {
		c.mu.Lock()
		r := c.waiting
		c.waiting = nil
		c.running = r != nil
		c.mu.Unlock()
		if r == nil {
			return
		}
		r.call()
	}
}

// call runs r.f. A panic is passed on to those who wait: they know what to do with
// it, while here it would end the process.
func (r *run) call() {
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
		}
	}()
	r.err = r.f()
}
