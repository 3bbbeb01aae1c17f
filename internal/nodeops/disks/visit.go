// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
	"github.com/csi-proxy/csi-proxy/storage"
)

// visits asks the devices of a class one by one, each apart, so that one which doesn't answer or
// answers with errors hides no other. Callers who ask the same of a device share the answer. A
// device that is known not to answer is still asked, but nobody waits for it.
type visits struct {
	sys       System
	class     win.GUID
	patience  time.Duration
	log       *slog.Logger
	onSkipped func(count int)
	flights   operation.Flights[flight, any]

	mu      sync.Mutex
	known   map[string]*visited // by interface path
	lists   uint64              // how many lists of devices there were
	skipped int
}

// question is what devices are asked.
type question struct {
	name     string        // of the question: callers who ask it at the same time share an answer
	patience time.Duration // with a device that doesn't answer
	ask      func(ctx context.Context, path string) (any, error)
	// skip reports whether a device needn't be asked, by what is remembered of it. A device that isn't
	// asked gives no result. May be nil.
	skip func(path string, v *visited) bool
}

// flight is one question to one device.
type flight struct{ path, question string }

// visited is what is remembered of a device, for as long as it has its interface.
type visited struct {
	// number is the disk's last known number, which a disk has until it leaves. It lets
	// ListDiskIDs list a disk that doesn't answer.
	number     disk.Number
	numbered   bool
	numberedAt time.Time
	// hardware is what the disk last said of its hardware, as far as said tells, and with which
	// descriptor; nil if it isn't known. See Hardware. It isn't changed.
	hardware   *storage.Disk
	said       details
	descriptor win.DeviceDescriptor
	ids        []string // in its table, as it last said. See findOriginal.
	idsAt      time.Time
	silent     bool              // it hasn't answered its last question in time
	asking     *wincalls.Tracker // of the question that it doesn't answer, or of another one
	trouble    string            // why it is skipped; "" if it isn't
	list       uint64            // the number of the last list that had it
}

// newVisits returns the visits of a class of devices. onSkipped, which may be nil, is called with
// how many are skipped, whenever that changes.
func newVisits(sys System, class win.GUID, o Options, onSkipped func(count int)) *visits {
	if onSkipped == nil {
		onSkipped = func(int) {}
	}
	return &visits{sys: sys, class: class, patience: o.SilentDiskTimeout, log: o.Logger, onSkipped: onSkipped,
		known: make(map[string]*visited)}
}

// result is what a device gave. err is why it is to be skipped.
type result struct {
	path  string
	value any
	err   error
}

// overlap is how long one device is waited for before the next one is asked as well.
// Devices that answer are asked one after the other, which costs least where an answer takes
// microseconds. Where it takes milliseconds, as that to Rescan, they are asked side by side: with 50
// ms here, 64 stagings that each rescan took twice as long.
const overlap = 5 * time.Millisecond

// othersPatience is how long a call about one disk waits for the others.
const othersPatience = 200 * time.Millisecond

// all asks all devices of the class a question. It returns when each has answered or has been
// silent for longer than the question's patience. The error is that there is no list of
// devices, or ctx's, with the call to Windows that it waited for.
func (v *visits) all(ctx context.Context, q question) ([]result, error) {
	paths, err := v.sys.DeviceInterfaces(ctx, v.class)
	if err != nil {
		return nil, err
	}
	paths = v.toAsk(paths, q.skip)
	ctx, done := wincalls.Optional(ctx) // nobody is kept waiting for a device that doesn't answer
	defer done()
	results := make([]result, len(paths))
	ends := operation.InTurn(ctx, len(paths), overlap,
		func(i int) (func(), end) { return v.begin(ctx, paths[i], q) })
	for i, end := range ends {
		r := &results[i]
		r.path = paths[i]
		if r.value, r.err = end(ctx); ctx.Err() != nil && errors.Is(r.err, ctx.Err()) {
			return nil, r.err
		}
	}
	v.count()
	if err := ctx.Err(); err != nil {
		return nil, wincalls.TrackerOf(ctx).Late(err)
	}
	return results, nil
}

// end waits for an answer and gives it.
type end func(context.Context) (any, error)

// one asks one device.
func (v *visits) one(ctx context.Context, path string, q question) (any, error) {
	ctx, done := wincalls.Optional(ctx)
	defer done()
	run, end := v.begin(ctx, path, q)
	if run != nil {
		go run()
	}
	return end(ctx)
}

// begin begins to ask one device: run, unless it is nil, does it. end waits for the answer with the
// question's patience.
func (v *visits) begin(ctx context.Context, path string, q question) (run func(), _ end) {
	patience, flight := q.patience, flight{path, q.name}
	ask := func(ctx context.Context) (any, error) {
		v.update(path, func(d *visited) {
			if _, hangs := d.asking.Oldest(); !hangs {
				d.asking = wincalls.TrackerOf(ctx)
			}
		})
		value, err := q.ask(ctx, path)
		v.update(path, func(d *visited) { d.silent = false })
		return value, err
	}
	var wait func(context.Context, time.Duration) (any, error)
	if v.of(path).silent {
		patience = 0 // it may have begun to answer, but that isn't waited for
		wait = v.flights.Begin(ctx, flight, ask)
	} else {
		run, wait = v.flights.BeginHere(ctx, flight, ask)
	}
	return run, func(ctx context.Context) (any, error) {
		value, err := wait(ctx, patience)
		if ctx.Err() != nil {
			return value, err
		}
		if errors.As(err, new(*operation.SilentError)) {
			if patience < v.patience && !v.of(path).silent {
				return nil, err // that isn't long enough to call it silent
			}
			err = csiproxy.Errorf(csiproxy.ErrUnavailable, "it has not answered for %v or longer", v.patience)
			v.update(path, func(d *visited) { d.silent = true })
		}
		if isRefused(err) {
			if call, ok := v.of(path).asking.Oldest(); ok { // the same text for whichever question
				err = csiproxy.Errorf(csiproxy.ErrUnavailable, "%v", call)
			}
		}
		v.report(path, err)
		return value, err
	}
}

// isRefused reports whether err says that an earlier call hasn't been answered, and so is no answer of
// Windows itself.
func isRefused(err error) bool {
	_, windows := csiproxy.WindowsErrorOf(err)
	return errors.Is(err, csiproxy.ErrUnavailable) && !windows
}

// of returns what is remembered of a device.
func (v *visits) of(path string) visited {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d := v.known[path]; d != nil {
		return *d
	}
	return visited{}
}

func (v *visits) update(path string, f func(*visited)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.known[path]
	if d == nil {
		d = new(visited)
		v.known[path] = d
	}
	f(d)
}

// report logs that a device is skipped from now on, or no longer. A device that leaves is
// no trouble.
func (v *visits) report(path string, err error) {
	trouble := ""
	if err != nil && !isGone(err) {
		trouble = err.Error()
	}
	var before string
	var number any = "unknown"
	v.update(path, func(d *visited) {
		before, d.trouble = d.trouble, trouble
		if d.numbered {
			number = d.number
		}
	})
	switch {
	case before == trouble:
	case trouble != "":
		v.log.Warn("a device is skipped", "device", path, "disk", number, "why", trouble)
	default:
		v.log.Info("a device is no longer skipped", "device", path, "disk", number)
	}
}

// toAsk returns which of the devices at paths, which are all that there are, aren't skipped. What is
// remembered of others is dropped. skip may be nil: see question.
func (v *visits) toAsk(paths []string, skip func(path string, v *visited) bool) (asked []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lists++
	remembered := 0
	for _, path := range paths {
		d := v.known[path]
		if d != nil {
			d.list = v.lists
			remembered++
		}
		if d == nil || skip == nil || !skip(path, d) {
			asked = append(asked, path)
		}
	}
	if remembered < len(v.known) {
		maps.DeleteFunc(v.known, func(_ string, d *visited) bool { return d.list != v.lists })
	}
	return asked
}

// count tells how many devices are skipped, if that has changed.
func (v *visits) count() {
	v.mu.Lock()
	count := 0
	for _, d := range v.known {
		if d.trouble != "" {
			count++
		}
	}
	changed := count != v.skipped
	v.skipped = count
	v.mu.Unlock()
	if changed {
		v.onSkipped(count)
	}
}

// Unnumbered returns a device that no list of disks has, since it doesn't answer and its number isn't
// known, and why; "" if there is none.
func (d *Disks) Unnumbered() (path, why string) {
	d.visits.mu.Lock()
	defer d.visits.mu.Unlock()
	for at, v := range d.visits.known {
		if v.trouble != "" && !v.numbered && (path == "" || at < path) {
			path, why = at, v.trouble
		}
	}
	return path, why
}

// answer is what a disk gave: its number, and the value that was asked for.
type answer[T any] struct {
	number disk.Number
	value  T
	err    error // why the disk is skipped, whose last known number this is
}

// eachDisk asks all disks the same question. A disk that leaves meanwhile gives no answer, nor
// does one that is skipped and whose number isn't known. skip may be nil: see question.
func eachDisk[T any](ctx context.Context, d *Disks, name string, patience time.Duration,
	skip func(path string, v *visited) bool,
	ask func(ctx context.Context, path string, n disk.Number, h device.Handle) (T, error)) (all []answer[T], _ error) {
	look := func(ctx context.Context, path string) (any, error) {
		h, err := device.Open(ctx, d.sys, path, win.AccessNone)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		n, err := h.Number(ctx)
		if err != nil || !isDisk(n) {
			return nil, err
		}
		d.visits.update(path, func(v *visited) {
			if v.number != n.DeviceNumber {
				v.hardware, v.ids = nil, nil // it is another disk
			}
			v.number, v.numbered, v.numberedAt = n.DeviceNumber, true, time.Now()
		})
		value, err := ask(ctx, path, n.DeviceNumber, h)
		return answer[T]{number: n.DeviceNumber, value: value}, err
	}
	results, err := d.visits.all(ctx, question{name, patience, look, skip})
	if err != nil {
		return nil, err
	}
	all = make([]answer[T], 0, len(results))
	for _, r := range results {
		if a, ok := r.value.(answer[T]); ok && r.err == nil {
			all = append(all, a)
		} else if before := d.visits.of(r.path); r.err != nil && !isGone(r.err) && before.numbered {
			all = append(all, answer[T]{number: before.number, err: r.err})
		}
	}
	return all, nil
}

// isDisk reports whether a number is that of a disk. A path below a multipath disk has none of
// its own.
func isDisk(n win.DeviceNumber) bool {
	return n.DeviceType == win.FileDeviceDisk && n.DeviceNumber != win.NoNumber
}

// numbers returns the numbers of all disks, in order.
func (d *Disks) numbers(ctx context.Context) (numbers []disk.Number, _ error) {
	all, err := eachDisk(ctx, d, "number", othersPatience, nil,
		func(context.Context, string, disk.Number, device.Handle) (struct{}, error) { return struct{}{}, nil })
	for _, a := range all {
		numbers = append(numbers, a.number)
	}
	slices.Sort(numbers)
	return numbers, err
}

// isGone reports whether err says that the device has left or isn't ready yet.
func isGone(err error) bool {
	return win.IsGone(err) || errors.Is(err, win.ErrorNotReady)
}

// tolerate passes over an answer that one disk can't give, unless the disk or
// the caller is gone: a virtual bus may refuse any query, and that must not hide
// what the disk does answer.
func (d *Disks) tolerate(n disk.Number, what string, err error) error {
	if !errors.As(err, new(win.Errno)) || isGone(err) {
		return err
	}
	d.options.Logger.Debug("a disk doesn't answer a query", "disk", n, "query", what, "err", err)
	return nil
}
