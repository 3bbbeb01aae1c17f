// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Each switch refutes the assumption that it is about, and no other one.
func TestQuick(t *testing.T) {
	simtest.EachSwitch(t, func(t *testing.T, settings winsim.Settings) {
		if settings.NoAutomount {
			t.Skip("csi-proxy-wintest refuses such a Windows")
		}
		var want []string
		for row, refuted := range map[string]bool{
			"volume-of-partition": settings.NoPartitionDevices || settings.PartitionsNamedByDevice,
			"mount-held":          settings.MountManagerExclusive,
			"unstage-locked":      settings.LockedMountPoint != 0,
			"grow":                settings.FreshHandleToExtend,
			"offline-locked":      settings.OfflineRefusesLocked,
		} {
			if refuted {
				want = append(want, row)
			}
		}
		var seen string
		synctest.Test(t, func(t *testing.T) {
			got, output := quick(t, newFixture(t))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("refuted (-want +got):\n%s\n%s", diff, output)
			}
			seen = output
		})
		if refused := settings.RefusedAtFirst; refused != 0 && !strings.Contains(seen, "before: "+refused.Error()) {
			t.Errorf("the refusals aren't told:\n%s", seen)
		}
	})
}

// A failure at any call of Windows leaves nothing behind, and doesn't keep the other assumptions from being tested.
func TestQuickWithErrors(t *testing.T) {
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		f := newFixture(t)
		sys := f.System.(*winsim.System)
		before(sys, func(c winsim.Call) {
			simtest.Must(t, sys.Fail(winsim.Match{Call: c.Name, Object: c.Object, Count: 1}, winerr.ErrorInvalidParameter))
		})
		refuted, output := quick(t, f)
		if len(refuted) > 3 {
			t.Errorf("one error refutes %q\n%s", refuted, output)
		}
	})
}

// quick runs the quick test, and returns the rows that it refutes and its output. No mount point may be left.
func quick(t *testing.T, f *seamtest.Fixture) (refuted []string, output string) {
	t.Helper()
	f.Settle = nil // as on Windows, where only time shows what is done
	seamtest.RunQuick(t, seamtest.Config{New: func(*testing.T) *seamtest.Fixture { return f }}, func(row string, test func(testing.TB)) {
		p := &part{TB: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			test(p)
		}()
		<-ended
		for _, f := range slices.Backward(p.cleanups) {
			f()
		}
		if p.failed {
			refuted = append(refuted, row)
		}
		output += row + ":\n" + p.output
	})
	for _, name := range []string{"mount", "unmount"} {
		a, err := f.System.FileAttributes(t.Context(), f.Directory+`\`+name)
		if err == nil && a&win.AttributeReparsePoint != 0 {
			t.Errorf("%s is left mounted\n%s", name, output)
		}
	}
	return refuted, output
}

// part is a test within a test that may fail.
type part struct {
	testing.TB
	failed   bool
	output   string
	cleanups []func()
}

func (p *part) Helper()                           {}
func (p *part) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }
func (p *part) Logf(format string, args ...any)   { p.output += fmt.Sprintf("\t"+format+"\n", args...) }
func (p *part) Errorf(format string, args ...any) { p.failed = true; p.Logf(format, args...) }
func (p *part) Error(args ...any)                 { p.Errorf("%s", fmt.Sprint(args...)) }
func (p *part) Fatal(args ...any)                 { p.Error(args...); runtime.Goexit() }
func (p *part) Fatalf(format string, args ...any) { p.Errorf(format, args...); runtime.Goexit() }
func (p *part) Skip(args ...any)                  { p.Logf("%s", fmt.Sprint(args...)); runtime.Goexit() }
func (p *part) Skipf(format string, args ...any)  { p.Logf(format, args...); runtime.Goexit() }
