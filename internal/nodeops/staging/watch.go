// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
	"github.com/csi-proxy/csi-proxy/storage"
)

// afterNotice is the time from a notice of Windows to a look at the disks. Each further look
// comes after twice the time of the one before, up to storage.WatchInterval: a disk may need
// a moment after its notice before it answers, and its volumes come later.
const afterNotice = 20 * time.Millisecond

// failurePatience is how long a watch goes on while the disks can't be looked at: Windows may be busy,
// or a service that is asked may be restarted.
const failurePatience = time.Minute

// A look asks for the list of disks. It asks each disk, which is some six calls, if there is news:
// Windows has given a notice, the list is another one, or this process may have changed something.
// So do the looks of the minute after that, since a disk or a volume may need a moment. What others
// change without a notice is found by asking all disks from time to time. On a node with many
// disks, that comes less often: after diskPause for each disk, and mostPause at most.
const (
	diskPause = 280 * time.Millisecond
	mostPause = 30 * time.Second
	settling  = time.Minute
)

// watching is what all watchers share.
type watching struct {
	looks   operation.Shared
	targets operation.Flights[struct{}, map[disk.Number]storage.ISCSILUN]

	mu       sync.Mutex
	last     *snapshot // nil before the first look
	outdated bool      // the next look asks each disk
}

// snapshot is what the disks were like when they were looked at. It isn't changed.
type snapshot struct {
	at         time.Time      // when the look ended
	number     int            // how often the disks were asked by then
	asked      time.Time      // when they were asked last
	news       time.Time      // when there was news
	paths      []string       // their interfaces then
	changes    uint64         // what this process had changed before
	disks      []storage.Disk // in the order of their numbers, each number once
	targetsErr error          // why it isn't known which disks are of iSCSI targets
}

// holds reports whether the disks needn't be asked again yet, if there is no news.
func (last *snapshot) holds() bool {
	return time.Since(last.news) > settling && last.targetsErr == nil &&
		time.Since(last.asked)+storage.WatchInterval/2 < min(time.Duration(len(last.paths))*diskPause, mostPause)
}

// WatchDisks implements [storage.Operations].
func (s *Staging) WatchDisks(ctx context.Context, wanted storage.Selector) iter.Seq2[storage.DiskChanges, error] {
	return func(yield func(storage.DiskChanges, error) bool) {
		if err := s.watch(ctx, wanted, func(c storage.DiskChanges) bool { return yield(c, nil) }); err != nil {
			yield(storage.DiskChanges{}, err)
		}
	}
}

// watch reports what changes until tell returns false, which is no error.
func (s *Staging) watch(ctx context.Context, wanted storage.Selector, tell func(storage.DiskChanges) bool) error {
	// Notices begin before the first look, so that nothing is missed between the two.
	arrived, stop, err := s.Sys.NotifyArrivals(ctx, win.InterfaceClassDisk)
	if err == nil {
		defer stop()
	} // else a nil channel never wakes, and polling does alone
	w := watcher{wanted: wanted}
	interval, atMost := storage.WatchInterval, time.Duration(0)
	next := time.NewTimer(interval)
	defer next.Stop()
	first, lastSeen := true, time.Now()
	for {
		// Each look is an operation of its own: what the caller does in between is none.
		changes, err := operation.Get(ctx, s.options.Runner, "WatchDisks", "",
			func(ctx context.Context) (storage.DiskChanges, error) {
				if first || interval < storage.WatchInterval {
					s.outdate()
				}
				return s.compare(ctx, &w, atMost)
			})
		if err != nil && (first || ctx.Err() != nil || time.Since(lastSeen) > failurePatience) {
			return err
		}
		next.Reset(interval)
		if err == nil {
			if (first || !isEmpty(changes)) && !tell(changes) {
				return nil
			}
			first, lastSeen = false, time.Now()
		}
		for waiting := true; waiting; {
			select {
			case <-arrived:
				if interval > afterNotice {
					interval = afterNotice
					next.Reset(interval)
				}
			case <-next.C:
				waiting = false
			case <-ctx.Done():
				return &csiproxy.Error{Op: "WatchDisks", Err: ctx.Err()}
			}
		}
		atMost = interval / 2
		interval = min(2*interval, storage.WatchInterval)
	}
}

// compare returns what has changed since a watcher last reported, as of a time that is at
// most atMost ago.
func (s *Staging) compare(ctx context.Context, w *watcher, atMost time.Duration) (storage.DiskChanges, error) {
	if err := w.wanted.Validate(); err != nil {
		return storage.DiskChanges{}, err
	}
	seen, err := s.snapshot(ctx, atMost)
	if err == nil && w.wanted.ISCSI != nil {
		err = seen.targetsErr
	}
	if err != nil || seen.number == w.seen {
		return storage.DiskChanges{}, err
	}
	w.seen = seen.number
	return w.changes(seen), nil
}

func isEmpty(c storage.DiskChanges) bool { return len(c.Removed)+len(c.Added)+len(c.Changed) == 0 }

// snapshot returns what the disks are like. It may be as old as atMost; 0 stands for a look
// that begins now. Watchers share the looks.
func (s *Staging) snapshot(ctx context.Context, atMost time.Duration) (*snapshot, error) {
	if last := s.lastSnapshot(); last != nil && atMost > 0 && time.Since(last.at) <= atMost {
		return last, nil
	}
	if err := s.watching.looks.Do(ctx, s.look); err != nil {
		return nil, err
	}
	return s.lastSnapshot(), nil
}

func (s *Staging) lastSnapshot() *snapshot {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	return s.watching.last
}

// outdate has the next look ask each disk.
func (s *Staging) outdate() {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	s.watching.outdated = true
}

// look looks at the disks for all watchers. Only one look is under way at a time.
func (s *Staging) look(ctx context.Context) error {
	// No client's: a client whose calls are many or hang would make the others' watches fail.
	ctx = wincalls.WithClient(ctx, nil)
	changes := s.Owner.Changes() // those that come while the disks are asked count for the next look
	paths, err := s.Disks.Interfaces(ctx)
	if err != nil {
		return err
	}
	s.watching.mu.Lock()
	last, outdated := s.watching.last, s.watching.outdated
	s.watching.outdated = false
	s.watching.mu.Unlock()
	isNews := outdated || last == nil || !slices.Equal(last.paths, paths) || last.changes != changes
	if !isNews && last.holds() {
		same := *last
		same.at = time.Now()
		s.keep(&same)
		return nil
	}
	disks, err := s.Disks.Describe(ctx, storage.Selector{})
	if err != nil {
		s.outdate()
		return err
	}
	// What is remembered of a silent disk may be old: its number may be another one's now.
	slices.SortStableFunc(disks, func(a, b storage.Disk) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Error, b.Error))
	})
	seen := &snapshot{paths: paths, changes: changes, number: 1, news: time.Now()}
	if last != nil {
		seen.number = last.number + 1
	}
	if !isNews {
		seen.news = last.news
	}
	seen.disks = slices.CompactFunc(disks, func(a, b storage.Disk) bool { return a.Number == b.Number })
	seen.targetsErr = s.addTargets(ctx, seen.disks, s.targetsInTime)
	if seen.targetsErr != nil && (last == nil || last.targetsErr == nil) {
		s.options.Logger.Info("disks are listed without their iSCSI targets", "err", seen.targetsErr)
	}
	seen.at = time.Now()
	seen.asked = seen.at
	s.keep(seen)
	return nil
}

func (s *Staging) keep(seen *snapshot) {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	s.watching.last = seen
}

// targetsInTime asks the initiator for its logical units. One that doesn't answer holds up
// no watcher.
func (s *Staging) targetsInTime(ctx context.Context) (map[disk.Number]storage.ISCSILUN, error) {
	ctx, _ = wincalls.WithTracker(ctx)
	return s.watching.targets.Do(ctx, struct{}{}, silentPatience, s.Initiator.LUNs)
}

// watcher is what has been reported to one caller.
type watcher struct {
	wanted storage.Selector
	seen   int // number of the last snapshot
	disks  map[disk.Number]reported
}

// reported is what a watcher has reported of a disk.
type reported struct {
	disk     storage.Disk
	identity storage.Disk // the last that had its identity; else disk
}

// changes returns what has changed since the watcher last reported.
func (w *watcher) changes(seen *snapshot) (c storage.DiskChanges) {
	now := make(map[disk.Number]reported)
	for _, d := range seen.disks {
		before, known := w.disks[d.Number]
		switch {
		// One that doesn't tell whether it matches was reported before, so it stays.
		case known && mayBeSame(before.identity, d) && !isAnother(w.wanted, d):
			if seen.targetsErr != nil && d.Bus == storage.BusISCSI {
				d.ISCSI = before.disk.ISCSI
			}
			identity := before.identity
			if hasIdentity(d) || !hasIdentity(identity) {
				identity = d
			}
			if !sameState(before.disk, d) {
				c.Changed = append(c.Changed, d)
			}
			now[d.Number] = reported{d, identity}
			delete(w.disks, d.Number)
		case w.wanted.Matches(d):
			c.Added = append(c.Added, d)
			now[d.Number] = reported{d, d}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(w.disks)) { // what is left of those reported before
		c.Removed = append(c.Removed, w.disks[number].disk)
	}
	w.disks = now
	return c
}

func hasIdentity(d storage.Disk) bool { return d.SerialNumber != "" || len(d.Identifiers) > 0 }

// mayBeSame reports whether nothing tells two disks apart that had the same number one after
// the other. What one of them doesn't tell says nothing.
func mayBeSame(a, b storage.Disk) bool {
	if a.SerialNumber != "" && b.SerialNumber != "" && a.SerialNumber != b.SerialNumber {
		return false
	}
	if len(a.Identifiers) > 0 && len(b.Identifiers) > 0 {
		return slices.ContainsFunc(a.Identifiers,
			func(id storage.Identifier) bool { return slices.Contains(b.Identifiers, id) })
	}
	return true
}

// sameState reports whether a disk is as it was before. The text of an error isn't looked at:
// it may say for how long Windows hasn't answered.
func sameState(a, b storage.Disk) bool {
	return reflect.DeepEqual(withoutErrorTexts(a), withoutErrorTexts(b))
}

func withoutErrorTexts(d storage.Disk) storage.Disk {
	cut := func(text string) string {
		if text != "" {
			return "an error"
		}
		return ""
	}
	d.Error = cut(d.Error)
	d.Partitions = slices.Clone(d.Partitions)
	for i := range d.Partitions {
		d.Partitions[i].Error = cut(d.Partitions[i].Error)
	}
	return d
}
