// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// controlName is the name under which rules and counters know a control code.
func controlName(code win.IoctlCode) string {
	if name, ok := code.Name(); ok {
		return name
	}
	return win.CallUnknownControl
}

// Call is one call of the seam as hooks and rules see it.
type Call struct {
	Name string // one of win.CallNames
	// Object is what the call is about: the path that was opened, for a disk
	// `\\.\PhysicalDriveN` and its interface path with a blank between, for a
	// mount point also the volume, for a mapping its remote path, for an iSCSI login
	// the target's IQN and the portal, else one of both.
	Object string
}

// Match says which calls a rule is for.
type Match struct {
	Call   string // one of win.CallNames, in any case, or EachCall
	Object string // a part of Call.Object, in any case; "" is in every object
	Skip   int    // so many matching calls are left alone first
	Count  int    // the rule ends after so many calls; 0: at ResetRules
	Fires  Fires  // whether the rule must have an effect: see CheckRules
}

// EachCall is what Match.Call is for all calls.
const EachCall = "*"

// Fires says whether a rule must have an effect until it ends.
type Fires int

// Whether a rule must have an effect.
const (
	MustFire    Fires = iota // on one call at least
	MayFire                  // it makes no difference
	MustNotFire              // no call may match it
)

// matches reports whether the rule is for c; m.Call is spelled as in win.CallNames. A
// number at the end of m.Object is a whole one: PhysicalDrive1 isn't in
// PhysicalDrive10.
func (m Match) matches(c Call) bool {
	if m.Call != c.Name && m.Call != EachCall {
		return false
	}
	object, part := strings.ToLower(c.Object), strings.ToLower(m.Object)
	for {
		i := strings.Index(object, part)
		if i < 0 {
			return false
		}
		object = object[i+len(part):]
		if part == "" || object == "" || !isDigit(part[len(part)-1]) || !isDigit(object[0]) {
			return true
		}
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Delays says how long calls and arrivals take. The zero value is no delay.
type Delays struct {
	// Calls are by one of win.CallNames, in any case. StartServiceW and ControlService
	// return at once; theirs is how long the service is starting or stopping, also
	// when it is started for another one or by a restart.
	Calls map[string]time.Duration
	// DiskArrival is the time from the attachment of a disk, or its discovery by a
	// re-enumeration, until its interface is there.
	DiskArrival time.Duration
	// VolumeArrival is the time from a change of a partition table, or a disk
	// coming online, until the volume of a new partition is there. It is never
	// there within the call, also without a delay.
	VolumeArrival time.Duration
}

// RealisticDelays is a profile of a quick cloud node.
func RealisticDelays() Delays {
	const ms = time.Millisecond
	return Delays{
		Calls: map[string]time.Duration{
			win.CallReenumerateDevice:        50 * ms,
			"IOCTL_DISK_CREATE_DISK":         30 * ms,
			"IOCTL_DISK_SET_DRIVE_LAYOUT_EX": 30 * ms,
			"IOCTL_DISK_SET_DISK_ATTRIBUTES": 20 * ms,
			"IOCTL_DISK_GROW_PARTITION":      20 * ms,
			"IOCTL_DISK_UPDATE_DRIVE_SIZE":   10 * ms,
			"IOCTL_DISK_UPDATE_PROPERTIES":   5 * ms,
			"FSCTL_EXTEND_VOLUME":            60 * ms,
			win.CallFormatVolume:             800 * ms,
			win.CallSetVolumeMountPoint:      15 * ms,
			win.CallDeleteVolumeMountPoint:   10 * ms,
			win.CallFlush:                    10 * ms,
			win.CallFindVolumes:              1 * ms,
			win.CallAddISCSIPortal:           50 * ms,
			win.CallRefreshISCSIPortal:       50 * ms,
			win.CallLoginISCSITarget:         150 * ms,
			win.CallLogoutISCSITarget:        100 * ms,
			win.CallStartService:             300 * ms,
			win.CallStopService:              200 * ms,
			win.CallSMBGlobalMappings:        15 * ms,
			win.CallCreateSMBGlobalMapping:   60 * ms,
			win.CallRemoveSMBGlobalMapping:   30 * ms,
		},
		DiskArrival:   300 * ms,
		VolumeArrival: 200 * ms,
	}
}

// gate is what every call of the seam passes before it reaches the node: hook,
// delay, fault and count.
type gate struct {
	delays Delays          // they don't change
	closed <-chan struct{} // when the node is

	mu     sync.Mutex // guards the fields below; held for moments only
	hook   func(Call)
	rules  []*rule
	reset  chan struct{} // closed when the rules end
	wrong  []string      // the rules that have ended, and haven't done what their Fires says
	counts map[string]int
}

// Effect is what a rule does to calls: one field is set.
type Effect struct {
	Fail               winerr.Errno  // the calls fail, without doing anything
	Delay              time.Duration // the calls take longer: see Delay
	DelayUncancellable time.Duration // as DelayUncancellable does
}

type rule struct {
	Match
	Effect
	seen int // matching calls so far
}

// hits returns how many calls the rule has had its effect on.
func (r *rule) hits() int {
	hits := max(0, r.seen-r.Skip)
	if r.Count > 0 {
		hits = min(hits, r.Count)
	}
	return hits
}

// wrong returns what is wrong with how often the rule has fired; "" if nothing is.
func (r *rule) wrong() string {
	hits, about := r.hits(), r.Call
	if r.Object != "" {
		about += " about " + r.Object
	}
	switch {
	case r.Fires == MustFire && hits == 0:
		return fmt.Sprintf("the rule for %s has never fired: %d calls matched it, and it skips %d", about, r.seen, r.Skip)
	case r.Fires == MustNotFire && hits > 0:
		return fmt.Sprintf("the rule for %s has fired %d times, and must not", about, hits)
	}
	return ""
}

// answer is what delays and rules have for a call.
type answer struct {
	delay time.Duration // ends early with the caller's context
	stuck time.Duration // after that: doesn't
	fault winerr.Errno
	reset <-chan struct{} // closed when the rules end, and with them stuck
}

// enter lets c pass after its delay, or returns the error that a rule has for it or
// ctx's.
func (g *gate) enter(ctx context.Context, c Call) error {
	a, err := g.admit(ctx, c)
	if err != nil {
		return err
	}
	if a.delay > 0 || a.stuck == 0 {
		if err := win.Sleep(ctx, a.delay); err != nil {
			return err
		}
	}
	if a.stuck > 0 { // also if the context has ended since Windows was called
		timer := time.NewTimer(a.stuck)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-a.reset:
		case <-g.closed:
		}
	}
	if a.fault != 0 {
		return a.fault
	}
	return nil
}

// admit counts c, runs the hook, and returns what delays and rules have for c.
func (g *gate) admit(ctx context.Context, c Call) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	if strings.Contains(c.Object, "\x00") {
		return answer{}, winerr.ErrorInvalidName
	}
	g.mu.Lock()
	hook := g.hook
	g.counts[c.Name]++
	g.mu.Unlock()
	if hook != nil {
		hook(c)
	}
	return g.consult(c), nil
}

// looksAtObjects reports whether a hook or a rule wants to know the object of a call.
func (g *gate) looksAtObjects() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hook != nil || len(g.rules) > 0
}

// consult finds the delays and the first fault for c and uses up the rules.
func (g *gate) consult(c Call) answer {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := answer{delay: g.delays.Calls[c.Name], reset: g.reset}
	for _, r := range g.rules {
		if r.Count > 0 && r.hits() == r.Count || !r.matches(c) || r.Fail != 0 && a.fault != 0 {
			continue
		}
		if r.seen++; r.seen <= r.Skip {
			continue
		}
		a.stuck += r.DelayUncancellable
		a.delay += r.Delay
		a.fault = max(a.fault, r.Fail)
	}
	return a
}

// callName returns the name of a call that is given in any case.
func callName(name string) (string, error) {
	names := win.CallNames()
	i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	if i < 0 {
		return "", csiproxy.Errorf(csiproxy.ErrNotFound, "no call %q%s", name, didyoumean.Hint("", name, names))
	}
	return names[i], nil
}

// init is called once, before any call. The end of ctx is the end of the node.
func (g *gate) init(ctx context.Context, d Delays) error {
	g.delays, g.closed, g.reset = d, ctx.Done(), make(chan struct{})
	g.delays.Calls = map[string]time.Duration{}
	for name, delay := range d.Calls {
		name, err := callName(name)
		if err != nil {
			return fmt.Errorf("delays: %w", err)
		}
		g.delays.Calls[name] = delay
	}
	g.counts = map[string]int{}
	return nil
}

// AddRule gives the calls that m describes an effect, until ResetRules. hits returns how many calls have had it.
func (g *gate) AddRule(m Match, e Effect) (hits func() int, err error) {
	if m.Call != EachCall {
		if m.Call, err = callName(m.Call); err != nil {
			return nil, fmt.Errorf("rule: %w", err)
		}
	}
	if m.Skip < 0 || m.Count < 0 {
		return nil, fmt.Errorf("rule for %s: skip %d and count %d: %w", m.Call, m.Skip, m.Count, winerr.ErrorInvalidParameter)
	}
	if e.Delay < 0 || e.DelayUncancellable < 0 || e == (Effect{}) {
		return nil, fmt.Errorf("rule for %s: the error is 0, or the delay isn't above 0: %w", m.Call, winerr.ErrorInvalidParameter)
	}
	r := &rule{Match: m, Effect: e}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules = append(g.rules, r)
	return func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return r.hits()
	}, nil
}

// Fail makes the calls that m describes fail with the Windows error number e,
// without doing anything.
func (g *gate) Fail(m Match, e winerr.Errno) error { return g.addRule(m, Effect{Fail: e}) }

// Delay makes the calls that m describes take d longer; of StartServiceW and
// ControlService, what they begin. A caller whose context ends meanwhile gets its
// error at once, and the call does nothing: this is a Windows call that is interrupted
// in time (CancelSynchronousIo).
func (g *gate) Delay(m Match, d time.Duration) error { return g.addRule(m, Effect{Delay: d}) }

// DelayUncancellable is Delay for calls that nothing interrupts, as it is with most of
// Windows' calls and with drivers that don't answer. Such a call returns when d is
// over, whatever has become of its caller's context, and has done its work then. One
// that is under way when ResetRules is called goes on at once.
func (g *gate) DelayUncancellable(m Match, d time.Duration) error {
	return g.addRule(m, Effect{DelayUncancellable: d})
}

func (g *gate) addRule(m Match, e Effect) error {
	_, err := g.AddRule(m, e)
	return err
}

// ResetRules ends all rules.
func (g *gate) ResetRules() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.rules {
		if wrong := r.wrong(); wrong != "" {
			g.wrong = append(g.wrong, wrong)
		}
	}
	g.rules = nil
	close(g.reset)
	g.reset = make(chan struct{})
}

// CheckRules ends all rules. It returns an error if a rule with MustFire has never fired, or one with MustNotFire has: a test
// whose fault never comes tests nothing.
func (g *gate) CheckRules() error {
	g.ResetRules()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(g.wrong, "; "))
}

// OnCall has f run before each call of the seam, in the caller's goroutine and
// without any lock, so that f may change the node under the call's feet by
// control calls. A call of the seam from within f runs f again. A nil f ends it.
func (g *gate) OnCall(f func(Call)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = f
}

// Calls returns how often each call was made so far, also if it failed.
func (g *gate) Calls() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.counts)
}
