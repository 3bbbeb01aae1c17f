// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// keeping runs a test on a node, in a bubble of synctest, with a policy that keeps its
// directories, and with kubelet\dir\a, which has just been asked for.
func keeping(t *testing.T, test func(t *testing.T, k keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sys, p := newNode(t), newPolicy(t, `C:\work`, `E:\work`)
		k := keeper{sys, p, p.KeepDirectories()}
		t.Cleanup(func() { must(t, k.stop()) })
		must(t, sys.MkdirAll(kubelet+`\dir\a`))
		k.want(t, kubelet+`\dir\a`, true)
		test(t, k)
	})
}

// keepFor is how long a directory is kept.
const keepFor = time.Second

type keeper struct {
	sys  *winsim.System
	p    *pathpolicy.Policy
	stop func() error
}

func (k keeper) want(t *testing.T, path string, want bool) {
	t.Helper()
	if got, err := k.p.Exists(t.Context(), k.sys, mustParse(t, k.p, path)); got != want || err != nil {
		t.Errorf("%s: %v, %v", path, got, err)
	}
}

// kept reports whether something is open.
func (k keeper) kept() bool { return len(k.sys.OpenHandles()) > 0 }

func TestKeptIsUsed(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		opens := simtest.Counted(k.sys, win.CallOpen, win.CallOpenAt)
		k.want(t, kubelet+`\dir`, true)
		k.want(t, kubelet+`\dir\a`, true)
		if n := opens(); n[0] != 0 || n[1] != 2 {
			t.Errorf("two calls take %d opens by path and %d relative ones", n[0], n[1])
		}
	})
}

// What the administrator does to the directory isn't held up, and is seen after a second
// at the latest.
func TestKeptEnds(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			k.want(t, kubelet+`\dir\a`, true)
		}
		if !k.kept() {
			t.Error("it isn't open after 0.9 seconds")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if k.kept() {
			t.Errorf("%q are open after a second, although it is used all the time", k.sys.OpenHandles())
		}
		k.want(t, kubelet+`\dir\a`, true)
		must(t, k.stop())
		if k.kept() {
			t.Errorf("%q are open after stop", k.sys.OpenHandles())
		}
		k.want(t, kubelet+`\dir\a`, true)
		if k.kept() {
			t.Errorf("%q are open after a call after stop", k.sys.OpenHandles())
		}
	})
}

// Without KeepDirectories nothing stays open.
func TestKeptNothing(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	keeper{sys, p, nil}.want(t, kubelet+`\dir`, true)
	if open := sys.OpenHandles(); len(open) > 0 {
		t.Errorf("%q are open", open)
	}
}

func TestKeptIsReplaced(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		must(t, k.sys.Rename(kubelet, `C:\old`, false))
		must(t, k.sys.MkdirAll(kubelet+`\new`))
		k.want(t, kubelet+`\new`, true) // isn't in the old one
		k.want(t, kubelet+`\dir\a`, false)
	})
	keeping(t, func(t *testing.T, k keeper) {
		must(t, k.sys.Rename(kubelet, `C:\old`, false))
		must(t, k.sys.MkdirAll(kubelet))
		time.Sleep(keepFor)
		synctest.Wait()
		k.want(t, kubelet+`\dir\a`, false)
	})
}

func TestKeptIsDeleted(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		must(t, k.sys.MkdirAll(`C:\work\dir`))
		k.want(t, `C:\work\dir`, true)
		must(t, k.sys.Remove(`C:\work\dir`))
		must(t, k.sys.Remove(`C:\work`))
		k.want(t, `C:\work\dir`, false)
		k.want(t, `C:\work`, false)
		must(t, k.sys.MkdirAll(`C:\work\dir`))
		k.want(t, `C:\work\dir`, true)
	})
}

func TestKeptVolumeGoes(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		volume, disk := newVolume(t, k.sys)
		must(t, k.sys.SetVolumeMountPoint(t.Context(), `E:\`, volume))
		must(t, k.sys.MkdirAll(`E:\work\dir`))
		k.want(t, `E:\work\dir`, true)
		must(t, k.sys.DetachDisk(disk))
		k.want(t, `E:\work\dir`, false)
	})
}

// A link that is swapped in below a kept directory is followed or refused as always.
func TestKeptMeetsLink(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		must(t, k.sys.Rename(kubelet+`\dir`, kubelet+`\other`, false))
		must(t, k.sys.Junction(kubelet+`\dir`, `C:\Windows`))
		kept := k.kept() // never behind a bind filter, where each call walks
		for _, name := range []string{`System32`, `none`} {
			_, err := k.p.Exists(t.Context(), k.sys, mustParse(t, k.p, kubelet+`\dir\`+name))
			simtest.WantErrorOf(t, name+" behind a junction outside", err, csiproxy.ErrPermissionDenied)
		}
		if kept && !k.kept() {
			t.Error("a link is no reason to let the directory go")
		}
		k.want(t, kubelet+`\dir`, true)
		must(t, k.sys.Remove(kubelet+`\dir`))
		must(t, k.sys.Junction(kubelet+`\dir`, kubelet+`\other`))
		k.want(t, kubelet+`\dir\a`, true)
		k.want(t, kubelet+`\dir\none`, false)
	})
}

// The root of a mounted volume doesn't stay open: that would keep the volume from being
// taken offline.
func TestKeptNoVolume(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		volume, _ := newVolume(t, k.sys)
		mount(t, k.sys, kubelet+`\mnt`, volume)
		must(t, k.sys.MkdirAll(kubelet+`\mnt\in`))
		must(t, k.sys.Symlink(kubelet+`\mnt\link`, `in`, true))
		var link pathpolicy.Link
		must(t, k.p.Reach(t.Context(), k.sys, mustParse(t, k.p, kubelet+`\mnt\link`), func(e pathpolicy.Entry) error {
			f, err := e.Open(t.Context(), pathpolicy.Look)
			if err == nil {
				link, err = f.Link(t.Context())
			}
			return err
		}))
		before := k.sys.OpenHandles()
		if got, err := k.p.Exists(t.Context(), k.sys, link.Path); !got || err != nil {
			t.Errorf("%s: %v, %v", link.Path, got, err)
		}
		if open := k.sys.OpenHandles(); !slices.Equal(open, before) {
			t.Errorf("%q are open, before it %q", open, before)
		}
	})
}

func TestKeptErrorIsConfirmed(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		fail := winsim.Match{Call: win.CallOpenAt, Count: 1}
		must(t, k.sys.Fail(fail, win.ErrorAccessDenied))
		k.want(t, kubelet+`\dir\a`, true)
		fail.Count = 2
		must(t, k.sys.Fail(fail, win.ErrorAccessDenied))
		_, err := k.p.Exists(t.Context(), k.sys, mustParse(t, k.p, kubelet+`\dir\a`))
		simtest.WantErrorOf(t, "an error that stays", err, win.ErrorAccessDenied)
		if k.kept() {
			t.Errorf("%q are open after an error", k.sys.OpenHandles())
		}
	})
}

// That a directory can't be kept doesn't concern the call that has its answer.
func TestKeptCannotBeOpened(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		time.Sleep(keepFor)
		synctest.Wait()
		must(t, k.sys.Fail(winsim.Match{Call: win.CallOpen, Skip: 1, Count: 1}, win.ErrorAccessDenied))
		k.want(t, kubelet+`\dir\a`, true)
		if k.kept() {
			t.Errorf("%q are open", k.sys.OpenHandles())
		}
		k.want(t, kubelet+`\dir\a`, true)
		if !k.kept() {
			t.Error("the next call doesn't keep it")
		}
	})
}

// A directory that is let go during a call is closed when the call has ended.
func TestKeptIsLetGoInUse(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		simtest.BeforeCalls(k.sys, func(int, winsim.Call) { must(t, k.stop()) })
		opens := simtest.Counted(k.sys, win.CallOpen)
		k.want(t, kubelet+`\dir\a`, true)
		k.sys.OnCall(nil)
		simtest.Want(t, "opens during the call", opens()[0], 0)
		if k.kept() {
			t.Errorf("%q are open", k.sys.OpenHandles())
		}
	})
}

// Of two calls that fail, the second doesn't let go what was kept since the first.
func TestKeptIsLetGoOnce(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		simtest.BeforeCalls(k.sys, func(int, winsim.Call) {
			k.sys.OnCall(nil)
			k.want(t, kubelet+`\none`, false)
			k.want(t, kubelet+`\dir`, true)
			must(t, k.sys.Fail(winsim.Match{Call: win.CallOpenAt, Count: 1}, win.ErrorAccessDenied))
		})
		k.want(t, kubelet+`\dir\a`, true)
		opens := simtest.Counted(k.sys, win.CallOpen)
		k.want(t, kubelet+`\dir\a`, true)
		if n, open := opens(), k.sys.OpenHandles(); n[0] != 0 || len(open) != 1 {
			t.Errorf("%q are open, after %d more opens", open, n[0])
		}
	})
}

// A directory that is kept is in nobody's way.
func TestKeptTakesNoPartInSharing(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		held, err := k.sys.Hold(kubelet, win.OpenOptions{
			Access: win.FileListDirectory | win.Delete, Disposition: win.FileOpen, Options: win.FileDirectoryFile,
		})
		must(t, err)
		must(t, held.Close())
	})
}

// What happens while a call opens the directory to keep it comes first.
func TestKeptMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, k keeper)
		open      int // afterwards
	}{
		"stop":         {func(t *testing.T, k keeper) { must(t, k.stop()) }, 0},
		"another call": {func(t *testing.T, k keeper) { k.want(t, kubelet+`\dir`, true) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			keeping(t, func(t *testing.T, k keeper) {
				time.Sleep(keepFor)
				synctest.Wait()
				simtest.BeforeCalls(k.sys, func(i int, _ winsim.Call) {
					if i == 2 { // after the directory and the path in it
						k.sys.OnCall(nil)
						c.meanwhile(t, k)
					}
				})
				k.want(t, kubelet+`\dir\a`, true)
				if open := k.sys.OpenHandles(); len(open) != c.open {
					t.Errorf("%q are open", open)
				}
			})
		})
	}
}

func TestKeptByManyCalls(t *testing.T) {
	keeping(t, func(t *testing.T, k keeper) {
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				for range 20 {
					k.want(t, kubelet+`\dir\a`, true)
					k.want(t, kubelet+`\none`, false) // lets it go
				}
			})
		}
		calls.Wait()
	})
}
