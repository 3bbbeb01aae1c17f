// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// firstRescan is the time from the first rescan, which is made as soon as a disk isn't
// there, to the second. Each further one comes after twice the time of the one before.
const firstRescan = time.Second

// take gives the right to the disk that a selector means, which it waits for as find does.
func (s *Staging) take(ctx context.Context, wanted storage.Selector,
	patience time.Duration) (context.Context, *use.Disk, error) {
	n, err := s.find(ctx, wanted, patience)
	if err != nil {
		return ctx, nil, err
	}
	inside, d, err := s.Owner.Disk(ctx, n)
	if err != nil {
		return ctx, nil, onDisk(n, err)
	}
	given := false
	defer func() {
		if !given {
			d.Release()
		}
	}()
	_, meant, err := s.isMeant(inside, wanted, d.Disk)
	if err == nil && !meant {
		err = opendisk.ErrAnother(fmt.Sprintf("disk %d is another one now", n), d.Hardware)
	}
	if err != nil {
		return ctx, nil, onDisk(n, err)
	}
	given = true
	return inside, d, nil
}

// find returns the number of the disk that is meant. As long as there is none, it waits, at
// most for patience, and has Windows look for new disks.
func (s *Staging) find(ctx context.Context, wanted storage.Selector, patience time.Duration) (disk.Number, error) {
	var all, matching []storage.Disk
	var rescan time.Time
	interval := firstRescan
	look := func() (bool, error) {
		now, err := s.Disks.Hardware(ctx, wanted)
		if err == nil && wanted.ISCSI != nil {
			err = s.addTargets(ctx, now, s.Initiator.LUNs)
		}
		if err != nil {
			return false, err
		}
		all = now
		matching = slices.DeleteFunc(slices.Clone(all), func(d storage.Disk) bool { return !wanted.Matches(d) })
		return len(matching) > 0, nil
	}
	found, err := look()
	if err == nil && !found && patience <= 0 {
		found, err = look() // the disk may have failed to answer just once
	}
	if err == nil && !found && patience > 0 {
		arrived, stop, noticeErr := s.Sys.NotifyArrivals(ctx, win.InterfaceClassDisk)
		if noticeErr == nil {
			defer stop()
		} // else a nil channel never wakes, and polling does alone
		found, err = operation.Poll(ctx, operation.Polling{Patience: patience, First: 20 * time.Millisecond, Wake: arrived},
			func() (bool, error) {
				if now := time.Now(); !now.Before(rescan) {
					rescan, interval = now.Add(interval), 2*interval
					if err := s.Disks.Rescan(operation.Inline(ctx)); err != nil {
						return false, err
					}
				}
				return look()
			})
	}
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("while waiting for a disk with %v%s: %w", wanted, s.unanswering(all), ctx.Err())
	case err != nil:
		return 0, err
	case !found:
		return 0, csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has %v, after %v; %s%s", wanted, max(patience, 0),
			listed("the node has", all), s.unanswering(all))
	}
	if len(matching) > 1 {
		return s.only(ctx, wanted, matching)
	}
	return matching[0].Number, nil
}

// only returns the number of the only one of several matching disks that Windows doesn't run from.
func (s *Staging) only(ctx context.Context, wanted storage.Selector, matching []storage.Disk) (disk.Number, error) {
	windows, err := s.SystemDisks.All(ctx)
	if err != nil {
		return 0, err
	}
	others := slices.DeleteFunc(slices.Clone(matching), func(d storage.Disk) bool { return windows[d.Number] != "" })
	switch len(others) {
	case 0:
		return 0, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "Windows runs from the disks with %v: %s", wanted,
			listed("", matching))
	case 1:
		return others[0].Number, nil
	}
	return 0, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
		"%d disks have %v: %s; narrow the selector, for example to one serial number", len(others), wanted,
		listed("", others))
}

// unanswering says which disk can't be asked, so that it isn't known whether it is the one that is
// looked for, and why. It is "" if all can be.
func (s *Staging) unanswering(all []storage.Disk) string {
	for _, d := range all {
		if d.Error != "" {
			return fmt.Sprintf("; it may be disk %d, which can't be asked: %s", d.Number, d.Error)
		}
	}
	if path, why := s.Disks.Unnumbered(); path != "" {
		return fmt.Sprintf("; it may be %s, which can't be asked: %s", path, why)
	}
	return ""
}

// maxListed bounds how many disks an error names.
const maxListed = 10

// listed names disks in an error.
func listed(what string, disks []storage.Disk) string {
	if len(disks) == 0 {
		return what + " no disks"
	}
	var names []string
	for _, d := range disks[:min(len(disks), maxListed)] {
		names = append(names, d.String())
	}
	if more := len(disks) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.TrimSpace(what + " " + strings.Join(names, "; "))
}

// isMeant reports whether an open disk is the one that a selector means, and what it says of
// itself, as far as the selector asks for it: what a list has said of a number may have been said of
// another disk.
func (s *Staging) isMeant(ctx context.Context, wanted storage.Selector,
	h *opendisk.Disk) (said storage.Disk, meant bool, _ error) {
	said, err := s.Disks.HardwareOf(ctx, h, wanted)
	if err == nil && wanted.ISCSI != nil {
		one := []storage.Disk{said}
		err = s.addTargets(ctx, one, s.Initiator.LUNs)
		said = one[0]
	}
	return said, err == nil && wanted.Matches(said), err
}

// isAnother reports whether a disk is known not to be the one that a selector means. A disk
// that doesn't tell what the selector asks for, since it is sick, isn't known to be another.
func isAnother(wanted storage.Selector, d storage.Disk) bool {
	tells := (wanted.SerialNumber == "" || d.SerialNumber != "") &&
		(wanted.Identifier == "" || len(d.Identifiers) > 0) &&
		(wanted.Adapter == nil && wanted.LUN == nil && wanted.AzureLUN == nil && wanted.NVMeNamespace == 0 ||
			d.Location.SCSI != nil) &&
		(wanted.AzureLUN == nil || d.Vendor != "" || d.Product != "") &&
		(wanted.Vendor == "" || d.Vendor != "") && (wanted.Product == "" || d.Product != "") &&
		(wanted.ISCSI == nil || d.Bus != "" && (d.Bus != storage.BusISCSI || d.ISCSI != nil))
	return tells && !wanted.Matches(d)
}

// isMissing reports whether err says that the node was asked for its disks, and has none that
// is meant. An error number of Windows doesn't say so, whatever its class.
func isMissing(err error) bool {
	_, windows := csiproxy.WindowsErrorOf(err)
	return !windows && errors.Is(err, csiproxy.ErrNotFound)
}

// isNotFound reports whether err is of the class of errors that say that something is missing.
func isNotFound(err error) bool { return errors.Is(err, csiproxy.ErrNotFound) }
