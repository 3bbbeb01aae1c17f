// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
	"github.com/csi-proxy/csi-proxy/published"
)

// A query asks all disks, or all storage adapters, the same question. Each device is asked on its
// own goroutine: a call to a silent device may hang forever.
//
// devices.known keeps what each device has told: the disk's number and owner, and whether the
// device was slow or skipped. Before a query waits for a device, the query looks there:
//   - A scratch disk of a container isn't asked: see withoutScratch.
//   - The node waits for disks without an owner, until the query's timeout.
//   - A driver waits for its own disks, and for disks whose owner is unknown: see mayBeOf.
//   - Disks of other drivers are asked, too, and their answers count if they come before the query
//     ends. A query of the node lasts at least othersTimeout. A later answer still updates known,
//     and tells the next query whether to wait for the disk: see askOtherDriver.
//
// The node and its drivers share what devices holds. Each has its own queries, which use its own
// calls to Windows. A driver that asks all the time, or has slow disks, delays only itself.
//
// A query skips a device that fails, or that stays silent until the timeout. The device's result
// then has an error, and report logs the device once.

// devices are the devices of a class.
type devices struct {
	class     winid.GUID
	timeout   time.Duration // how long a query waits before a silent device counts as skipped
	log       *slog.Logger
	onSkipped func(count int) // called when the number of skipped devices changes

	unawaited sync.Map // has the key unawaitedKey while a driver asks a device without waiting

	notes atomic.Uint64 // counts the changes of known

	mu    sync.Mutex
	known map[string]knowledge // by interface path, of the devices present at the last query
}

// knowledge is what earlier queries have learned about a device.
type knowledge struct {
	// number is the disk's number, nil if the disk has never answered with a number. A disk keeps
	// its number until it leaves. A silent disk is therefore still listed, and watchers don't see
	// the disk leave.
	number *csiproxy.DiskNumber
	// driver is the disk's owner, "" if no driver owns the disk. isOwnerKnown is whether the disk's
	// answers have settled the owner; until then, driver is "". Adapters have no owner.
	driver       string
	isOwnerKnown bool
	// slowFor are the drivers that waited slowOwner or longer, and didn't learn the disk's owner. While
	// the owner is unknown, these drivers no longer wait for the disk. A wait that a brief query ended
	// doesn't count. If only this driver's calls were late, the disk is slow for this driver only.
	slowFor []string
	reason  string // why the last query skipped the device; "" otherwise
	// scratch is when the device was last identified as a container's scratch disk. Queries don't
	// open the device again until scratchTimeout later.
	scratch time.Time
	// slow is when an adapter was last found to be slow: see ReenumerateAdapters.
	slow time.Time
	// noted is the value of devices.notes when a query last learned something about the device, or
	// reported it.
	noted uint64
}

// scratchTimeout is how long queries leave a scratch disk closed. When a container ends and its
// disk leaves, an administrator's VHDX may come to the same interface path before the next list.
// Queries then find the VHDX only after scratchTimeout. Notices of arrivals are no help: they don't
// name the disk, and each starting container causes a notice. All scratch disks would have to be
// opened again after each notice.
const scratchTimeout = 10 * time.Minute

// newDevices returns the devices of a class. onSkipped, which may be nil, gets the number of
// devices skipped by queries, whenever the number changes.
func newDevices(class winid.GUID, o sharedDiskOptions, onSkipped func(count int)) *devices {
	if onSkipped == nil {
		onSkipped = func(int) {}
	}
	return &devices{class: class, timeout: o.SilentDiskTimeout, log: o.Logger, onSkipped: onSkipped,
		known: make(map[string]knowledge)}
}

// queries are the questions of the node, or of a driver, to devices. Ask each question in one function
// only, because callers with the same key share results: see query.
type queries struct {
	// Of the disks.
	numbers      query
	states       query
	ids          query
	idsIfOnline  query
	locations    query
	hardware     query // the key is which details of the hardware are asked
	descriptions query // the key is the text of the selector
	refreshes    query
	// Of the adapters.
	reenumerations query
}

func (q *queries) init(d *Disks) {
	disks, adapters, driver := d.options.Shared.disks, d.options.Shared.adapters, d.options.Driver
	q.numbers.init(d.options.Lists, disks, driver, othersTimeout)
	q.states.init(d.options.Lists, disks, driver, othersTimeout)
	q.ids.init(d.options.Lists, disks, driver, disks.timeout)
	q.idsIfOnline.init(d.options.Lists, disks, "", othersTimeout) // the original of a copy may be any disk of the node
	q.locations.init(d.options.Lists, disks, driver, disks.timeout)
	q.hardware.init(d.options.Lists, disks, driver, disks.timeout)
	q.descriptions.init(d.options.Lists, disks, driver, disks.timeout)
	q.refreshes.init(d.options.Lists, disks, driver, disks.timeout)
	q.reenumerations.init(d.options.Lists, adapters, driver, adapters.timeout)
}

// query asks all devices of a class the same question concurrently, to keep a silent or failing
// device from hiding the rest. Callers who ask with the same key at the same time share the
// results. The key must therefore contain everything that may differ between callers.
type query struct {
	sys     win.System
	devices *devices
	driver  string // for whom the disks are asked; "" for the node
	timeout time.Duration
	runs    operation.NextRun[any, []found]
}

// maxRuns limits how many runs of a query, with different keys, ask devices at the same time: each
// run takes memory for each device. A caller chooses the selector in the key of a description.
const maxRuns = 4

func (q *query) init(sys win.System, devices *devices, driver string, timeout time.Duration) {
	q.sys, q.devices, q.driver, q.timeout = sys, devices, driver, timeout
	q.runs.Timeout, q.runs.Room = scanTimeout(devices.timeout), make(chan struct{}, maxRuns)
}

// found is the result of a query for a path.
type found struct {
	path   string
	err    error               // why the device is skipped
	isDisk bool                // the device is a disk of its own: see openPath
	number csiproxy.DiskNumber // of a disk
	driver string              // the disk's owner; "" if no driver owns the disk

	// The answer to the query is in one of these fields.
	state    win.DiskState
	ids      published.DiskIDs
	tableIDs []string
	location location
	disk     csiproxy.Disk
}

// askFunc asks the device at a path.
type askFunc func(ctx context.Context, path string) (found, error)

// othersTimeout is the timeout of a brief query, such as a query of all disks on behalf of a call about
// a single disk. Every query of the node waits at least so long for the disks of drivers.
const othersTimeout = 200 * time.Millisecond

// slowOwner is how long a disk may take to settle its owner before drivers stop waiting for the
// disk. It leaves the second half of the shortest timeout to the disk's remaining answers.
const slowOwner = othersTimeout / 2

// The results of silent devices.
var (
	errSlow        = csiproxy.Errorf(csiproxy.ErrUnavailable, "it has not answered in time")
	errOtherDriver = csiproxy.Errorf(csiproxy.ErrUnavailable, "another driver's device has not answered") // the query didn't wait for the device
)

// all calls ask with each device. It returns after all devices relevant to the driver have answered
// (see askEach), or after the timeout. all returns an error if Windows gives no list of devices, or
// if ctx ends.
//
// Callers share results, but only of a query that begins after the call: the caller may have
// changed a device right before.
func (q *query) all(ctx context.Context, key any, ask askFunc) ([]found, error) {
	return q.runs.Do(ctx, key, func(ctx context.Context) ([]found, error) {
		begun := q.devices.notes.Load()
		paths, err := q.sys.DeviceInterfaces(ctx, q.devices.class)
		if err != nil {
			return nil, err
		}
		results := q.askEach(ctx, q.devices.withoutScratch(paths), ask)
		q.report(begun, results)
		return results, ctx.Err()
	})
}

// withoutScratch returns paths except those of known scratch disks, and notes that these are there.
func (d *devices) withoutScratch(paths []string) (others []string) {
	for _, path := range paths {
		if time.Since(d.last(path).scratch) < scratchTimeout {
			d.note(path, func(*knowledge) {})
		} else {
			others = append(others, path)
		}
	}
	return others
}

// askEach asks the devices at paths. The goroutine for a silent device stays until Windows ends the
// call. Until then, package operation refuses the same call on the device.
//
// A driver waits for all disks that it may own. Afterwards, askEach waits for the remaining disks
// another fifth of the elapsed time: usually the disks of a node are about equally fast, and the
// result is then complete. The node's own lists, also those for administrators, should have the disks
// of all drivers, and last at least othersTimeout.
func (q *query) askEach(ctx context.Context, paths []string, ask askFunc) []found {
	type ended struct {
		i       int
		outcome operation.Outcome[found]
	}
	outcomes := make(chan ended, len(paths))
	results := make([]found, len(paths))
	trackers := make([]*operation.Tracker, len(paths))
	begun, awaited := time.Now(), make(map[int]bool)
	for i, path := range paths {
		results[i] = found{path: path, err: errOtherDriver}
		last := q.devices.last(path)
		// To the node, with driver "", all disks of drivers are another's.
		if last.mayBeOf(q.driver) && !last.isOfAnother(q.driver) {
			results[i].err, awaited[i] = errSlow, true
		}
		askThis := ask
		if !awaited[i] {
			askThis = func(ctx context.Context, path string) (found, error) { return q.askOtherDriver(ctx, path, ask) }
		}
		whole := operation.TrackerOf(ctx) // of the query
		deviceCtx, tracker := operation.WithTracker(ctx)
		trackers[i] = tracker
		go func() {
			defer whole.WaitFor(tracker)()
			outcomes <- ended{i, operation.Catch(func() (found, error) { return askThis(deviceCtx, path) })}
		}()
	}
	timeout := time.NewTimer(q.timeout)
	defer timeout.Stop()
	isEnding := false
	for range paths {
		if len(awaited) == 0 && !isEnding {
			elapsed := time.Since(begun)
			more := elapsed / 5
			if q.driver == "" {
				more = max(more, othersTimeout-elapsed)
			}
			timeout.Reset(more)
			isEnding = true
		}
		select {
		case e := <-outcomes:
			answer, err := e.outcome.Get()
			answer.path, answer.err = paths[e.i], withoutQueryName(err)
			results[e.i] = answer
			delete(awaited, e.i)
		case <-timeout.C:
			if !q.isBrief() {
				nameHangingCalls(results, trackers)
			}
			return results
		case <-ctx.Done():
			return results
		}
	}
	return results
}

// isBrief reports whether a query waits too briefly to call an unanswering device silent.
func (q *query) isBrief() bool { return q.timeout < q.devices.timeout }

// nameHangingCalls names, in the results of silent devices, the calls that Windows hasn't answered.
// The error equals the refusal of the same call by package operation in the next query.
func nameHangingCalls(results []found, trackers []*operation.Tracker) {
	for i, tracker := range trackers {
		if c, ok := tracker.Oldest(); ok && results[i].err == errSlow {
			results[i].err = c.Refusal()
		}
	}
}

// askOtherDriver asks a device that the driver does not await: at the last query, another driver or
// no driver owned the disk, or the device was slow. Since then, the driver's own disk may have
// come to the same path. The question therefore outlasts the query, and the next query knows the
// answer. If an earlier query of the driver is still asking the disk, askOtherDriver returns
// errOtherDriver. After its timeout, a hanging question no longer keeps the driver from asking the
// device again: the disk that hangs may have left.
func (q *query) askOtherDriver(ctx context.Context, path string, ask askFunc) (found, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.devices.timeout)
	defer cancel()
	if q.driver != "" {
		asked := unawaitedKey{q.driver, path}
		if _, isAsked := q.devices.unawaited.LoadOrStore(asked, true); isAsked {
			return found{}, errOtherDriver
		}
		release := func() { q.devices.unawaited.Delete(asked) }
		defer release()
		defer context.AfterFunc(ctx, release)()
	}
	return ask(operation.RepeatHanging(ctx), path)
}

// unawaitedKey is a driver, and the interface path of a device that the driver asks without waiting.
type unawaitedKey struct{ driver, path string }

// withoutQueryName removes the name of the query from the error of a refused call. A hanging device
// thus has the same error for every query.
func withoutQueryName(err error) error {
	var refused *csiproxy.Error
	if isRefusedCall(err) && errors.As(err, &refused) {
		return refused
	}
	return err
}

// isRefusedCall reports whether package operation has refused a call on a device because an earlier
// call hangs. Such an error has the class csiproxy.ErrUnavailable, as some errors of Windows have,
// and no error number, because the call never reached Windows.
func isRefusedCall(err error) bool {
	return errors.Is(err, csiproxy.ErrUnavailable) && !errors.As(err, new(winerr.Errno))
}

// report logs newly skipped devices and devices no longer skipped, and passes the number of skipped
// devices to onSkipped. It forgets the devices that had left when the query began, at the value begun of
// devices.notes; others may have come since.
func (q *query) report(begun uint64, results []found) {
	devices := q.devices
	devices.mu.Lock()
	defer devices.mu.Unlock()
	before := skipped(devices.known)
	for _, r := range results {
		state := devices.known[r.path]
		wasSkipped := state.reason != ""
		noNews := r.err == errOtherDriver || r.err == errSlow && q.isBrief() // the query didn't wait, or only briefly
		switch {
		case noNews:
		case r.err != nil && !deviceDepartedOrUnready(r.err):
			state.reason = r.err.Error()
			if !wasSkipped {
				devices.log.Warn("a device is skipped", "device", r.path, "disk", state, "reason", r.err)
			}
		case wasSkipped:
			state.reason = ""
			devices.log.Info("a device is no longer skipped", "device", r.path, "disk", state)
		}
		state.noted = devices.notes.Add(1)
		devices.known[r.path] = state
	}
	maps.DeleteFunc(devices.known, func(_ string, state knowledge) bool { return state.noted <= begun })
	if count := skipped(devices.known); count != before {
		devices.onSkipped(count)
	}
}

// mayBeOf reports whether a driver may own a device; true for all devices if driver is "", the
// node. A slow adapter may have disks of the driver, but counts as another driver's.
func (t knowledge) mayBeOf(driver string) bool {
	if driver == "" {
		return true
	}
	if time.Since(t.slow) <= slowAdapterTimeout {
		return false
	}
	if t.isOwnerKnown {
		return t.driver == driver
	}
	return !slices.Contains(t.slowFor, driver)
}

// isOfAnother reports whether another driver owned the disk when the disk last answered.
func (t knowledge) isOfAnother(driver string) bool { return t.driver != "" && t.driver != driver }

// LogValue returns the number of the disk.
func (t knowledge) LogValue() slog.Value {
	if t.number == nil {
		return slog.StringValue("unknown")
	}
	return slog.AnyValue(*t.number)
}

func skipped(devices map[string]knowledge) (count int) {
	for _, t := range devices {
		if t.reason != "" {
			count++
		}
	}
	return count
}

// Unnumbered returns a device that is missing from the lists of disks, and the reason: a silent
// device whose number was never known. path is "" if no device is missing.
func (d *Disks) Unnumbered() (path, reason string) {
	if d.options.Driver != "" {
		return "", "" // the device may be another driver's
	}
	all := d.options.Shared.disks
	all.mu.Lock()
	defer all.mu.Unlock()
	for devicePath, t := range all.known {
		if t.reason != "" && t.number == nil && (path == "" || devicePath < path) {
			path, reason = devicePath, t.reason
		}
	}
	return path, reason
}

// note updates the knowledge about a disk with change.
func (d *devices) note(path string, change func(*knowledge)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.known[path]
	change(&state)
	state.noted = d.notes.Add(1)
	d.known[path] = state
}

// last returns the knowledge about a disk.
func (d *devices) last(path string) knowledge {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[path]
}

// askDisks calls ask with each disk, to fill in the answer. For a driver, it calls ask with the
// driver's disks only, and asks the remaining disks who owns them.
func (d *Disks) askDisks(ctx context.Context, q *query, key any,
	ask func(ctx context.Context, h *opendisk.Disk, f *found) error) ([]found, error) {
	return q.all(ctx, key, func(ctx context.Context, path string) (f found, _ error) {
		h, owner, err := d.openPath(ctx, path)
		if err != nil || h == nil {
			return f, err
		}
		defer h.Close()
		f.isDisk, f.number, f.driver = true, h.Number, owner
		if q.driver == "" || q.driver == owner {
			err = ask(ctx, h, &f)
		}
		return f, err
	})
}

// eachDisk is askDisks for the disks of the query's driver. It leaves out devices outside the scope of
// operations (see openPath), disks that have left or aren't ready, and silent disks of unknown number.
func (d *Disks) eachDisk(ctx context.Context, q *query, key any,
	ask func(ctx context.Context, h *opendisk.Disk, f *found) error) ([]found, error) {
	results, err := d.askDisks(ctx, q, key, ask)
	return q.disksOf(results), err
}

// disksOf returns the results of eachDisk. A silent disk has the number and the driver from its
// last answer.
func (q *query) disksOf(results []found) (all []found) {
	for _, f := range results {
		if deviceDepartedOrUnready(f.err) {
			continue
		}
		if last := q.devices.last(f.path); !f.isDisk && f.err != nil && last.number != nil {
			f.isDisk, f.number, f.driver = true, *last.number, last.driver
		}
		if f.isDisk && (q.driver == "" || q.driver == f.driver) {
			all = append(all, f)
		}
	}
	return all
}

// openPath opens the disk at path for queries, and returns its owner. It returns nil for devices
// outside the scope of operations: a path below a multipath disk, or a container's scratch disk.
func (d *Disks) openPath(ctx context.Context, path string) (_ *opendisk.Disk, driver string, _ error) {
	begun, isOwnerKnown := time.Now(), false
	defer func() {
		took := time.Since(begun)
		isCut := ctx.Err() != nil && took < d.options.Shared.disks.timeout // a brief query has ended first
		if !isOwnerKnown && !isCut && took >= slowOwner {
			d.options.Shared.disks.note(path, func(t *knowledge) {
				if !slices.Contains(t.slowFor, d.options.Driver) {
					t.slowFor = append(slices.Clip(t.slowFor), d.options.Driver) // copied: queries may be reading it
				}
			})
		}
	}()
	h, err := win.OpenDevice(ctx, d.options.Lists, path, win.AccessNone)
	if err != nil {
		return nil, "", err
	}
	isReturned := false
	defer func() {
		if !isReturned {
			h.Close()
		}
	}()
	n, err := h.Number(ctx)
	if err != nil || !isDisk(n) {
		return nil, "", err
	}
	d.options.Shared.disks.note(path, func(t *knowledge) {
		if t.number == nil || *t.number != n.DeviceNumber {
			t.driver, t.isOwnerKnown, t.slowFor = "", false, nil // perhaps another disk
		}
		t.number = &n.DeviceNumber
	})
	hardware, scratch, err := d.options.Shared.askScratch(ctx, path, h)
	if err != nil || scratch {
		return nil, "", err
	}
	disk := &opendisk.Disk{DeviceHandle: h, Number: n.DeviceNumber, Hardware: hardware}
	if driver, isOwnerKnown, err = d.askOwner(ctx, path, disk); err != nil {
		return nil, "", err
	}
	isReturned = true
	return disk, driver, nil
}

// askOwner returns the driver that owns an open disk, and records a settled owner in options.Shared.disks. If
// the disk doesn't answer a question about its owner, isKnown is false, and the driver is from
// the disk's last complete answers.
func (d *Disks) askOwner(ctx context.Context, path string, disk *opendisk.Disk) (driver string, isKnown bool, _ error) {
	driver, err := d.options.OwnerOf(ctx, disk)
	if err != nil && (ctx.Err() != nil || deviceDepartedOrUnready(err)) {
		return "", false, err
	}
	if err != nil || disk.Hardware.DescriptorErr != nil {
		return d.options.Shared.disks.last(path).driver, false, nil
	}
	d.options.Shared.disks.note(path, func(t *knowledge) { t.driver, t.isOwnerKnown, t.slowFor = driver, true, nil })
	return driver, true, nil
}

// askScratch asks the disk at path, open as h, for its hardware, and reports whether the disk is a
// container's scratch disk. It records scratch disks in shared.disks.
func (shared *SharedDisks) askScratch(ctx context.Context, path string,
	h win.DeviceHandle) (hardware opendisk.Hardware, scratch bool, err error) {
	if hardware, err = opendisk.AskHardware(ctx, h); err != nil {
		return hardware, false, err
	}
	scratch, err = opendisk.IsScratch(ctx, h, hardware.Descriptor)
	if scratch {
		shared.disks.note(path, func(t *knowledge) { t.scratch = time.Now() })
	}
	return hardware, scratch, err
}

// isDisk reports whether a device number is a disk's. A path below a multipath disk lacks a disk
// number.
func isDisk(n win.DeviceNumber) bool {
	return n.DeviceType == win.FileDeviceDisk && n.DeviceNumber != win.NoNumber
}

// numbers returns the numbers of all disks, in order.
func (d *Disks) numbers(ctx context.Context) (numbers []csiproxy.DiskNumber, _ error) {
	all, err := d.eachDisk(ctx, &d.queries.numbers, nil,
		func(context.Context, *opendisk.Disk, *found) error { return nil })
	for _, a := range all {
		numbers = append(numbers, a.number)
	}
	slices.Sort(numbers)
	return numbers, err
}

// deviceDepartedOrUnready reports whether err means that the device has left or isn't ready yet.
func deviceDepartedOrUnready(err error) bool {
	return winerr.IsGone(err) || errors.Is(err, winerr.ErrorNotReady)
}

// tolerate logs err and returns nil if a disk refuses a single query. A virtual bus may refuse any
// query, and a refusal must not hide the disk's remaining answers. If the disk has left or the
// caller's context has ended, tolerate returns err.
func (shared *SharedDisks) tolerate(n csiproxy.DiskNumber, what string, err error) error {
	if !winerr.IsAnswer(err) {
		return err
	}
	shared.log.Debug("a disk doesn't answer a query", "disk", n, "query", what, "err", err)
	return nil
}
