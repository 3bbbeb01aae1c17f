// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Errors are errors of Windows, one of each class: the device has left, the device isn't ready,
// another process uses the device, the device fails, access is denied, and an unknown number.
var Errors = []winerr.Errno{
	winerr.ErrorDeviceNotConnected, winerr.ErrorNotReady, winerr.ErrorSharingViolation, sick, winerr.ErrorAccessDenied,
	winerr.Errno(1337),
}

const sick = winerr.ErrorIODevice

// Attempt is an operation on a node that was made ready for it.
type Attempt struct {
	Sys   *winsim.System
	Run   func(ctx context.Context) (result any, err error)
	State func() any // what it has changed on the node; nil if nothing
	Want  string     // the result and the state, separated by a colon, if no call fails; "" if any are right
	// Did matches the parts of the result that say what the operation has changed. A repeated call
	// may have changed nothing. nil if the result has no such parts.
	Did *regexp.Regexp
	// Passed lists the calls that may fail once in an operation that succeeds, such as
	// "CreateFileW, 2 FlushFileBuffers". A call is followed by " partly" if its failure costs a part
	// of the result. If Passed is nil, any call may fail once, but none may cost a part.
	Passed *string
	// Ends is set if an operation makes at most two calls, which clean up, after its caller has
	// given up, and leaves no handle open. If the mount manager opens directories alone, the
	// operation opens and checks the directory again in two more calls.
	Ends bool
}

// ErrUnknown is the error of an attempt whose result says that not all is known.
var ErrUnknown = errors.New("not all is known")

// ErrorAtEachCall tries operations: each on a new node, and then on one where a call to Windows
// fails, once or from then on, or where its caller gives up at that call, for each call that it
// makes. Each time it has an error, or the result and the state that it has without, apart from
// what Passed allows. Otherwise its repetition has them once no call fails any more.
//
// The caller gives up at the first of the calls that are made by the same lines of the tested
// package, and that call fails once, and always, with each of Errors. The others fail once with
// one of them; with Passed, with each of them. In a sample, the first ones fail with one of them, and
// the others don't; with Passed, all fail once with one of them.
func ErrorAtEachCall(t *testing.T, operations map[string]func(t *testing.T) Attempt) {
	caller, _, _, _ := runtime.Caller(1)
	tested, _, _ := strings.Cut(runtime.FuncForPC(caller).Name(), "_test.")
	errorAtEachCall(t, tested, operations)
}

func errorAtEachCall(t *testing.T, tested string, operations map[string]func(t *testing.T) Attempt) {
	seen := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		t.Run(name, func(t *testing.T) {
			var calls []call
			var ways []string
			var wanted *string
			ends := false
			var without outcome
			synctest.Test(t, func(t *testing.T) {
				a := operations[name](t)
				wanted, ends = a.Passed, a.Ends
				a.onCall("", func(c call, _ winsim.Call) {
					calls, ways = append(calls, c), append(ways, wayTo(tested))
				})
				var err error
				without, err = a.run(t.Context())
				Must(t, err)
				if got := without.Result + ": " + without.State; a.Want != "" && got != a.Want {
					t.Errorf("%s, want %s", got, a.Want)
				}
			})
			if len(calls) == 0 {
				t.Error("the operation makes no call to Windows")
			}
			passed := make(map[string]int)
			for i, at := range calls {
				first := !seen[ways[i]]
				seen[ways[i]] = true
				errnos := Errors
				switch {
				case wanted != nil && Sampled():
					first, errnos = false, []winerr.Errno{sick}
				case wanted == nil && Sampled() && !first:
					continue
				case wanted == nil && (Sampled() || !first):
					errnos = []winerr.Errno{Errors[i%len(Errors)]}
				}
				var mishaps []mishap
				if first || ends {
					mishaps = append(mishaps, mishap{call: at})
				}
				for _, errno := range errnos {
					mishaps = append(mishaps, mishap{at, errno, 1})
					if first {
						mishaps = append(mishaps, mishap{at, errno, 0})
					}
				}
				for _, m := range mishaps {
					synctest.Test(t, func(t *testing.T) { operations[name](t).meets(t, m, without, passed) })
				}
			}
			if got := list(passed); wanted != nil && got != *wanted {
				t.Errorf("errors of %q don't reach the caller, want %q", got, *wanted)
			}
		})
	}
}

// call identifies a call of an operation. A number within the operation can't identify a call,
// because concurrent calls come in any order.
type call struct {
	name, object string
	before       int // how many such calls come before it
}

// mishap is that a call fails so many times, or always if times is 0; or that the caller gives up
// then, if errno is 0.
type mishap struct {
	call
	errno winerr.Errno
	times int
}

// outcome is what an operation has done.
type outcome struct{ Result, State string }

var guids = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// text is what a value is on each node that was made ready in the same way.
func text(v any) string { return guids.ReplaceAllString(fmt.Sprintf("%+v", v), "GUID") }

// onCall has f run before each call of a name, or before all if it is "", one after the other.
func (a Attempt) onCall(name string, f func(call, winsim.Call)) {
	a.Sys.Settle()
	var ids []string
	for i, v := range a.Sys.Volumes() {
		ids = append(ids, guids.FindString(v.Name), fmt.Sprint("volume ", i))
	}
	known := strings.NewReplacer(ids...)
	var mu sync.Mutex // an operation may make several calls at one time
	made := make(map[call]int)
	a.Sys.OnCall(func(c winsim.Call) {
		if name != "" && c.Name != name {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		which := call{name: c.Name, object: text(known.Replace(c.Object))}
		made[which]++
		which.before = made[which] - 1
		f(which, c)
	})
}

func (a Attempt) run(ctx context.Context) (o outcome, err error) {
	result, err := a.Run(ctx)
	synctest.Wait() // for what a caller who gave up has begun
	a.Sys.OnCall(nil)
	a.Sys.ResetRules()
	a.Sys.Settle()
	o.Result, o.State = text(result), text(nil)
	if a.State != nil {
		o.State = text(a.State())
	}
	return o, err
}

// meets tries an operation of which a call fails, or whose caller gives up then.
func (a Attempt) meets(t *testing.T, m mishap, without outcome, passed map[string]int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	met, made, followed, run := false, 0, 0, a.Run
	a.Run = func(ctx context.Context) (any, error) {
		result, err := run(ctx)
		followed = callsMade(a.Sys) - made
		return result, err
	}
	a.onCall(m.name, func(which call, c winsim.Call) {
		if which != m.call {
			return
		}
		met, made = true, callsMade(a.Sys)
		if m.errno == 0 {
			cancel()
		} else {
			Must(t, a.Sys.Fail(winsim.Match{Call: c.Name, Object: c.Object, Count: m.times}, m.errno))
		}
	})
	got, err := a.run(ctx)
	counted := a.Passed != nil && m.errno == sick && m.times == 1
	if !met {
		t.Errorf("%+v: the call isn't made", m)
	}
	mostFollowing := 2
	if windows.MountManagerExclusive {
		mostFollowing = 4
	}
	if open := a.Sys.OpenHandles(); a.Ends && (len(open) > 0 || m.errno == 0 && followed > mostFollowing) {
		t.Errorf("%+v: %d calls follow, and these handles stay open: %q", m, followed, open)
	}
	switch {
	case err == nil && got == without:
		if counted {
			passed[m.name]++
		}
		return
	case err == nil && a.Passed != nil && m.errno != 0:
		if counted {
			passed[m.name+" partly"]++
		}
	case err == nil:
		t.Errorf("%+v, and the operation has no error (-want +got):\n%s", m, cmp.Diff(without, got))
		return
	case errors.Is(err, ErrUnknown): // which is no error of a call
	case m.times == 0 && (m.errno.Gone() || m.errno == winerr.ErrorNotReady) &&
		csiproxy.KindOf(err) == csiproxy.ErrNotFound: // what is always gone, or never ready, isn't there
	case m.times == 1 && csiproxy.KindOf(err) == csiproxy.ErrUnavailable:
	// A disk that identified itself before and now refuses counts as another disk.
	case m.errno == 0 && !errors.Is(err, context.Canceled),
		m.errno != 0 && !strings.Contains(err.Error(), m.errno.Error()) &&
			!strings.Contains(err.Error(), "was changed by somebody else"):
		t.Errorf("%+v, and the operation has the error %v", m, err)
	}
	got, err = a.run(t.Context())
	if a.Did != nil {
		got.Result, without.Result = a.Did.ReplaceAllString(got.Result, ""), a.Did.ReplaceAllString(without.Result, "")
	}
	if err != nil {
		t.Errorf("%+v, and the operation, when repeated, has %v", m, err)
	} else if diff := cmp.Diff(without, got); diff != "" {
		t.Errorf("%+v, and the operation is repeated (-want +got):\n%s", m, diff)
	}
}

// callsMade returns how many calls to Windows a node was asked for.
func callsMade(sys *winsim.System) (n int) {
	for _, of := range sys.Calls() {
		n += of
	}
	return n
}

// list returns the names of calls, with their numbers.
func list(calls map[string]int) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if calls[name] > 1 {
			name = fmt.Sprintf("%d %s", calls[name], name)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// State is what a node has of disks, volumes and mount points, as a text.
func State(sys *winsim.System) any {
	var b strings.Builder
	for _, d := range sys.Disks() {
		fmt.Fprintln(&b, "disk", d.Number, d.State, d.Seen, d.Attributes)
	}
	for _, v := range sys.Volumes() {
		fmt.Fprintf(&b, "%+v\n", v)
	}
	fmt.Fprintln(&b, sys.MountPoints())
	return b.String()
}

// wayTo returns the lines of a package by which the caller was called.
func wayTo(pkg string) (way string) {
	var pcs [100]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasPrefix(f.Function, pkg+".") {
			way += fmt.Sprint(f.File, f.Line)
		}
	}
	return way
}
