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

// visits asks devices one by one, each apart, so that one which doesn't answer or answers
// with errors hides no other. Callers who ask the same of a device share the answer. A
// device that is known not to answer is still asked, but nobody waits for it.
type visits struct {
	sys       System
	patience  time.Duration
	log       *slog.Logger
	onSkipped func(count int)
	flights   operation.Flights[flight, any]

	mu      sync.Mutex
	known   map[string]*visited // by interface path
	skipped int
}

// question is what devices are asked.
type question struct {
	class    win.GUID
	name     string        // of the question: callers who ask it at the same time share an answer
	patience time.Duration // with a device that doesn't answer
	ask      func(ctx context.Context, path string) (any, error)
	// known gives the answers of devices that needn't be asked. May be nil.
	known func(path string) (answer any, ok bool)
}

// flight is one question to one device.
type flight struct{ path, question string }

// visited is what is remembered of a device, for as long as it has its interface.
type visited struct {
	class win.GUID
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
	silent     bool   // it hasn't answered its last question in time
	trouble    string // why it is skipped; "" if it isn't
}

func newVisits(sys System, o Options) *visits {
	if o.OnSkippedDisks == nil {
		o.OnSkippedDisks = func(int) {}
	}
	return &visits{sys: sys, patience: o.SilentDiskTimeout, log: o.Logger, onSkipped: o.OnSkippedDisks, known: make(map[string]*visited)}
}

// result is what a device gave. err is why it is to be skipped.
type result struct {
	path  string
	value any
	err   error
}

// overlap is how long one device is waited for before the next one is asked as well.
// Devices that answer are asked one after the other.
const overlap = 50 * time.Millisecond

// othersPatience is how long a call about one disk waits for the others.
const othersPatience = 200 * time.Millisecond

// all asks the devices of a class a question. It returns when each has answered or has been
// silent for longer than the question's patience. The error is that there is no list of
// devices, or ctx's.
func (v *visits) all(ctx context.Context, q question) ([]result, error) {
	paths, err := v.sys.DeviceInterfaces(ctx, q.class)
	if err != nil {
		return nil, err
	}
	v.forgetOthers(q.class, paths)
	results := make([]result, len(paths))
	asked := make([]func(context.Context) (any, error), len(paths))
	ctx, done := wincalls.Optional(ctx) // nobody is kept waiting for a device that doesn't answer
	defer done()
	for i, path := range paths {
		results[i].path = path
		if q.known != nil {
			if value, ok := q.known(path); ok {
				results[i].value = value
				continue
			}
		}
		asked[i] = v.begin(ctx, path, q, overlap)
	}
	for i, end := range asked {
		if end != nil {
			results[i].value, results[i].err = end(ctx)
		}
	}
	v.count()
	return results, ctx.Err()
}

// one asks one device.
func (v *visits) one(ctx context.Context, path string, q question) (any, error) {
	ctx, done := wincalls.Optional(ctx)
	defer done()
	return v.begin(ctx, path, q, 0)(ctx)
}

// begin asks one device, and waits for a moment for its answer. end gives the answer, and waits
// for that with the question's patience.
func (v *visits) begin(ctx context.Context, path string, q question, moment time.Duration) (end func(context.Context) (any, error)) {
	class, patience := q.class, q.patience
	if v.of(class, path).silent {
		patience, moment = 0, 0 // it may have begun to answer, but that isn't waited for
	}
	wait := v.flights.Begin(ctx, flight{path, q.name}, func(ctx context.Context) (any, error) {
		value, err := q.ask(ctx, path)
		v.update(class, path, func(d *visited) { d.silent = false })
		return value, err
	})
	if moment > 0 {
		_, _ = wait(ctx, moment)
	}
	return func(ctx context.Context) (any, error) {
		value, err := wait(ctx, patience)
		if ctx.Err() != nil {
			return value, err
		}
		if errors.As(err, new(*operation.SilentError)) {
			if patience < v.patience && !v.of(class, path).silent {
				return nil, err // that isn't long enough to call it silent
			}
			err = csiproxy.Errorf(csiproxy.ErrUnavailable, "it has not answered for %v or longer", v.patience)
			v.update(class, path, func(d *visited) { d.silent = true })
		}
		v.report(class, path, err)
		return value, err
	}
}

func (v *visits) of(class win.GUID, path string) visited {
	v.mu.Lock()
	defer v.mu.Unlock()
	if d := v.known[path]; d != nil {
		return *d
	}
	return visited{class: class}
}

func (v *visits) update(class win.GUID, path string, f func(*visited)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.known[path]
	if d == nil {
		d = &visited{class: class}
		v.known[path] = d
	}
	f(d)
}

// report logs that a device is skipped from now on, or no longer. A device that leaves is
// no trouble.
func (v *visits) report(class win.GUID, path string, err error) {
	trouble := ""
	if err != nil && !isGone(err) {
		trouble = err.Error()
	}
	var before string
	var number any = "unknown"
	v.update(class, path, func(d *visited) {
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

// forgetOthers drops what is remembered of devices of a class that aren't there.
func (v *visits) forgetOthers(class win.GUID, paths []string) {
	there := make(map[string]bool, len(paths))
	for _, path := range paths {
		there[path] = true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.known, func(path string, d *visited) bool { return d.class == class && !there[path] })
}

// count tells how many disks are skipped, if that has changed.
func (v *visits) count() {
	v.mu.Lock()
	count := 0
	for _, d := range v.known {
		if d.class == win.InterfaceClassDisk && d.trouble != "" {
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

// answer is what a disk gave: its number, and the value of whoever asked.
type answer[T any] struct {
	number disk.Number
	isDisk bool // not a path below a multipath disk, which has no number of its own
	value  T
}

// eachDisk asks all disks the same question, and calls found for each that has answered
// and skipped for each that was skipped though its number is known. A disk that leaves
// meanwhile is passed over. known may be nil: see question.
func eachDisk[T any](ctx context.Context, d *Disks, name string, patience time.Duration,
	ask func(ctx context.Context, path string, n disk.Number, h device.Handle) (T, error), found func(n disk.Number, value T),
	skipped func(n disk.Number, why error), known func(path string) (answer any, ok bool),
) error {
	look := func(ctx context.Context, path string) (any, error) {
		h, err := device.Open(ctx, d.sys, path, win.AccessNone)
		if err != nil {
			return answer[T]{}, err
		}
		defer h.Close()
		n, err := h.Number(ctx)
		if err != nil || !isDisk(n) {
			return answer[T]{}, err
		}
		d.visits.update(win.InterfaceClassDisk, path, func(v *visited) {
			if v.number != n.DeviceNumber {
				v.hardware, v.ids = nil, nil // it is another disk
			}
			v.number, v.numbered, v.numberedAt = n.DeviceNumber, true, time.Now()
		})
		value, err := ask(ctx, path, n.DeviceNumber, h)
		return answer[T]{n.DeviceNumber, true, value}, err
	}
	results, err := d.visits.all(ctx, question{win.InterfaceClassDisk, name, patience, look, known})
	if err != nil {
		return err
	}
	for _, r := range results {
		a, ok := r.value.(answer[T])
		switch {
		case r.err == nil && ok && a.isDisk:
			found(a.number, a.value)
		case r.err != nil && !isGone(r.err):
			if known := d.visits.of(win.InterfaceClassDisk, r.path); known.numbered && skipped != nil {
				skipped(known.number, r.err)
			}
		}
	}
	return nil
}

// isDisk reports whether a number is that of a disk. A path below a multipath disk has none of
// its own.
func isDisk(n win.DeviceNumber) bool {
	return n.DeviceType == win.FileDeviceDisk && n.DeviceNumber != win.NoNumber
}

// numbers returns the numbers of all disks, in order.
func (d *Disks) numbers(ctx context.Context) (numbers []disk.Number, _ error) {
	err := eachDisk(ctx, d, "number", othersPatience,
		func(context.Context, string, disk.Number, device.Handle) (struct{}, error) { return struct{}{}, nil },
		func(n disk.Number, _ struct{}) { numbers = append(numbers, n) },
		func(n disk.Number, _ error) { numbers = append(numbers, n) }, nil)
	slices.Sort(numbers)
	return numbers, err
}

// isGone reports whether err says that the device has left or isn't ready yet.
func isGone(err error) bool {
	var errno win.Errno
	ok := errors.As(err, &errno)
	return ok && (errno.Gone() || errno == win.ErrorNotReady)
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
