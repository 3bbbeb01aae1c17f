// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The states of a disk.
var (
	onlineWritable  = win.DiskState{}
	onlineReadOnly  = win.DiskState{ReadOnly: true}
	offlineWritable = win.DiskState{Offline: true}
	offlineReadOnly = win.DiskState{Offline: true, ReadOnly: true}
)

// WhileOnline brings a disk online in the wanted state, lets judge examine the disk, and calls use
// with the disk's partition table. judge runs after the disk is online, because Windows may hide
// the contents of an offline disk. judge may be nil. The disk stays online, except if judge or use
// refuses the disk, or if the caller gives up before use: then the disk is put back (see
// [Disks.PutBack]).
//
// judge and use may run several times: perhaps Windows takes a disk offline again while it handles
// the disk's arrival. No public source says whether it does, or for how long. If judge or use
// fails, and the disk has gone offline or has become read-only, WhileOnline repeats all steps, for
// 30 seconds. A copy of an online disk is refused when the copy stays offline: see
// [Disks.refuseCollision].
func (d *Disks) WhileOnline(ctx context.Context, h *usage.LockedDisk, before, wanted win.DiskState,
	judge, use func(layout *win.DriveLayout) error) (err error) {
	isUsed := false
	defer func() {
		gaveUp := err != nil && ctx.Err() != nil && !isUsed
		if gaveUp || IsRefusal(err) {
			d.PutBack(ctx, h, before)
		}
	}()
	var ids []string // in the table that Windows last showed
	attempt := func() error {
		layout, err := h.Layout(ctx)
		if err != nil {
			return err
		}
		if shown := tableIDs(layout); len(shown) > 0 {
			ids = shown
		}
		if judge != nil {
			if err := judge(layout); err != nil {
				return err
			}
		}
		isUsed = true
		return use(layout)
	}
	timesOffline := 0
	polling := operation.Polling{Timeout: onlineTimeout, First: onlineInterval, Longest: onlineLongestInterval}
	for polling.Next(ctx) {
		if err = d.bringOnline(ctx, h, wanted); err != nil {
			return err
		}
		err = attempt()
		if err == nil || IsRefusal(err) || !mustChangeAgain(ctx, h, wanted) {
			return err
		}
		if timesOffline++; timesOffline >= onlineAttemptsOfCopy(wanted) {
			if collision := d.refuseCollision(ctx, h, ids); collision != nil {
				return collision
			}
		}
		d.options.Logger.Info("disk went offline again", "disk", h.Number, "err", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "it went offline again and again; try again later", Err: err}
}

// mustChangeAgain reports whether a disk brought online in the wanted state has left the state.
func mustChangeAgain(ctx context.Context, h *usage.LockedDisk, wanted win.DiskState) bool {
	state, err := h.State(ctx)
	return err == nil && opendisk.MustChange(state, wanted)
}

// onlineAttemptsOfCopy is how often a copy of an online disk is brought online before the refusal.
// Only a writable copy gets a second attempt: Windows may give the copy new ids meanwhile.
func onlineAttemptsOfCopy(wanted win.DiskState) int {
	if wanted.ReadOnly {
		return 1
	}
	return 2
}

// Intervals and timeout for bringing a disk online in WhileOnline.
const (
	onlineTimeout         = 30 * time.Second
	onlineInterval        = 50 * time.Millisecond
	onlineLongestInterval = time.Second
)

// IsRefusal reports whether err refuses a disk until somebody changes the disk or the request.
// Windows' own errors don't count: they may be transient.
func IsRefusal(err error) bool {
	switch csiproxy.KindOf(err) {
	case csiproxy.ErrFailedPrecondition, csiproxy.ErrNotFound, csiproxy.ErrAlreadyExists, csiproxy.ErrPermissionDenied:
		return !errors.As(err, new(winerr.Errno))
	}
	return false
}

// bringOnline brings a disk online and, except for a disk wanted read-only, makes the disk
// writable. It retries a change that Windows refuses, or accepts without effect, as for a newly
// arrived disk.
//
// Source: https://github.com/ansible-collections/community.windows/issues/459 (a disk stays
// offline), https://github.com/kubernetes-csi/csi-proxy/issues/438 (a disk stays read-only)
func (d *Disks) bringOnline(ctx context.Context, h *usage.LockedDisk, wanted win.DiskState) error {
	before, err := h.State(ctx)
	if err != nil || !opendisk.MustChange(before, wanted) {
		return err
	}
	state, accepted := before, 0
	err = operation.UntilReady(ctx, func() error {
		if accepted == onlineAttemptsOfCopy(wanted) { // not at each attempt: refuseCollision asks all disks
			layout, _ := h.Layout(ctx) // Windows may not return the table of an offline disk
			if err := d.refuseCollision(ctx, h, tableIDs(layout)); err != nil {
				return err
			}
		}
		return h.Verify(ctx)
	}, func() error {
		if err := d.setOnline(ctx, h, state, wanted); err != nil {
			return err
		}
		accepted++
		state, err = h.State(ctx)
		if err != nil || !opendisk.MustChange(state, wanted) {
			return err
		}
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows accepted the request, but the disk is still offline or read-only; "+
			"try again; if it stays so, check whether it is a copy of a disk that is online")
	})
	if err != nil {
		return err
	}
	d.options.Logger.Info("disk brought online", "disk", h.Number, "wasOffline", before.Offline, "wasReadOnly", before.ReadOnly)
	return nil
}

// setOnline changes the state of a verified disk.
func (d *Disks) setOnline(ctx context.Context, h *usage.LockedDisk, state, wanted win.DiskState) error {
	if state.ReadOnly && !wanted.ReadOnly {
		// Windows mounts the file systems as soon as the disk is online. File systems mounted from
		// a read-only disk stay read-only. The disk must therefore become writable while offline.
		if err := h.SetState(ctx, state, offlineWritable); err != nil {
			return err
		}
		if err := h.Verify(ctx); err != nil {
			return err
		}
		state = offlineWritable
	}
	online := win.DiskState{ReadOnly: state.ReadOnly} // makeReadOnly has set the attribute, if wanted
	if err := h.SetState(ctx, state, online); err != nil {
		return err
	}
	return h.UpdateProperties(ctx)
}

// PutBack restores the state that a disk had before it was brought online. A failure is only logged:
// the caller needs the reason of the refusal. A disk that was online and writable keeps its new
// state: the next call that needs the disk makes it online and writable.
//
// PutBack doesn't delete the drive letters of the disk's volumes. While the disk is offline they
// don't show, and Windows gives them back later: a letter may be an administrator's.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/mountmgr/ni-mountmgr-ioctl_mountmgr_delete_points
func (d *Disks) PutBack(ctx context.Context, h *usage.LockedDisk, before win.DiskState) {
	if err := d.putBack(context.WithoutCancel(ctx), h, before); err != nil {
		d.options.Logger.Warn("can't take a disk offline again after a refused request", "disk", h.Number, "err", err)
	}
}

func (d *Disks) putBack(ctx context.Context, h *usage.LockedDisk, before win.DiskState) error {
	state, err := h.State(ctx)
	if err != nil {
		return err
	}
	if before == onlineWritable || state == before {
		return nil
	}
	var volumes opendisk.Volumes
	if before.Offline && !state.Offline {
		layout, err := h.Layout(ctx)
		if err != nil {
			return err
		}
		volumes, err = h.PresentVolumes(ctx, d.sys, d.options.Lists, opendisk.DataPartitions(layout))
		if err != nil {
			return err
		}
		paths, err := d.DirectoriesOf(ctx, volumes)
		if err != nil {
			return err
		}
		if len(paths) > 0 { // somebody has begun to use the disk
			return refuse("a volume of it is mounted at " + quote.List(paths))
		}
	}
	if err := d.flushAndSet(ctx, h, volumes, state, before); err != nil {
		return err
	}
	d.options.Logger.Info("disk returned to its earlier state after a refused request", "disk", h.Number, "offline", before.Offline,
		"readOnly", before.ReadOnly)
	return nil
}

// TakeOffline flushes the volumes of a disk and changes the disk's state to an offline state. It
// goes on after a failed flush: a broken disk must go offline, too.
//
// If the new state is writable, TakeOffline first tries to take the disk offline and make it writable by one
// call to Windows. Between two calls, the disk could leave or the process die, and a repeated
// UnstageVolume may no longer know the disk. The read-only attribute must not remain: Windows keeps
// the attribute for the disk's place, and the next disk there would inherit the attribute.
func (d *Disks) TakeOffline(ctx context.Context, h *usage.LockedDisk, volumes opendisk.Volumes,
	from, to win.DiskState) error {
	if err := d.flushAndSet(ctx, h, volumes, from, to); err != nil {
		return err
	}
	if !from.Offline {
		d.options.Logger.Info("disk taken offline", "disk", h.Number)
	}
	if from.ReadOnly && !to.ReadOnly {
		d.options.Logger.Info("disk made writable, since it is staged no more", "disk", h.Number)
	}
	return nil
}

// flushAndSet flushes volumes of a disk, and changes the disk's state.
func (d *Disks) flushAndSet(ctx context.Context, h *usage.LockedDisk, volumes opendisk.Volumes, from, to win.DiskState) error {
	for _, name := range volumes {
		err := d.flush(ctx, name)
		if err != nil && !winerr.IsAny(err, nothingToFlush...) {
			d.options.Logger.Warn("can't flush a volume before its disk goes offline", "disk", h.Number,
				"volume", name, "err", err)
		}
	}
	if err := h.Verify(ctx); err != nil {
		return err
	}
	err := h.SetState(ctx, from, to)
	changesBoth := from.Offline != to.Offline && from.ReadOnly != to.ReadOnly
	if err == nil || !changesBoth {
		return err
	}
	// No public code changes both in one call, and Windows may refuse the combination forever.
	step := win.DiskState{Offline: to.Offline, ReadOnly: from.ReadOnly}
	if stepErr := h.SetState(ctx, from, step); stepErr != nil {
		return err
	}
	return h.SetState(ctx, step, to)
}

func (d *Disks) flush(ctx context.Context, name string) error {
	h, err := win.OpenDevice(ctx, d.sys, win.VolumePath(name), win.GenericRead|win.GenericWrite)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Flush(ctx)
}
