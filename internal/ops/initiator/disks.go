// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"context"
	"errors"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	// diskTimeout is how long a disk listed by the initiator may need to arrive.
	diskTimeout = 15 * time.Second
	// lunTimeout is how long the initiator may need to list the devices of a target. The time is
	// short because some targets have no devices.
	lunTimeout = 3 * time.Second

	firstRescan = 100 * time.Millisecond
)

// awaitDisks returns the disks of a target, sorted. It waits for missing disks, and makes the
// adapters rescan from time to time.
func (i *Initiator) awaitDisks(ctx context.Context, at place, iqn csiproxy.IQN) ([]csiproxy.DiskNumber, error) {
	begin := time.Now()
	rescan, interval := begin.Add(firstRescan), 2*firstRescan
	var found devices
	polling := operation.Polling{Timeout: diskTimeout}
	for polling.Next(ctx) {
		var err error
		if found, err = i.disks(ctx, at, iqn); err != nil || found.complete() || time.Since(begin) > found.timeout() {
			return found.numbers, err
		}
		if now := time.Now(); now.After(rescan) {
			rescan, interval = now.Add(interval), 2*interval
			if err := i.rescan(ctx); err != nil {
				return found.numbers, err
			}
		}
	}
	return found.numbers, ctx.Err()
}

// devices are the devices of a target, as listed by the initiator.
type devices struct {
	sessions int
	ended    bool                  // a session ended during the query
	total    int                   // of all kinds
	pending  int                   // disks yet to arrive
	numbers  []csiproxy.DiskNumber // of the arrived disks, sorted
}

func (d devices) complete() bool {
	return !d.ended && (d.sessions == 0 || d.total > 0 && d.pending == 0)
}

func (d devices) timeout() time.Duration {
	if d.total == 0 {
		return lunTimeout
	}
	return diskTimeout
}

// disks queries the devices of a target.
func (i *Initiator) disks(ctx context.Context, at place, iqn csiproxy.IQN) (devices, error) {
	sessions, err := i.sessions(ctx, at, iqn)
	if err != nil {
		return devices{}, err
	}
	found := devices{sessions: len(sessions)}
	for _, s := range sessions {
		list, err := query(ctx, i, func(ctx context.Context) ([]win.ISCSIDevice, error) {
			return i.sys.ISCSISessionDevices(ctx, s.ID)
		})
		if errors.Is(err, winerr.ISDSCInvalidSessionID) { // there may be a new session now
			found.ended = true
			continue
		}
		if err != nil {
			return devices{}, err
		}
		found.total += len(list)
		for _, device := range list {
			switch {
			case device.Device.DeviceType != win.FileDeviceDisk && device.Device.DeviceType != 0: // a tape, say
			case device.Device.DeviceNumber == win.NoNumber:
				found.pending++
			default:
				found.numbers = append(found.numbers, csiproxy.DiskNumber(device.Device.DeviceNumber))
			}
		}
	}
	slices.Sort(found.numbers)
	found.numbers = slices.Compact(found.numbers) // two sessions may lead to one disk
	return found, nil
}

// rescan makes all storage adapters search for logical units. An adapter's refusal is only logged.
func (i *Initiator) rescan(ctx context.Context) error {
	if i.options.ReenumerateAdapters == nil {
		return nil
	}
	err := i.options.ReenumerateAdapters(ctx)
	if err != nil && ctx.Err() == nil {
		i.options.Logger.Warn("the adapters aren't asked for new disks", "err", err)
		return nil
	}
	return err
}

// LUN is a logical unit of a target.
type LUN struct {
	csiproxy.ISCSILUN
	Portal csiproxy.ISCSIPortal // the session's portal; the zero value while the session has no connection
}

// LUNs maps the disks of the node to their targets and logical units.
func (i *Initiator) LUNs(ctx context.Context) (map[csiproxy.DiskNumber]LUN, error) {
	sessions, err := query(ctx, i, i.sys.ISCSISessions)
	if err != nil {
		return nil, err
	}
	luns := make(map[csiproxy.DiskNumber]LUN)
	for _, s := range sessions {
		devices, err := query(ctx, i, func(ctx context.Context) ([]win.ISCSIDevice, error) {
			return i.sys.ISCSISessionDevices(ctx, s.ID)
		})
		if errors.Is(err, winerr.ISDSCInvalidSessionID) { // the session has ended meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, device := range devices {
			if device.Device.DeviceNumber != win.NoNumber {
				lun := LUN{ISCSILUN: csiproxy.ISCSILUN{IQN: csiproxy.IQN(s.Target), LUN: uint32(device.SCSIAddress.LUN)}}
				if len(s.Portals) > 0 {
					lun.Portal = csiproxy.ISCSIPortal(s.Portals[0])
				}
				luns[device.Device.DeviceNumber] = lun
			}
		}
	}
	return luns, nil
}
