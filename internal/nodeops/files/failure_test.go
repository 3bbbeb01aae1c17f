// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files_test

import (
	"context"
	"errors"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/files"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/google/go-cmp/cmp"
)

// rehearsal is an operation that can be done over and over.
type rehearsal struct {
	prepare func(t *testing.T, sys *winsim.System, volume string)
	run     func(ctx context.Context, f *files.Filesystem) error
}

var rehearsals = map[string]rehearsal{
	"PathExists": {
		func(*testing.T, *winsim.System, string) {},
		func(ctx context.Context, f *files.Filesystem) error {
			_, err := f.PathExists(ctx, kubelet+`\link\deep\mnt`)
			return err
		},
	},
	"IsSymlink": {
		func(*testing.T, *winsim.System, string) {},
		func(ctx context.Context, f *files.Filesystem) error {
			_, err := f.IsSymlink(ctx, kubelet+`\link\deep\mnt`)
			return err
		},
	},
	"IsSymlink of a link": {
		func(*testing.T, *winsim.System, string) {},
		func(ctx context.Context, f *files.Filesystem) error {
			_, err := f.IsSymlink(ctx, kubelet+`\link`)
			return err
		},
	},
	"Mkdir": {
		func(*testing.T, *winsim.System, string) {},
		func(ctx context.Context, f *files.Filesystem) error { return f.Mkdir(ctx, kubelet+`\link\new\a`) },
	},
	"Mkdir of a link": {
		func(*testing.T, *winsim.System, string) {},
		func(ctx context.Context, f *files.Filesystem) error { return f.Mkdir(ctx, kubelet+`\link`) },
	},
	"Rmdir": {
		garden1,
		func(ctx context.Context, f *files.Filesystem) error { return f.Rmdir(ctx, kubelet+`\gone`, true) },
	},
	"Rmdir of an empty directory": {
		func(t *testing.T, sys *winsim.System, volume string) { must(t, sys.MkdirAll(kubelet+`\gone`)) },
		func(ctx context.Context, f *files.Filesystem) error { return f.Rmdir(ctx, kubelet+`\gone`, true) },
	},
	"RmdirContents": {
		garden1,
		func(ctx context.Context, f *files.Filesystem) error {
			return f.RmdirContents(ctx, kubelet+`\gone`)
		},
	},
	"CreateSymlink": {
		func(*testing.T, *winsim.System, string) {},
		func(ctx context.Context, f *files.Filesystem) error {
			return f.CreateSymlink(ctx, kubelet+`\link`, kubelet+`\new`)
		},
	},
}

func garden1(t *testing.T, sys *winsim.System, volume string) {
	must(t, sys.MkdirAll(kubelet+`\gone\sub\empty`))
	must(t, sys.WriteFile(kubelet+`\gone\sub\file`, nil))
	must(t, sys.Junction(kubelet+`\gone\link`, kubelet))
	mount(t, sys, kubelet+`\gone\mnt`, volume)
}

// stage starts a node for a rehearsal.
func (r rehearsal) stage(t *testing.T) (*winsim.System, *files.Filesystem) {
	t.Helper()
	sys := newNode(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(kubelet+`\x\deep`))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\x`, true))
	mount(t, sys, kubelet+`\x\deep\mnt`, volume)
	r.prepare(t, sys, volume)
	return sys, newFilesystem(t, sys)
}

// observed returns the operations with an observer of their ends: they may go on
// after the end of the caller's context.
func observed(t *testing.T, sys *winsim.System) (*files.Filesystem, <-chan struct{}) {
	t.Helper()
	p, err := pathpolicy.New(kubelet)
	must(t, err)
	ended := make(chan struct{}, 1)
	return files.New(sys, p, files.Options{
		Runner: operation.NewRunner(func(string, time.Duration, error) { ended <- struct{}{} }),
	}), ended
}

// calls lists what the operation asks of Windows, and what the node is like after
// it.
func (r rehearsal) calls(t *testing.T) (calls []string, after map[string]string) {
	t.Helper()
	sys, f := r.stage(t)
	simtest.BeforeCalls(sys, func(_ int, call winsim.Call) { calls = append(calls, call.Name) })
	err := r.run(t.Context(), f)
	sys.OnCall(nil)
	must(t, err)
	return calls, tree(t, sys, kubelet)
}

// Each call to Windows fails once: the error comes back, nothing is left open, and
// the repeated operation succeeds and leads to the same.
func TestEachCallFails(t *testing.T) {
	for name, r := range rehearsals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, after := r.calls(t)
			for i, call := range calls {
				sys, f := r.stage(t)
				simtest.BeforeCalls(sys, func(j int, c winsim.Call) {
					if i == j {
						must(t, sys.Fail(winsim.Match{Call: c.Name, Count: 1}, win.ErrorIODevice))
					}
				})
				err := r.run(t.Context(), f)
				sys.OnCall(nil)
				if number, _ := csiproxy.WindowsErrorOf(err); number != uint32(win.ErrorIODevice) || !errors.Is(err, csiproxy.ErrUnavailable) {
					t.Errorf("call %d, %s: %v", i, call, err)
				}
				if open := sys.OpenHandles(); len(open) > 0 {
					t.Errorf("call %d, %s: still open: %q", i, call, open)
				}
				if err := r.run(t.Context(), f); err != nil {
					t.Errorf("call %d, %s: repeated: %v", i, call, err)
				}
				if diff := cmp.Diff(after, tree(t, sys, kubelet)); diff != "" {
					t.Errorf("call %d, %s: repeated (-want +got):\n%s", i, call, diff)
				}
			}
		})
	}
}

// The context ends before each call to Windows: the operation ends with its error,
// leaves nothing open, and can be repeated.
func TestEachCallCancelled(t *testing.T) {
	for name, r := range rehearsals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls, after := r.calls(t)
			for i, call := range calls {
				sys, _ := r.stage(t)
				f, ended := observed(t, sys)
				ctx, cancel := context.WithCancel(t.Context())
				made := 0
				simtest.BeforeCalls(sys, func(j int, _ winsim.Call) {
					made++
					if i == j {
						cancel()
					}
				})
				err := r.run(ctx, f)
				<-ended
				sys.OnCall(nil)
				if open := sys.OpenHandles(); len(open) > 0 {
					t.Errorf("call %d, %s: still open: %q", i, call, open)
				}
				// That call and one to clean up; the latter may be what a test of it cancels.
				if made > i+2 {
					t.Errorf("call %d, %s: %d calls were made after it", i, call, made-i-1)
				}
				if !errors.Is(err, context.Canceled) && (err != nil || i < len(calls)-1) {
					t.Errorf("call %d, %s: %v", i, call, err)
				}
				if err := r.run(t.Context(), f); err != nil {
					t.Errorf("call %d, %s: repeated: %v", i, call, err)
				}
				<-ended
				if diff := cmp.Diff(after, tree(t, sys, kubelet)); diff != "" {
					t.Errorf("call %d, %s: repeated (-want +got):\n%s", i, call, diff)
				}
			}
		})
	}
}
