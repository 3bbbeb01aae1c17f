// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// rehearsals are operations that can be done over and over.
var rehearsals = map[string]func(ctx context.Context, f *nodeops.Filesystem) error{
	"PathExists": func(ctx context.Context, f *nodeops.Filesystem) error {
		_, err := f.PathExists(ctx, kubelet+`\link\deep\mnt`)
		return err
	},
	"IsSymlink": func(ctx context.Context, f *nodeops.Filesystem) error {
		_, err := f.IsSymlink(ctx, kubelet+`\link\deep\mnt`)
		return err
	},
	"IsSymlink of a link": func(ctx context.Context, f *nodeops.Filesystem) error {
		_, err := f.IsSymlink(ctx, kubelet+`\link`)
		return err
	},
	"Mkdir": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.Mkdir(ctx, kubelet+`\link\new\a`)
	},
	"Mkdir of a link": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.Mkdir(ctx, kubelet+`\link`)
	},
	"Rmdir": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.Rmdir(ctx, kubelet+`\gone`, true)
	},
	"Rmdir of an empty directory": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.Rmdir(ctx, kubelet+`\empty`, true)
	},
	"RmdirContents": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.RmdirContents(ctx, kubelet+`\gone`)
	},
	"CreateSymlink": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.CreateSymlink(ctx, kubelet+`\link`, kubelet+`\new`)
	},
	"CreateSymlink where the link is": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.CreateSymlink(ctx, kubelet+`\x`, kubelet+`\link`)
	},
	"Unlink": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.Unlink(ctx, parse(kubelet+`\link`))
	},
	"Unlink of an empty directory": func(ctx context.Context, f *nodeops.Filesystem) error {
		return f.Unlink(ctx, parse(kubelet+`\empty`))
	},
	"UnlinkIf": func(ctx context.Context, f *nodeops.Filesystem) error {
		_, err := f.UnlinkIf(ctx, parse(kubelet+`\link`), func(context.Context, pathpolicy.Link) (bool, error) { return true, nil })
		return err
	},
}

// stage starts a node for a rehearsal.
func stageFiles(t *testing.T) (*winsim.System, *nodeops.Filesystem) {
	t.Helper()
	sys := newFileNode(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(kubelet+`\x\deep`))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\x`, true))
	mount(t, sys, kubelet+`\x\deep\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\empty`))
	must(t, sys.MkdirAll(kubelet+`\gone\sub\empty`))
	must(t, sys.WriteFile(kubelet+`\gone\sub\file`, nil))
	must(t, sys.Junction(kubelet+`\gone\link`, kubelet))
	mount(t, sys, kubelet+`\gone\mnt`, volume)
	return sys, newFilesystem(t, sys)
}

// atEachCall has something happen at each call to Windows of each rehearsal, and tells check
// what came of it: the error, and how many calls followed. Nothing is left open, and the repeated
// operation succeeds and leads to the same.
func atEachCallOfFiles(t *testing.T, happens func(t *testing.T, sys *winsim.System, c winsim.Call, cancel func()),
	check func(err error, followed int) bool) {
	for name, run := range rehearsals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sys, f := stageFiles(t)
			must(t, run(t.Context(), f))
			after := tree(t, sys, kubelet)
			simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
				sys, f := stageFiles(t)
				ctx, cancel := context.WithCancel(t.Context()) // to its end, also without its caller
				var at winsim.Call
				made := 0
				before(sys, func(c winsim.Call) {
					at, made = c, callsMade(sys)
					happens(t, sys, c, cancel)
				})
				err := run(ctx, f)
				cancel()
				followed := callsMade(sys) - made - 1
				sys.OnCall(nil)
				if at.Name != "" && !check(err, followed) {
					t.Errorf("%v: %v, after %d further calls", at, err, followed)
				}
				if open := sys.OpenHandles(); len(open) > 0 {
					t.Errorf("%v: still open: %q", at, open)
				}
				simtest.WantErrorOf(t, fmt.Sprintf("%v: repeated", at), run(t.Context(), f), nil)
				simtest.Want(t, fmt.Sprintf("%v: repeated", at), tree(t, sys, kubelet), after)
			})
		})
	}
}

// callsMade returns how many calls to Windows a node was asked for.
func callsMade(sys *winsim.System) (n int) {
	for _, of := range sys.Calls() {
		n += of
	}
	return n
}

func TestEachCallFails(t *testing.T) {
	atEachCallOfFiles(t, func(t *testing.T, sys *winsim.System, c winsim.Call, _ func()) {
		must(t, sys.Fail(winsim.Match{Call: c.Name, Count: 1}, winerr.ErrorIODevice))
	}, func(err error, _ int) bool {
		number, _ := csiproxy.WindowsErrorOf(err)
		return number == uint32(winerr.ErrorIODevice) && csiproxy.KindOf(err) == csiproxy.ErrUnavailable
	})
}

// The operation ends with its context: one more call is to clean up, and another may be what
// a test of that cancels.
func TestEachCallCancelled(t *testing.T) {
	atEachCallOfFiles(t, func(_ *testing.T, _ *winsim.System, _ winsim.Call, cancel func()) {
		cancel()
	}, func(err error, followed int) bool {
		return followed <= 1 && (errors.Is(err, context.Canceled) || err == nil && followed == 0)
	})
}

// A toy is an operation of three steps, one of which does harm if it is interrupted. Both tests notice
// that, at whichever step.
func TestEachInterruptionIsNoticed(t *testing.T) {
	type step = func(ctx context.Context) error
	ask := func(f *nodeops.Filesystem) step {
		return func(ctx context.Context) error {
			_, err := f.IsSymlink(ctx, kubelet+`\link`) // which takes several calls
			return err
		}
	}
	faults := map[string]func(ctx context.Context, f *nodeops.Filesystem, do step) error{
		"goes-on": func(ctx context.Context, f *nodeops.Filesystem, do step) error {
			if do(ctx) == nil {
				return nil
			}
			ctx = context.WithoutCancel(ctx)
			return errors.Join(ask(f)(ctx), ask(f)(ctx)) // one call more is allowed, two aren't
		},
		"half-done": func(ctx context.Context, f *nodeops.Filesystem, do step) error {
			err := do(ctx)
			if err != nil {
				return errors.Join(err, f.Mkdir(context.WithoutCancel(ctx), kubelet+`\left`))
			}
			return nil
		},
		"other-error": func(ctx context.Context, _ *nodeops.Filesystem, do step) error {
			if do(ctx) != nil {
				return errors.New("the toy is broken")
			}
			return nil
		},
	}
	const steps = 3
	toys := make(map[string]func(t *testing.T))
	for what, fault := range faults {
		for name, test := range map[string]func(*testing.T){"fails": TestEachCallFails, "cancelled": TestEachCallCancelled} {
			for at := range steps + 1 {
				toy := func(ctx context.Context, f *nodeops.Filesystem) (err error) {
					for i := 0; i < steps && err == nil; i++ {
						if i == at {
							err = fault(ctx, f, ask(f))
						} else {
							err = ask(f)(ctx)
						}
					}
					return err
				}
				title := fmt.Sprintf("broken-at-%d-%s-%s", at, what, name)
				if at == steps {
					title = "sound-" + what + "-" + name
				}
				toys[title] = func(t *testing.T) {
					rehearsals = map[string]func(context.Context, *nodeops.Filesystem) error{"toy": toy}
					test(t)
				}
			}
		}
	}
	simtest.TryToys(t, toys)
}
