// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// Call is an unanswered call to Windows.
type Call struct {
	Name   string // one of win.CallNames
	Object string
	Since  time.Time

	isOfDriver bool // made on behalf of a driver
	mayRepeat  bool // see RepeatHanging
}

// ForDriver returns a context for work on behalf of a driver. Errors of the work name calls to
// Windows without their objects, which may belong to other drivers.
func ForDriver(ctx context.Context) context.Context {
	return context.WithValue(ctx, driverKey{}, true)
}

type driverKey struct{}

// isForDriver reports whether ctx is from ForDriver.
func isForDriver(ctx context.Context) bool { return ctx.Value(driverKey{}) != nil }

// RepeatHanging returns a context for work that may repeat a hanging call: after a minute, and then
// after eight times as long each time. The object may have been replaced by another one at the same
// place: see [Windows].
func RepeatHanging(ctx context.Context) context.Context {
	return context.WithValue(ctx, repeatKey{}, true)
}

type repeatKey struct{}

// String describes an unanswered call in messages. The text is constant for a call: Kubernetes
// makes an event of each new text.
func (c Call) String() string {
	name := c.Name
	if !c.isOfDriver {
		name += " on " + quote.Text(c.Object)
	}
	return fmt.Sprintf("Windows has not answered %s since %s", name, c.Since.UTC().Format(time.RFC3339))
}

// forCaller returns the call for errors of a caller, which may be a driver.
func (c Call) forCaller(isDriver bool) Call {
	c.isOfDriver = c.isOfDriver || isDriver
	return c
}

// Refusal is the error for a refused call that would hang like c.
func (c Call) Refusal() error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "%v; try again later", c)
}

// call is a call under way or waiting to begin.
type call struct {
	Call
	share   bool
	other   string // the owner of the object, if not the caller: see AskSome
	late    bool   // took longer than overdueAfter at the last check
	overdue bool   // was late, and still unanswered at the next check
	// isReplaced is whether a repetition of the overdue call was answered: the call hangs on an
	// object that has left. It refuses no calls.
	isReplaced bool

	begun chan error // of a waiting call: gets nil when the call may begin, or its refusal
}

// table has the calls under way or waiting to begin.
type table struct {
	log    *slog.Logger
	driver string // all calls are made on behalf of this driver; "" for the node's calls

	mu       sync.Mutex         // guards all below; held for moments
	objects  map[string][]*call // calls under way on each object, oldest first
	waiting  []*call            // in the order of their arrival
	underWay int
	ofShares int            // calls under way that may wait for an SMB server
	ofOthers map[string]int // calls under way on the objects of each other owner
	overdue  int            // overdue calls under way
	refused  uint64
	watching bool // a timer runs until the next check
}

func newTable(log *slog.Logger) *table {
	return &table{log: log, objects: make(map[string][]*call), ofOthers: make(map[string]int)}
}

var errManyWaiting = csiproxy.Errorf(csiproxy.ErrUnavailable, "too many calls wait for Windows; try again later")

// enter waits until a call may begin, and records its beginning. The caller then makes the call and
// calls leave. If the call is refused, or ctx ends first, enter returns an error instead.
func (t *table) enter(ctx context.Context, name string, o object) (*call, error) {
	c := &call{Call: Call{Name: name, Object: o.name, isOfDriver: t.driver != "" || isForDriver(ctx),
		mayRepeat: ctx.Value(repeatKey{}) != nil}, share: o.share}
	if owner, isGiven := ctx.Value(ownerKey{}).(string); isGiven && owner != t.driver {
		c.other = cmp.Or(owner, UnknownOwner(owner))
	}
	t.mu.Lock()
	begun, refusal := t.tryBegin(c)
	if !begun && refusal == nil {
		refusal = t.wait(c)
	}
	t.mu.Unlock()
	if begun || refusal != nil {
		return c, refusal
	}
	select {
	case refusal := <-c.begun:
		return c, refusal
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := ctx.Err()
	if underWay := t.objects[o.name]; len(underWay) > 0 {
		err = fmt.Errorf("%v: %w", underWay[0].forCaller(c.isOfDriver), err)
	}
	if i := slices.Index(t.waiting, c); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else if !c.Since.IsZero() { // the call was admitted when ctx ended
		t.end(c)
	}
	return nil, err
}

// wait records a call that waits to begin. A non-nil error refuses the call.
func (t *table) wait(c *call) (refusal error) {
	if len(t.waiting) >= maxWaiting {
		t.refused++
		return errManyWaiting
	}
	c.begun = make(chan error, 1)
	t.waiting = append(t.waiting, c)
	return nil
}

// tryBegin begins a call if there is room. A non-nil error refuses the call.
func (t *table) tryBegin(c *call) (begun bool, refusal error) {
	if err := t.hanging(c.Call); err != nil {
		return false, err
	}
	if !t.room(c) {
		return false, nil
	}
	c.Since = time.Now()
	t.objects[c.Object] = append(t.objects[c.Object], c)
	t.underWay++
	t.ofOthers[c.other]++
	if c.share {
		t.ofShares++
	}
	t.watch()
	return true, nil
}

// admit begins the waiting calls with room, in their order, and refuses calls that would hang.
func (t *table) admit() {
	t.waiting = slices.DeleteFunc(t.waiting, func(c *call) bool {
		begun, refusal := t.tryBegin(c)
		if !begun && refusal == nil {
			return false
		}
		c.begun <- refusal
		return true
	})
}

// hanging returns a refusal if the same call on the object is overdue: a second call would hang too.
func (t *table) hanging(next Call) error {
	if t.overdue == 0 || oneAtATime[next.Name] {
		return nil
	}
	var oldest, newest *call
	repeatAfter := firstRepeatAfter / longerEachTime
	for _, c := range t.objects[next.Object] {
		if c.Name == next.Name && c.overdue && !c.isReplaced {
			oldest, newest = cmp.Or(oldest, c), c
			repeatAfter *= longerEachTime
		}
	}
	if oldest == nil || next.mayRepeat && time.Since(newest.Since) >= repeatAfter {
		return nil
	}
	t.refused++
	return oldest.forCaller(next.isOfDriver).Refusal()
}

// When a hanging call may be repeated. The fourth call on an object, after over an hour, is the last.
const (
	firstRepeatAfter = time.Minute
	longerEachTime   = 8
)

// hangingOnTheWay is hanging for a call on each directory on path after the first bytes.
func (t *table) hangingOnTheWay(next Call, path string, first int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := first; i < len(path) && t.overdue > 0; i++ {
		if path[i] != '\\' {
			continue
		}
		next.Object = pathObject(path[:i]).name
		if err := t.hanging(next); err != nil {
			return err
		}
	}
	return nil
}

// room reports whether c may begin now.
func (t *table) room(c *call) bool {
	onObject := t.objects[c.Object]
	for _, other := range onObject {
		if other.Name == c.Name && oneAtATime[c.Name] {
			return false
		}
	}
	if c.other != "" && t.ofOthers[c.other] >= maxOfOther {
		return false
	}
	return !t.isTaken(1, c.share) && (len(onObject) == 0 || len(onObject) < maxOfObject && !t.isTaken(2, c.share))
}

// isTaken reports whether the limits on all calls are used up: the whole limits for part 1, half of
// them for part 2.
func (t *table) isTaken(part int, share bool) bool {
	return t.underWay >= maxCalls/part || share && t.ofShares >= maxOfShares/part
}

// timeToTakeAnswer is the extra time after overdueAfter before a call counts as overdue: on a busy
// machine, Windows may have answered while the process waits for processor time to read the answer.
const timeToTakeAnswer = 100 * time.Millisecond

// watch schedules a check of the table, if calls under way are not overdue yet. All calls share one
// timer: a timer for each call costs a good part of the time of a call to Windows.
func (t *table) watch() {
	if !t.watching && t.underWay > t.overdue {
		t.watching = true
		time.AfterFunc(timeToTakeAnswer, t.check)
	}
}

// check marks the overdue calls: calls that were late at the previous check.
func (t *table) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, calls := range t.objects {
		for _, c := range calls {
			if c.overdue {
				continue
			}
			if c.late {
				t.noteOverdue(c)
				continue
			}
			c.late = time.Since(c.Since) >= overdueAfter(c.Name)
		}
	}
	t.watching = false
	t.watch()
}

// noteOverdue marks a call as overdue, and refuses waiting repetitions of the call.
func (t *table) noteOverdue(c *call) {
	c.overdue = true
	t.overdue++
	t.log.Warn("Windows does not answer a call", "call", c.Name, "object", quote.Text(c.Object), "since", c.Since)
	t.admit()
}

// leave records Windows' answer to a call.
func (t *table) leave(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.overdue {
		t.overdue--
		t.log.Info("Windows has answered a call after all", "call", c.Name, "object", quote.Text(c.Object), "took",
			time.Since(c.Since).Round(time.Millisecond))
	}
	for _, other := range t.objects[c.Object] {
		isRepeated := c.mayRepeat && other.Name == c.Name && other.Since.Before(c.Since)
		if isRepeated && other.overdue {
			other.isReplaced = true
		}
	}
	t.end(c)
}

// end records the end of a call.
func (t *table) end(c *call) {
	left := slices.DeleteFunc(t.objects[c.Object], func(other *call) bool { return other == c })
	if len(left) > 0 {
		t.objects[c.Object] = left
	} else {
		delete(t.objects, c.Object)
	}
	t.underWay--
	if t.ofOthers[c.other]--; t.ofOthers[c.other] == 0 {
		delete(t.ofOthers, c.other)
	}
	if c.share {
		t.ofShares--
	}
	t.admit()
}

// Load is the number of Windows calls under way, waiting and refused.
type Load struct {
	Running int    // calls under way, overdue ones included
	Overdue int    // running calls that are overdue
	Waiting int    // calls that wait to begin
	Refused uint64 // calls refused so far
	Hanging []Call // the oldest overdue calls, at most maxHanging, oldest first
}

// Plus returns the sum of two loads.
func (l Load) Plus(m Load) Load {
	sum := Load{l.Running + m.Running, l.Overdue + m.Overdue, l.Waiting + m.Waiting, l.Refused + m.Refused,
		slices.Concat(l.Hanging, m.Hanging)}
	sum.Hanging = oldest(sum.Hanging)
	return sum
}

// maxHanging limits Load.Hanging.
const maxHanging = 32

// load returns the current load.
func (t *table) load() Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := Load{Running: t.underWay, Waiting: len(t.waiting), Refused: t.refused}
	for _, calls := range t.objects {
		for _, c := range calls {
			if c.overdue {
				l.Hanging = append(l.Hanging, c.Call)
			}
		}
	}
	l.Overdue = len(l.Hanging)
	l.Hanging = oldest(l.Hanging)
	return l
}

// oldest returns the oldest calls, at most maxHanging, in their order.
func oldest(calls []Call) []Call {
	sort.Slice(calls, func(i, j int) bool { return calls[i].Since.Before(calls[j].Since) })
	return calls[:min(len(calls), maxHanging)]
}
