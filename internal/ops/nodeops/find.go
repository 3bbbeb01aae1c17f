// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// firstRescan is the time from the first rescan to the second. The first rescan starts as soon as a
// disk is missing. Each further rescan doubles the interval.
const firstRescan = time.Second

// findAndLock finds the disk that a selector means, waiting as find does, and locks the disk.
func (s *Staging) findAndLock(ctx context.Context, wanted csiproxy.Selector, timeout time.Duration) (
	lockedDisk *usage.LockedDisk, _ error) {
	n, err := s.find(ctx, wanted, timeout)
	if err != nil {
		return nil, err
	}
	candidate, err := s.Locks.LockDisk(ctx, n)
	if err != nil {
		return nil, onDisk(n, err)
	}
	defer func() { // also after a panic
		if lockedDisk == nil {
			candidate.Release()
		}
	}()
	_, meant, err := s.isMeant(ctx, wanted, candidate.Disk)
	if err == nil && !meant {
		err = opendisk.OtherDiskError(fmt.Sprintf("the number %d now belongs to another disk", n), candidate.Hardware)
	}
	if err != nil {
		return nil, onDisk(n, err)
	}
	return candidate, nil
}

// find returns the number of the disk that a selector means. While no disk matches, find waits, for
// at most timeout, and has Windows rescan for new disks.
func (s *Staging) find(ctx context.Context, wanted csiproxy.Selector, timeout time.Duration) (csiproxy.DiskNumber, error) {
	var all, matching []csiproxy.Disk
	var nextRescan time.Time
	interval := firstRescan
	ask := func() (bool, error) {
		hardware, err := s.Disks.Hardware(ctx, wanted)
		if err == nil && wanted.ISCSI != nil {
			err = s.addTargets(ctx, hardware, s.Initiator.LUNs)
		}
		if err != nil {
			return false, err
		}
		all = hardware
		matching = slices.DeleteFunc(slices.Clone(all), func(disk csiproxy.Disk) bool { return !wanted.Matches(disk) })
		return len(matching) > 0, nil
	}
	found, err := ask()
	isMissing := err == nil && !found
	if isMissing && timeout <= 0 {
		found, err = ask() // the disk may have failed to answer just once
	}
	if isMissing && timeout > 0 {
		arrived, stop, noticeErr := s.Sys.NotifyArrivals(ctx, win.InterfaceClassDisk)
		if noticeErr == nil {
			defer stop()
		} // without notices, arrived is nil, and polling alone finds the disk
		polling := operation.Polling{Timeout: timeout, First: 20 * time.Millisecond, Wake: arrived}
		for err == nil && !found && polling.Next(ctx) {
			if now := time.Now(); !now.Before(nextRescan) {
				scan := s.Disks.Rescan
				if nextRescan.IsZero() { // only later rescans may take in the whole device tree
					scan = s.Disks.RescanAdapters
				}
				nextRescan, interval = now.Add(interval), 2*interval
				err = scan(ctx)
			}
			if err == nil {
				found, err = ask()
			}
		}
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("while waiting for a disk with %v%s: %w", wanted, s.silentDisk(wanted, all), ctx.Err())
	}
	if err != nil {
		return 0, err
	}
	if !found {
		waited := ""
		if timeout > 0 {
			waited = fmt.Sprintf(" after a wait of %v", timeout)
		}
		return 0, csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has %v%s; %s%s", wanted, waited,
			s.Disks.OwnerHas(listed(all)), s.silentDisk(wanted, all))
	}
	if len(matching) > 1 {
		return s.pickDataDisk(ctx, wanted, matching)
	}
	return matching[0].Number, nil
}

// pickDataDisk ignores the system disks among the matching disks, and returns the number of the
// remaining disk. It returns an error unless exactly one disk remains.
func (s *Staging) pickDataDisk(ctx context.Context, wanted csiproxy.Selector, matching []csiproxy.Disk) (csiproxy.DiskNumber, error) {
	systemDisks, err := s.Users.SystemDisks(ctx)
	if err != nil {
		return 0, err
	}
	dataDisks := slices.DeleteFunc(slices.Clone(matching), func(disk csiproxy.Disk) bool { return systemDisks[disk.Number] != "" })
	switch len(dataDisks) {
	case 0:
		return 0, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "Windows runs from the disks with %v: %s", wanted,
			listed(matching))
	case 1:
		return dataDisks[0].Number, nil
	}
	return 0, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
		"%d disks have %v: %s; narrow the selector, for example to one serial number", len(dataDisks), wanted,
		listed(dataDisks))
}

// silentDisk returns, for an error, which disk leaves the selector's questions unanswered, and why:
// this disk may be the wanted disk. It returns "" if all disks answer.
func (s *Staging) silentDisk(wanted csiproxy.Selector, all []csiproxy.Disk) string {
	for _, disk := range all {
		if disk.Error != "" {
			return fmt.Sprintf("; it may be disk %d, which can't be asked: %s", disk.Number, disk.Error)
		}
	}
	byNamespace := wanted.AzureLUN != nil || wanted.NVMeNamespace != 0
	for _, disk := range all {
		lacksNamespace := disk.Bus == csiproxy.BusNVMe && disk.Location.NVMeNamespace == 0
		if byNamespace && lacksNamespace {
			return fmt.Sprintf("; it may be disk %d, an NVMe disk of unknown namespace: Windows' driver for the disk gives "+
				"no SCSI address, perhaps because it is the native NVMe driver of Windows Server 2025; name the disk by its "+
				"serial number, or go back to Windows' usual driver", disk.Number)
		}
	}
	if path, reason := s.Disks.Unnumbered(); path != "" {
		return fmt.Sprintf("; it may be %s, which can't be asked: %s", path, reason)
	}
	return ""
}

// maxListed bounds the number of disks in an error.
const maxListed = 10

// listed names disks in an error.
func listed(disks []csiproxy.Disk) string {
	if len(disks) == 0 {
		return "no disks"
	}
	var names []string
	for _, disk := range disks[:min(len(disks), maxListed)] {
		names = append(names, disk.String())
	}
	if more := len(disks) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, "; ")
}

// isMeant asks an open disk for the hardware details that the selector needs, and reports whether
// the selector means the disk. A match in a list is insufficient: meanwhile another disk may have
// got the listed disk's number.
func (s *Staging) isMeant(ctx context.Context, wanted csiproxy.Selector,
	h *opendisk.Disk) (described csiproxy.Disk, meant bool, _ error) {
	described, err := s.Disks.HardwareOf(ctx, h, wanted)
	if err == nil && wanted.ISCSI != nil {
		disks := []csiproxy.Disk{described}
		err = s.addTargets(ctx, disks, s.Initiator.LUNs)
		described = disks[0]
	}
	return described, err == nil && wanted.Matches(described), err
}

// isAnother reports whether a disk is known to differ from the disk that a selector means. If a
// sick disk doesn't answer what the selector compares, the answer is unknown and isAnother returns
// false.
func isAnother(wanted csiproxy.Selector, disk csiproxy.Disk) bool {
	// The disk has told everything that the selector compares.
	answered := (wanted.SerialNumber == "" || disk.SerialNumber != "") &&
		(wanted.Identifier == "" || len(disk.Identifiers) > 0) &&
		(wanted.Adapter == nil || disk.Location.SCSI != nil) &&
		(wanted.LUN == nil && wanted.AzureLUN == nil && wanted.NVMeNamespace == 0 ||
			disk.Location.SCSI != nil || disk.Location.NVMeNamespace != 0) &&
		(wanted.AzureLUN == nil || disk.Vendor != "" || disk.Product != "") &&
		(wanted.Vendor == "" || disk.Vendor != "") && (wanted.Product == "" || disk.Product != "") &&
		(wanted.ISCSI == nil || disk.Bus != "" && (disk.Bus != csiproxy.BusISCSI || disk.ISCSI != nil))
	return answered && !wanted.Matches(disk)
}

// isAbsent reports whether err means that the requested disk is absent for the caller: all disks
// were listed, and none matches. An error number of Windows never means absence, even with class
// csiproxy.ErrNotFound.
func isAbsent(err error) bool {
	_, isWindows := csiproxy.WindowsErrorOf(err)
	return !isWindows && errors.Is(err, csiproxy.ErrNotFound)
}
