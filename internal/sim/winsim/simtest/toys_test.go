// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// The calls of a toy operation: each may be made wrongly.
var toyCalls = []string{`C:\`, `C:\Windows`, Kubelet}

const broken = Kubelet + `\toy-broken`

func toyNode(t *testing.T) *winsim.System {
	sys := Open(t, winsim.Delays{})
	Must(t, sys.MkdirAll(Kubelet))
	return sys
}

func TestAtEachCallCanFail(t *testing.T) {
	toys := map[string]func(t *testing.T){
		"no-call": func(t *testing.T) {
			AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
				before(toyNode(t), func(winsim.Call) {})
			})
		},
		"hook-taken-away": func(t *testing.T) {
			AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
				sys := toyNode(t)
				before(sys, func(winsim.Call) {})
				sys.OnCall(nil)
				_, err := sys.FileAttributes(t.Context(), Kubelet)
				Must(t, err)
			})
		},
	}
	for at := range len(toyCalls) + 1 {
		name := fmt.Sprint("broken-at-", at)
		if at == len(toyCalls) {
			name = "sound"
		}
		toys[name] = func(t *testing.T) {
			AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
				sys, met := toyNode(t), ""
				before(sys, func(c winsim.Call) { met = c.Object })
				for i, path := range toyCalls {
					_, err := sys.FileAttributes(t.Context(), path)
					Must(t, err)
					if i == at && met == path {
						t.Error("the toy is broken")
					}
				}
			})
		}
	}
	TryToys(t, toys)
}

// toyAttempt is an operation with a fault at one of its calls; -1 is none.
func toyAttempt(t *testing.T, at int, fault func(ctx context.Context, sys *winsim.System, err error) error) Attempt {
	sys := toyNode(t)
	return Attempt{
		Sys: sys,
		Run: func(ctx context.Context) (any, error) {
			made := 0
			wrap := func(err error) error {
				if made++; made-1 == at {
					return fault(ctx, sys, err)
				}
				return errors.Join(err, ctx.Err())
			}
			// On lines of their own, since ErrorAtEachCall goes by the lines that make calls.
			_, err := sys.FileAttributes(ctx, toyCalls[0])
			if err := wrap(err); err != nil {
				return nil, err
			}
			_, err = sys.FileAttributes(ctx, toyCalls[1])
			if err := wrap(err); err != nil {
				return nil, err
			}
			_, err = sys.FileAttributes(ctx, toyCalls[2])
			if err := wrap(err); err != nil {
				return nil, err
			}
			return "done", nil
		},
		State: func() any { _, err := sys.ReadFile(broken); return err == nil },
		Want:  "done: false",
	}
}

func TestErrorAtEachCallCanFail(t *testing.T) {
	none := ""
	faults := map[string]func(ctx context.Context, sys *winsim.System, err error) error{
		"state": func(ctx context.Context, sys *winsim.System, err error) error {
			if err != nil {
				_ = sys.WriteFile(broken, nil)
			}
			return errors.Join(ctx.Err(), nil)
		},
		"other-error": func(ctx context.Context, _ *winsim.System, err error) error {
			if err != nil {
				return errors.New("the toy is broken")
			}
			return ctx.Err()
		},
		"not-repeatable": func(ctx context.Context, sys *winsim.System, err error) error {
			if _, broke := sys.ReadFile(broken); broke == nil {
				return errors.New("the toy is broken")
			}
			if err != nil {
				_ = sys.WriteFile(broken, nil)
			}
			return errors.Join(err, ctx.Err())
		},
		"given-up": func(ctx context.Context, _ *winsim.System, err error) error {
			if ctx.Err() != nil {
				return errors.New("the toy is broken")
			}
			return err
		},
	}
	toys := make(map[string]func(t *testing.T))
	// The toys' lines must be those of the package whose operations are tried.
	try := func(t *testing.T, change func(*Attempt), at int, name string) {
		const tested = "github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
		errorAtEachCall(t, tested, map[string]func(t *testing.T) Attempt{
			"a sound one": func(t *testing.T) Attempt {
				sys := toyNode(t)
				return Attempt{Sys: sys, Run: func(ctx context.Context) (any, error) { return sys.FileAttributes(ctx, Kubelet) }}
			},
			"broken": func(t *testing.T) Attempt {
				a := toyAttempt(t, at, faults[name])
				change(&a)
				return a
			},
		})
	}
	same := func(*Attempt) {}
	counts := func(a *Attempt) { a.Passed = &none }
	for name := range faults {
		toys["sound-"+name] = func(t *testing.T) { try(t, same, -1, name) }
		for at := range toyCalls {
			toys[fmt.Sprint(name, "-", at)] = func(t *testing.T) { try(t, same, at, name) }
		}
	}
	lost := func(ctx context.Context, _ *winsim.System, _ error) error { return ctx.Err() }
	faults["lost"] = lost
	for at := range toyCalls {
		toys[fmt.Sprint("lost-", at)] = func(t *testing.T) { try(t, counts, at, "lost") }
	}
	toys["sound-counted"] = func(t *testing.T) { try(t, counts, -1, "lost") }
	toys["want"] = func(t *testing.T) { try(t, func(a *Attempt) { a.Want = "undone" }, -1, "lost") }
	toys["did"] = func(t *testing.T) {
		try(t, func(a *Attempt) { a.Did = regexp.MustCompile("done") }, 0, "not-repeatable")
	}
	// An error, or a caller who gives up, leaves a part out of the result, and nothing says so. The
	// repetition has all. Such errors of calls may be allowed, the latter never.
	partly := "GetFileAttributesW partly"
	for name, passed := range map[string]*string{"unsaid": nil, "unsaid-given-up": &partly} {
		if passed != nil && Sampled() {
			continue // the sample has no caller that gives up there
		}
		toys[name] = func(t *testing.T) {
			try(t, func(a *Attempt) {
				a.Run = func(ctx context.Context) (any, error) {
					_, err := a.Sys.FileAttributes(ctx, Kubelet)
					return err == nil && (passed == nil || ctx.Err() == nil), nil
				}
				a.Want, a.Passed = "true: false", passed
			}, -1, "lost")
		}
	}
	toys["goes-on"] = func(t *testing.T) {
		faults["goes-on"] = func(ctx context.Context, sys *winsim.System, _ error) error {
			for range 3 { // two more calls are allowed
				_, _ = sys.FileAttributes(context.WithoutCancel(ctx), Kubelet)
			}
			return ctx.Err()
		}
		try(t, func(a *Attempt) { a.Ends = true }, 0, "goes-on")
	}
	toys["no-call"] = func(t *testing.T) {
		try(t, func(a *Attempt) { a.Run = func(context.Context) (any, error) { return "done", nil } }, -1, "lost")
	}
	TryToys(t, toys)
}

// wantVisited are the settings that a loop over all of them comes to: each fifth one in a sample.
func wantVisited(all iter.Seq[winsim.Settings]) (want []winsim.Settings) {
	i := 0
	for s := range all {
		if i++; !Sampled() || i%5 == 0 {
			want = append(want, s)
		}
	}
	return want
}

func TestEachSettingComes(t *testing.T) {
	for name, loop := range map[string]struct {
		over func(t *testing.T, test func(t *testing.T, settings winsim.Settings))
		all  iter.Seq[winsim.Settings]
	}{
		"EachSetting": {EachSetting, Settings()},
		"EachSwitch":  {EachSwitch, switches(positions())},
	} {
		want := wantVisited(loop.all)
		if len(want) < 6 {
			t.Errorf("%s comes to %d settings", name, len(want))
		}
		var got []winsim.Settings
		t.Run(name, func(t *testing.T) {
			loop.over(t, func(t *testing.T, s winsim.Settings) { got = append(got, s) })
		})
		Want(t, "the settings of "+name, got, want)
	}
	var windowsOf []winsim.Settings
	t.Run("windows", func(t *testing.T) {
		EachSwitch(t, func(t *testing.T, _ winsim.Settings) { windowsOf = append(windowsOf, windows) })
	})
	Want(t, "the switches of nodes", windowsOf, wantVisited(switches(positions())))
	var others []winsim.Settings
	ran := make(map[string]int)
	count := func(t *testing.T) { ran[t.Name()]++; others = append(others, windows) }
	t.Run("others", func(t *testing.T) { OnOtherWindows(t, map[string]func(*testing.T){"a": count, "b": count}) })
	if others = slices.Compact(others); len(ran) != 10 || len(others) != 5 || slices.Contains(others, winsim.Settings{}) {
		t.Errorf("OnOtherWindows runs %v on %+v", ran, others)
	}
	Want(t, "the switches afterwards", windows, winsim.Settings{})
}

// What fails in the last of the settings fails the test.
func TestEachSettingCanFail(t *testing.T) {
	fails := func(want winsim.Settings) func(t *testing.T, s winsim.Settings) {
		return func(t *testing.T, s winsim.Settings) {
			if s == want {
				t.Error("the toy is broken")
			}
		}
	}
	settings, alone := wantVisited(Settings()), wantVisited(switches(positions()))
	TryToys(t, map[string]func(t *testing.T){
		"setting": func(t *testing.T) { EachSetting(t, fails(settings[len(settings)-1])) },
		"switch":  func(t *testing.T) { EachSwitch(t, fails(alone[len(alone)-1])) },
		"sound":   func(t *testing.T) { EachSetting(t, fails(winsim.Settings{FormatInUse: 1})) },
		"windows": func(t *testing.T) {
			OnWindows(t, alone[0], map[string]func(*testing.T){"a": func(t *testing.T) { fails(windows)(t, alone[0]) }})
		},
		"other-windows": func(t *testing.T) {
			OnOtherWindows(t, map[string]func(*testing.T){"a": func(t *testing.T) {
				fails(winsim.Settings{BindFilterInvalid: true})(t, windows)
			}})
		},
	})
}
