// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/files"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// rehearsals are operations that can be done over and over.
var rehearsals = map[string]func(ctx context.Context, f *files.Filesystem) error{
	"PathExists": func(ctx context.Context, f *files.Filesystem) error {
		_, err := f.PathExists(ctx, kubelet+`\link\deep\mnt`)
		return err
	},
	"IsSymlink": func(ctx context.Context, f *files.Filesystem) error {
		_, err := f.IsSymlink(ctx, kubelet+`\link\deep\mnt`)
		return err
	},
	"IsSymlink of a link": func(ctx context.Context, f *files.Filesystem) error {
		_, err := f.IsSymlink(ctx, kubelet+`\link`)
		return err
	},
	"Mkdir": func(ctx context.Context, f *files.Filesystem) error {
		return f.Mkdir(ctx, kubelet+`\link\new\a`)
	},
	"Mkdir of a link": func(ctx context.Context, f *files.Filesystem) error {
		return f.Mkdir(ctx, kubelet+`\link`)
	},
	"Rmdir": func(ctx context.Context, f *files.Filesystem) error {
		return f.Rmdir(ctx, kubelet+`\gone`, true)
	},
	"Rmdir of an empty directory": func(ctx context.Context, f *files.Filesystem) error {
		return f.Rmdir(ctx, kubelet+`\empty`, true)
	},
	"RmdirContents": func(ctx context.Context, f *files.Filesystem) error {
		return f.RmdirContents(ctx, kubelet+`\gone`)
	},
	"CreateSymlink": func(ctx context.Context, f *files.Filesystem) error {
		return f.CreateSymlink(ctx, kubelet+`\link`, kubelet+`\new`)
	},
	"CreateSymlink where the link is": func(ctx context.Context, f *files.Filesystem) error {
		return f.CreateSymlink(ctx, kubelet+`\x`, kubelet+`\link`)
	},
	"Unlink": func(ctx context.Context, f *files.Filesystem) error { return f.Unlink(ctx, parse(kubelet+`\link`)) },
	"Unlink of an empty directory": func(ctx context.Context, f *files.Filesystem) error {
		return f.Unlink(ctx, parse(kubelet+`\empty`))
	},
	"UnlinkIf": func(ctx context.Context, f *files.Filesystem) error {
		_, err := f.UnlinkIf(ctx, parse(kubelet+`\link`), func(context.Context) (bool, error) { return true, nil })
		return err
	},
}

// stage starts a node for a rehearsal.
func stage(t *testing.T) (*winsim.System, *files.Filesystem) {
	t.Helper()
	sys := newNode(t)
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
// what came of it: of how many calls it was which, and how many followed. Nothing is left
// open, and the repeated operation succeeds and leads to the same.
func atEachCall(t *testing.T, happens func(t *testing.T, sys *winsim.System, c winsim.Call, cancel func()),
	check func(err error, at, calls, followed int) bool) {
	for name, run := range rehearsals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sys, f := stage(t)
			var calls []string
			simtest.BeforeCalls(sys, func(_ int, c winsim.Call) { calls = append(calls, c.Name) })
			err := run(t.Context(), f)
			sys.OnCall(nil)
			must(t, err)
			after := tree(t, sys, kubelet)
			for i, call := range calls {
				sys, f := stage(t)
				ctx, cancel := context.WithCancel(operation.Inline(t.Context())) // to its end, also without its caller
				last := 0
				simtest.BeforeCalls(sys, func(j int, c winsim.Call) {
					if last = j; i == j {
						happens(t, sys, c, cancel)
					}
				})
				err := run(ctx, f)
				cancel()
				sys.OnCall(nil)
				if !check(err, i, len(calls), last-i) {
					t.Errorf("call %d, %s: %v, after %d further calls", i, call, err, last-i)
				}
				if open := sys.OpenHandles(); len(open) > 0 {
					t.Errorf("call %d, %s: still open: %q", i, call, open)
				}
				simtest.WantErrorOf(t, fmt.Sprintf("call %d, %s: repeated", i, call), run(t.Context(), f), nil)
				simtest.Want(t, fmt.Sprintf("call %d, %s: repeated", i, call), tree(t, sys, kubelet), after)
			}
		})
	}
}

func TestEachCallFails(t *testing.T) {
	atEachCall(t, func(t *testing.T, sys *winsim.System, c winsim.Call, _ func()) {
		must(t, sys.Fail(winsim.Match{Call: c.Name, Count: 1}, win.ErrorIODevice))
	}, func(err error, _, _, _ int) bool {
		number, _ := csiproxy.WindowsErrorOf(err)
		return number == uint32(win.ErrorIODevice) && csiproxy.KindOf(err) == csiproxy.ErrUnavailable
	})
}

// The operation ends with its context: one more call is to clean up, and another may be what
// a test of that cancels.
func TestEachCallCancelled(t *testing.T) {
	atEachCall(t, func(_ *testing.T, _ *winsim.System, _ winsim.Call, cancel func()) {
		cancel()
	}, func(err error, at, calls, followed int) bool {
		return followed <= 1 && (errors.Is(err, context.Canceled) || err == nil && at == calls-1)
	})
}
