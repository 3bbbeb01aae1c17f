// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sort"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	// A notice of Windows causes a list at once, and the next list afterNotice later. The interval
	// doubles with each further list, up to csiproxy.WatchInterval. The further lists are necessary
	// because a disk may be silent right after its notice, and its volumes arrive later.
	afterNotice = 20 * time.Millisecond
	// watchTimeout is how long a watch tolerates failing lists: Windows may be busy, or a required
	// service may be restarting.
	watchTimeout = time.Minute
)

// WatchDisks implements [csiproxy.StorageOperations].
func (s *Staging) WatchDisks(ctx context.Context, wanted csiproxy.Selector) iter.Seq2[csiproxy.DiskChanges, error] {
	return func(yield func(csiproxy.DiskChanges, error) bool) {
		if err := s.watch(ctx, wanted, yield); err != nil {
			yield(csiproxy.DiskChanges{}, err)
		}
	}
}

// watch lists the disks at each notice of Windows, and at least every csiproxy.WatchInterval. It
// yields the difference from the caller's disks, until yield returns false. No lists are made while
// the caller handles a difference. A slow caller therefore gets one difference for all changes
// meanwhile.
func (s *Staging) watch(ctx context.Context, wanted csiproxy.Selector,
	yield func(csiproxy.DiskChanges, error) bool) error {
	// Notices begin before the first list, to catch arrivals between the two. Without notices,
	// arrived is nil, and the periodic lists find every change.
	arrived, stop, err := s.Sys.NotifyArrivals(ctx, win.InterfaceClassDisk)
	if err == nil {
		defer stop()
	}
	w := watcher{wanted: wanted}
	interval, lastListed := csiproxy.WatchInterval, time.Now()
	for first := true; ; {
		// Each list is an operation of its own, which excludes the caller's time between lists.
		changes, err := operation.Run(ctx, "WatchDisks",
			func(ctx context.Context) (csiproxy.DiskChanges, error) { return s.changes(ctx, &w) })
		if err != nil && (first || ctx.Err() != nil || time.Since(lastListed) > watchTimeout) {
			return err
		}
		next := time.After(interval)
		if err == nil {
			differs := len(changes.Removed)+len(changes.Added)+len(changes.Changed) > 0
			if (first || differs) && !yield(changes, nil) {
				return nil
			}
			first, lastListed = false, time.Now()
		}
		select {
		case <-arrived:
			interval = afterNotice
		case <-next:
			interval = min(2*interval, csiproxy.WatchInterval)
		case <-ctx.Done():
			return &csiproxy.Error{Op: "WatchDisks", Err: ctx.Err()}
		}
	}
}

// changes lists the disks, and returns the difference from a watcher's disks.
func (s *Staging) changes(ctx context.Context, w *watcher) (_ csiproxy.DiskChanges, err error) {
	defer s.options.Observer.End("WatchDisks", "", time.Now(), &err)
	if err := w.wanted.Validate(); err != nil {
		return csiproxy.DiskChanges{}, err
	}
	all, err := s.Disks.Describe(ctx, csiproxy.Selector{})
	if err != nil {
		return csiproxy.DiskChanges{}, err
	}
	targetsErr := s.addTargets(ctx, all, s.targetsInTime)
	if targetsErr != nil && w.wanted.ISCSI != nil {
		return csiproxy.DiskChanges{}, targetsErr
	}
	if targetsErr != nil && !w.withoutTargets {
		s.options.Logger.Info("disks are listed without their iSCSI targets", "err", targetsErr)
	}
	w.withoutTargets = targetsErr != nil
	return w.update(all), nil
}

// targetsInTime asks the initiator for its logical units, for at most silentVolumeTimeout. A
// silent initiator, or an initiator with a silent session, delays only the first list: later lists
// get the error at once.
func (s *Staging) targetsInTime(ctx context.Context) (map[csiproxy.DiskNumber]initiator.LUN, error) {
	return s.luns.Do(ctx, struct{}{}, s.Initiator.LUNs)
}

// watcher has the disks that one caller of WatchDisks has received so far.
type watcher struct {
	wanted         csiproxy.Selector
	has            map[csiproxy.DiskNumber]csiproxy.Disk
	withoutTargets bool // the initiator was silent the last time
}

// update returns the difference between the caller's disks and all, the current disks of the node.
// It records that the caller gets all.
func (w *watcher) update(all []csiproxy.Disk) (c csiproxy.DiskChanges) {
	// The number of a hanging disk may belong to another disk by now. Of two disks with the same
	// number, the disk without an error counts.
	sort.SliceStable(all, func(i, j int) bool {
		return cmp.Or(cmp.Compare(all[i].Number, all[j].Number), cmp.Compare(all[i].Error, all[j].Error)) < 0
	})
	all = slices.CompactFunc(all, func(a, b csiproxy.Disk) bool { return a.Number == b.Number })
	had := w.has
	w.has = make(map[csiproxy.DiskNumber]csiproxy.Disk)
	for _, disk := range all {
		before, known := had[disk.Number]
		if known = known && mayBeSame(before, disk); known {
			disk = w.completed(disk, before)
		}
		if !w.wanted.Matches(disk) {
			continue
		}
		w.has[disk.Number] = disk
		switch {
		case !known:
			c.Added = append(c.Added, disk)
		case !reflect.DeepEqual(before, disk):
			c.Changed = append(c.Changed, disk)
		}
		if known {
			delete(had, disk.Number)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(had)) {
		c.Removed = append(c.Removed, had[number])
	}
	return c
}

// completed returns disk. For a silent disk, it fills in the hardware from before, the same disk in
// the last list. A silent disk then still matches the selector, and remains distinguishable from
// another disk that gets the same number.
func (w *watcher) completed(disk, before csiproxy.Disk) csiproxy.Disk {
	if disk.Error != "" {
		disk.SerialNumber, disk.Bus = cmp.Or(disk.SerialNumber, before.SerialNumber), cmp.Or(disk.Bus, before.Bus)
		disk.Vendor, disk.Product = cmp.Or(disk.Vendor, before.Vendor), cmp.Or(disk.Product, before.Product)
		if len(disk.Identifiers) == 0 {
			disk.Identifiers = before.Identifiers
		}
		if disk.Location == (csiproxy.Location{}) {
			disk.Location = before.Location
		}
	}
	if disk.Error != "" || w.withoutTargets {
		disk.ISCSI = cmp.Or(disk.ISCSI, before.ISCSI)
	}
	return disk
}

// mayBeSame reports whether a and b, successive disks with the same number, may be one disk. It
// compares only details that both disks have reported.
func mayBeSame(a, b csiproxy.Disk) bool {
	if a.SerialNumber != "" && b.SerialNumber != "" && a.SerialNumber != b.SerialNumber {
		return false
	}
	if len(a.Identifiers) > 0 && len(b.Identifiers) > 0 {
		return slices.ContainsFunc(a.Identifiers,
			func(id csiproxy.Identifier) bool { return slices.Contains(b.Identifiers, id) })
	}
	return true
}
