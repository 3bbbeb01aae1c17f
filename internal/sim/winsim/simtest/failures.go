// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Errnos are the errors for FailEachCall: those of Errors, and that the device isn't ready. If tests are
// [Sampled], it is that of a sick device alone.
func Errnos() []win.Errno {
	if Sampled() {
		return []win.Errno{win.ErrorIODevice}
	}
	return append(slices.Clone(Errors), win.ErrorNotReady)
}

// FailEachCall has each call to Windows of an operation fail once, one in each run, on a new node each
// time. The operation returns the error, or another one that is unavailable; or else it isn't disturbed, or
// gives only a part of its result. Afterwards the disks, volumes and mount points are as if no call had
// failed, and so is the result, or they are once the operation is repeated. FailEachCall returns the
// names of the calls whose error the operation doesn't return, such as "CreateFileW, 2 FlushFileBuffers",
// with " partly" behind those that cost a part of the result. Those of without aren't among them.
func FailEachCall(t *testing.T, errno win.Errno, without []string,
	start func(t *testing.T) (sys *winsim.System, operate func(context.Context) (result string, _ error))) string {
	t.Helper()
	var wantedResult, wanted string
	passed := map[string]int{}
	for at, more := -1, true; more && !t.Failed(); at++ { // at first none fails
		synctest.Test(t, func(t *testing.T) {
			sys, operate := start(t)
			sys.Settle()
			var mu sync.Mutex // an operation may make several calls at one time
			var failing string
			calls := 0
			sys.OnCall(func(c winsim.Call) {
				mu.Lock()
				defer mu.Unlock()
				if calls == at {
					failing = c.Name
					Must(t, sys.Fail(winsim.Match{Call: c.Name, Object: c.Object, Count: 1}, errno))
				}
				calls++
			})
			run := func() (string, error) {
				result, err := operate(operation.Inline(t.Context()))
				return guids.ReplaceAllString(result, "GUID"), err
			}
			result, err := run()
			synctest.Wait()
			sys.OnCall(nil)
			sys.ResetRules()
			again := err != nil
			switch {
			case failing == "":
				Must(t, err)
			case err == nil && result == wantedResult:
				passed[failing]++
			case err == nil:
				passed[failing+" partly"]++
				again = true
			case !errors.Is(err, errno) && csiproxy.KindOf(err) != csiproxy.ErrUnavailable:
				t.Errorf("the error is %v", err)
			}
			if at < 0 {
				if wantedResult, wanted = result, state(sys); calls == 0 {
					t.Error("the operation makes no call to Windows")
				}
			}
			if again {
				result, err = run()
				Must(t, err)
			}
			if got := state(sys); got != wanted || result != wantedResult {
				t.Errorf("there is %s\n%s\nand without an error %s\n%s", result, got, wantedResult, wanted)
			}
			if more = at < calls; t.Failed() {
				t.Fatalf("that was with error %d of call %d, %s; the error is %v", uint32(errno), at, failing, err)
			}
		})
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(passed)) {
		if slices.Contains(without, name) {
			continue
		}
		if passed[name] > 1 {
			name = fmt.Sprintf("%d %s", passed[name], name)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

var guids = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// state is what the node has of disks, volumes and mount points, as a text without ids.
func state(sys *winsim.System) string {
	sys.Settle()
	var b strings.Builder
	for _, d := range sys.Disks() {
		fmt.Fprintln(&b, "disk", d.Number, d.State, d.SeenBytes, d.Attributes)
	}
	for _, v := range sys.Volumes() {
		fmt.Fprintf(&b, "%+v\n", v)
	}
	fmt.Fprintln(&b, sys.MountPoints())
	return guids.ReplaceAllString(b.String(), "GUID")
}
