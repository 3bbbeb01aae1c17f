// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/node/disk"
)

// adapters are the storage adapters, of which the initiator is one.
type adapters interface {
	// DeviceInterfaces returns the paths of the devices present in a class
	// (CM_Get_Device_Interface_ListW).
	DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error)
	// ReenumerateDevice makes Windows ask a device for its children again
	// (CM_Reenumerate_DevNode).
	ReenumerateDevice(ctx context.Context, interfacePath string) error
}

const (
	// diskPatience is how long a disk that the initiator has may need to arrive.
	diskPatience = 15 * time.Second
	// lunPatience is how long the initiator may need to tell what a target has; some
	// have nothing.
	lunPatience = 3 * time.Second

	firstPoll   = 5 * time.Millisecond
	longestPoll = 250 * time.Millisecond
	firstRescan = 100 * time.Millisecond
)

// awaitDisks returns the disks of a target, sorted. As long as one hasn't arrived, it
// waits, and has the adapters look from time to time.
func (i *Initiator) awaitDisks(ctx context.Context, iqn IQN) ([]disk.Number, error) {
	begin := time.Now()
	rescan, interval := begin.Add(firstRescan), 2*firstRescan
	for poll := firstPoll; ; poll = min(2*poll, longestPoll) {
		found, err := i.disks(ctx, iqn)
		if err != nil || found.complete() || time.Since(begin) > found.patience() {
			return found.numbers, err
		}
		if now := time.Now(); now.After(rescan) {
			rescan, interval = now.Add(interval), 2*interval
			if err := i.rescan(ctx); err != nil {
				return nil, err
			}
		}
		if err := win.Sleep(ctx, poll); err != nil {
			return nil, err
		}
	}
}

// devices is what a target has.
type devices struct {
	sessions int
	total    int           // of all kinds
	pending  int           // disks that haven't arrived
	numbers  []disk.Number // of those that have, sorted
}

func (d devices) complete() bool { return d.sessions == 0 || d.total > 0 && d.pending == 0 }

func (d devices) patience() time.Duration {
	if d.total == 0 {
		return lunPatience
	}
	return diskPatience
}

// disks returns what a target has now.
func (i *Initiator) disks(ctx context.Context, iqn IQN) (devices, error) {
	sessions, err := i.sessions(ctx, iqn)
	if err != nil {
		return devices{}, err
	}
	found := devices{sessions: len(sessions)}
	for _, s := range sessions {
		list, err := ask(ctx, i, func(ctx context.Context) ([]win.ISCSIDevice, error) { return i.sys.ISCSISessionDevices(ctx, s.ID) })
		if errors.Is(err, win.ISDSCInvalidSessionID) { // it has ended meanwhile
			found.sessions--
			continue
		}
		if err != nil {
			return devices{}, err
		}
		found.total += len(list)
		for _, d := range list {
			switch {
			case d.Device.DeviceType != win.FileDeviceDisk && d.Device.DeviceType != 0: // a tape, say
			case d.Device.DeviceNumber == win.NoNumber:
				found.pending++
			default:
				found.numbers = append(found.numbers, disk.Number(d.Device.DeviceNumber))
			}
		}
	}
	slices.Sort(found.numbers)
	found.numbers = slices.Compact(found.numbers) // two sessions may lead to one disk
	return found, nil
}

// rescan has all storage adapters look for logical units.
func (i *Initiator) rescan(ctx context.Context) error {
	paths, err := i.sys.DeviceInterfaces(ctx, win.InterfaceClassStoragePort)
	if err != nil {
		return err
	}
	for _, path := range paths {
		err := i.sys.ReenumerateDevice(ctx, path)
		var errno win.Errno
		if errors.As(err, &errno) {
			i.options.Logger.Info("an adapter isn't asked for new disks", "device", path, "err", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}
