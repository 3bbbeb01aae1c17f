// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// atDirectory opens the directory at path and calls f.
func atDirectory(t *testing.T, sys *winsim.System, path string, f func(dir *pathpolicy.File) error) error {
	t.Helper()
	p := newPolicy(t)
	return p.Hold(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
		dir, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpen))
		if err != nil {
			return err
		}
		return f(dir)
	})
}

func mountedAt(t *testing.T, sys *winsim.System, path string) string {
	name, err := sys.VolumeNameForMountPoint(t.Context(), path+`\`)
	if err != nil && !errors.Is(err, winerr.ErrorNotAReparsePoint) && !errors.Is(err, winerr.ErrorFileNotFound) &&
		!errors.Is(err, winerr.ErrorPathNotFound) {
		t.Fatal(err)
	}
	return name
}

// While the mount manager has the last directory for itself, somebody removes that, and
// tries to lead the path elsewhere by making the directory above a link.
func TestMountManagerIsNotLedAway(t *testing.T) {
	const pod, victim = kubelet + `\pod`, `C:\victim`
	for name, c := range map[string]struct {
		call    string
		prepare func(sys *winsim.System, volume string)
		do      func(dir *pathpolicy.File, volume string) error
		outside bool // whether the volume is mounted at the victim before and after
	}{
		"mount": {
			win.CallSetVolumeMountPoint,
			func(sys *winsim.System, volume string) { must(t, sys.MkdirAll(victim+`\mnt`)) },
			func(dir *pathpolicy.File, volume string) error { return dir.Mount(t.Context(), volume) },
			false,
		},
		"unmount": {
			win.CallDeleteVolumeMountPoint,
			func(sys *winsim.System, volume string) {
				mount(t, sys, pod+`\mnt`, volume)
				mount(t, sys, victim+`\mnt`, volume)
			},
			func(dir *pathpolicy.File, volume string) error { return dir.Unmount(t.Context()) },
			true,
		},
	} {
		for _, refusal := range []winerr.Errno{winerr.ErrorSharingViolation, winerr.ErrorAccessDenied} {
			t.Run(fmt.Sprintf("%s/%d", name, refusal), func(t *testing.T) {
				sys := newNode(t)
				must(t, sys.Fail(winsim.Match{Call: c.call, Count: 1}, refusal))
				volume, _ := newVolume(t, sys)
				must(t, sys.MkdirAll(pod+`\mnt`))
				c.prepare(sys, volume)
				calls, removed := 0, false
				sys.OnCall(func(call winsim.Call) {
					if call.Name != c.call {
						return
					}
					if calls++; calls == 2 { // now the directory isn't held
						removed = sys.Remove(pod+`\mnt`) == nil
						_ = sys.SetReparsePoint(pod, win.NewJunction(victim))
					}
				})
				err := atDirectory(t, sys, pod+`\mnt`, func(dir *pathpolicy.File) error { return c.do(dir, volume) })
				sys.OnCall(nil)
				if !removed {
					t.Error("the directory couldn't be removed, so nothing was tried")
				}
				if got := mountedAt(t, sys, victim+`\mnt`) != ""; got != c.outside {
					t.Errorf("mounted at the victim: %v; the error is %v", got, err)
				}
				if open := sys.OpenHandles(); len(open) > 0 {
					t.Errorf("still open: %q", open)
				}
				if entries, err := sys.ReadDir(pod); err != nil || len(entries) > 0 {
					t.Errorf("left over: %v, %v", entries, err)
				}
			})
		}
	}
}

// Somebody else unmounts the volume first, in one way or another.
func TestUnmountTwiceAtOneTime(t *testing.T) {
	for name, other := range map[string]func(sys *winsim.System, path string) error{
		"another call":             func(sys *winsim.System, path string) error { return sys.DeleteVolumeMountPoint(t.Context(), path+`\`) },
		"the directory is removed": func(sys *winsim.System, path string) error { return sys.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			must(t, sys.SetSettings(winsim.Settings{MountManagerExclusive: true})) // so that it isn't held
			volume, _ := newVolume(t, sys)
			const path = kubelet + `\mnt`
			mount(t, sys, path, volume)
			calls := 0
			sys.OnCall(func(call winsim.Call) {
				if call.Name != win.CallDeleteVolumeMountPoint {
					return
				}
				if calls++; calls == 2 {
					must(t, other(sys, path))
				}
			})
			err := atDirectory(t, sys, path, func(dir *pathpolicy.File) error { return dir.Unmount(t.Context()) })
			sys.OnCall(nil)
			if err != nil && !pathpolicy.Missing(err) {
				t.Errorf("error %v", err)
			}
			simtest.Want(t, "mounted", mountedAt(t, sys, path), "")
		})
	}
}

// A call of the mount manager runs to its end, which the caller's context doesn't bring
// nearer, and isn't begun after that.
func TestMountEndsWithItsCall(t *testing.T) {
	sys := newNode(t)
	volume, _ := newVolume(t, sys)
	const path = kubelet + `\mnt`
	must(t, sys.MkdirAll(path))
	ctx, cancel := context.WithCancel(t.Context())
	err := atDirectory(t, sys, path, func(dir *pathpolicy.File) error {
		sys.OnCall(func(call winsim.Call) {
			if call.Name == win.CallSetVolumeMountPoint {
				cancel()
			}
		})
		must(t, sys.Delay(winsim.Match{Call: win.CallSetVolumeMountPoint}, 1))
		defer sys.OnCall(nil)
		return dir.Mount(ctx, volume)
	})
	if err != nil || mountedAt(t, sys, path) != volume {
		t.Errorf("given up during the call: %v, mounted is %q", err, mountedAt(t, sys, path))
	}
	before := sys.Calls()[win.CallDeleteVolumeMountPoint]
	err = atDirectory(t, sys, path, func(dir *pathpolicy.File) error { return dir.Unmount(ctx) })
	if !errors.Is(err, context.Canceled) || sys.Calls()[win.CallDeleteVolumeMountPoint] != before {
		t.Errorf("given up before the call: %v", err)
	}
}

// Behind a bind filter, whoever makes the directory a link in which something is to be
// made leads nothing outside.
func TestMakingBehindABindFilter(t *testing.T) {
	for _, settings := range []winsim.Settings{{BindFilter: true}, {BindFilterInvalid: true}} {
		testMakingBehindABindFilter(t, settings)
	}
}

func testMakingBehindABindFilter(t *testing.T, settings winsim.Settings) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.SetSettings(settings))
	must(t, sys.MkdirAll(`C:\victim`))
	const dir = kubelet + `\empty`
	for at, more := 0, true; more; at++ {
		must(t, sys.MkdirAll(dir))
		calls := 0
		sys.OnCall(func(winsim.Call) {
			if calls++; calls == at {
				_ = sys.SetReparsePoint(dir, win.NewJunction(`C:\victim`))
			}
		})
		err := p.HoldOrMake(t.Context(), sys, mustParse(t, p, dir+`\x`), func(e pathpolicy.Entry) error {
			_, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpenIf))
			return err
		})
		sys.OnCall(nil)
		more = at <= calls
		if entries, readErr := sys.ReadDir(`C:\victim`); readErr != nil || len(entries) > 0 {
			t.Fatalf("linked before call %d: outside there is %v, %v; the error is %v", at, entries, readErr, err)
		}
		if err != nil && !errors.Is(err, csiproxy.ErrPermissionDenied) {
			t.Errorf("linked before call %d: %v", at, err)
		}
		_ = sys.Remove(dir + `\x`)
		must(t, sys.Remove(dir))
	}
}

// Where there is no bind filter, nothing is opened by its path below the directory where a
// walk begins: a link that is planted for the moment of an open is refused without a look
// at its target. A filter on the way to a mount point says nothing of the volume behind it.
func TestOpensByPathOnlyBehindABindFilter(t *testing.T) {
	for name, filtered := range map[string]bool{"no filter": false, "a filter before the mount point": true} {
		t.Run(name, func(t *testing.T) {
			sys, p := newNode(t), newPolicy(t)
			must(t, sys.SetSettings(winsim.Settings{BindFilter: filtered}))
			volume, _ := newVolume(t, sys)
			mount(t, sys, kubelet+`\mnt`, volume)
			must(t, sys.MkdirAll(kubelet+`\mnt\a\empty`))
			must(t, sys.MkdirAll(`C:\victim\x`))
			linked := false
			sys.OnCall(func(call winsim.Call) {
				switch call.Object {
				case volume:
					must(t, sys.SetSettings(winsim.Settings{}))
				case volume + `a\empty\x`, volume + `\a\empty\x`:
					if call.Name == win.CallOpen {
						t.Error("it was opened by its path")
					}
					linked = true
					must(t, sys.SetReparsePoint(kubelet+`\mnt\a\empty`, win.NewJunction(`C:\victim`)))
				}
			})
			err := p.Hold(t.Context(), sys, mustParse(t, p, kubelet+`\mnt\a\empty\x`), func(e pathpolicy.Entry) error {
				_, err := e.Open(t.Context(), pathpolicy.ForAttributes)
				return err
			})
			sys.OnCall(nil)
			if !linked || !errors.Is(err, csiproxy.ErrPermissionDenied) {
				t.Errorf("linked %v, error %v", linked, err)
			}
		})
	}
}

// The directory that a volume was unmounted from takes no new files, whether the mount manager
// minds the entry of its access list or not. A volume can be mounted there again, and the
// directory removed.
func TestUnmountedDirectoryTakesNoFiles(t *testing.T) {
	const path = kubelet + `\mnt`
	for name, settings := range map[string]winsim.Settings{
		"the entry stops nobody else": {}, "the entry stops the mount manager": {DeniedMountPoints: true},
	} {
		t.Run(name, func(t *testing.T) {
			sys := newNode(t)
			must(t, sys.SetSettings(settings))
			volume, _ := newVolume(t, sys)
			var log strings.Builder
			p := mustNew(t, pathpolicy.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			reach := func(d win.Disposition, f func(dir *pathpolicy.File) error) {
				t.Helper()
				must(t, p.Hold(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
					dir, err := e.Open(t.Context(), pathpolicy.Directory(d))
					if err != nil {
						return err
					}
					return f(dir)
				}))
			}
			mountThere := func() {
				t.Helper()
				reach(win.FileOpenIf, func(dir *pathpolicy.File) error { return dir.Mount(t.Context(), volume) })
			}
			unmountThere := func() {
				t.Helper()
				reach(win.FileOpen, func(dir *pathpolicy.File) error { return dir.Unmount(t.Context()) })
			}
			mountThere()
			must(t, sys.WriteFile(path+`\first`, nil))
			unmountThere()
			simtest.WantErrorOf(t, "a file in the unmounted directory", sys.WriteFile(path+`\x`, nil), winerr.ErrorAccessDenied)
			simtest.Want(t, "the log has it", strings.Contains(log.String(), "unmounted only after"), settings.DeniedMountPoints)
			mountThere()
			must(t, sys.WriteFile(path+`\second`, nil))
			unmountThere()
			must(t, sys.Remove(path))

			p = mustNew(t, pathpolicy.Options{WritableMountPoints: true})
			mountThere()
			unmountThere()
			must(t, sys.WriteFile(path+`\x`, nil))
		})
	}
}

// noAccessList are the errors of a directory, or a file system, without an access list.
var noAccessList = []winerr.Errno{winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, 1336}

func unmountAt(t *testing.T, sys *winsim.System, path string) error {
	t.Helper()
	return atDirectory(t, sys, path, func(dir *pathpolicy.File) error { return dir.Unmount(t.Context()) })
}

// While the access list can't be written, a volume is unmounted all the same, and the log says so.
// Any other error keeps it mounted.
func TestUnmountWithoutRoomForTheEntry(t *testing.T) {
	const path = kubelet + `\mnt`
	for errno, unmounted := range map[winerr.Errno]bool{
		winerr.ErrorDiskFull: true, winerr.ErrorHandleDiskFull: true, winerr.ErrorWriteProtect: true, winerr.ErrorAccessDenied: false,
	} {
		sys := newNode(t)
		volume, _ := newVolume(t, sys)
		mount(t, sys, path, volume)
		must(t, sys.Fail(winsim.Match{Call: win.CallSetSecurity}, errno))
		var log strings.Builder
		p := mustNew(t, pathpolicy.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		err := p.Hold(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
			dir, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpen))
			must(t, err)
			return dir.Unmount(t.Context())
		})
		if (err == nil) != unmounted || (mountedAt(t, sys, path) == "") != unmounted ||
			strings.Contains(log.String(), "pods can write to a directory") != unmounted {
			t.Errorf("error %d: %v, the log says %q", errno, err, &log)
		}
	}
}

// What leads nowhere is told by what is there, and what can't be found out isn't "somewhere".
func TestNowhere(t *testing.T) {
	const unmounted, nothing = "it leads to a directory whose volume was unmounted", "it leads to nothing"
	sys, p := newNode(t), newPolicy(t, `C:\missing`)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\unmounted`, volume)
	must(t, unmountAt(t, sys, kubelet+`\unmounted`))
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, unmountAt(t, sys, kubelet+`\mnt`))
	must(t, sys.SetReparsePoint(kubelet+`\mnt`, win.NewMountPoint(volume))) // the entry is of no account then
	must(t, sys.MkdirAll(kubelet+`\mnt\in`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))
	must(t, sys.Symlink(kubelet+`\link`, `unmounted`, true))
	must(t, sys.Symlink(kubelet+`\dangling`, `none`, true))
	must(t, sys.Symlink(kubelet+`\share`, `\\server\share`, true))
	whyNothing := func(path string) (string, error) { return p.ExplainEmpty(t.Context(), sys, mustParse(t, p, path)) }
	for path, want := range map[string]string{
		kubelet: "", kubelet + `\file`: "", kubelet + `\mnt`: "", kubelet + `\mnt\in`: "", kubelet + `\share`: "",
		kubelet + `\unmounted`: unmounted, kubelet + `\link`: unmounted,
		kubelet + `\none`: nothing, kubelet + `\none\x`: nothing, kubelet + `\dangling`: nothing, `C:\missing`: nothing,
	} {
		if got, err := whyNothing(path); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	must(t, sys.Junction(kubelet+`\evil`, `C:\Windows`))
	if why, err := whyNothing(kubelet + `\evil`); why != "" || !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("outside: %q, %v", why, err)
	}
	eachCallFails(t, sys, func() error {
		_, err := whyNothing(kubelet + `\link`)
		return err
	})
	for _, none := range noAccessList {
		must(t, sys.Fail(winsim.Match{Call: win.CallQuerySecurity, Count: 1}, none))
		if why, err := whyNothing(kubelet + `\mnt\in`); why != "" || err != nil {
			t.Errorf("without an access list: %q, %v", why, err)
		}
	}
	must(t, sys.Fail(winsim.Match{Call: win.CallQuerySecurity, Count: 1}, winerr.ErrorFileNotFound))
	if why, err := whyNothing(kubelet + `\unmounted`); err == nil {
		t.Errorf("a directory whose access list isn't there: %q", why)
	}
}

// Every failure of a mount and an unmount is told, and a volume whose directory can't be kept
// empty stays mounted, unless there are no access lists.
func TestUnmountFailures(t *testing.T) {
	const path = kubelet + `\mnt`
	for _, settings := range []winsim.Settings{{}, {DeniedMountPoints: true}, {MountManagerExclusive: true}} {
		sys := newNode(t)
		must(t, sys.SetSettings(settings))
		volume, _ := newVolume(t, sys)
		again := func() {
			_ = sys.Remove(path)
			must(t, sys.MkdirAll(path))
			must(t, sys.SetReparsePoint(path, win.NewMountPoint(volume)))
		}
		eachCallFails(t, sys, func() error {
			again()
			return unmountAt(t, sys, path)
		})
		eachCallFails(t, sys, func() error {
			_ = sys.Remove(path)
			must(t, sys.MkdirAll(path))
			return atDirectory(t, sys, path, func(dir *pathpolicy.File) error { return dir.Mount(t.Context(), volume) })
		})
		for _, call := range []string{win.CallQuerySecurity, win.CallSetSecurity} {
			again()
			must(t, sys.Fail(winsim.Match{Call: call, Count: 1}, winerr.ErrorAccessDenied))
			err := unmountAt(t, sys, path)
			if got := mountedAt(t, sys, path); !errors.Is(err, winerr.ErrorAccessDenied) || got != volume {
				t.Errorf("%+v, %s is refused: %v, mounted is %q", settings, call, err, got)
			}
			for _, none := range noAccessList {
				again()
				must(t, sys.Fail(winsim.Match{Call: call}, none))
				err := unmountAt(t, sys, path)
				sys.ResetRules()
				if got := mountedAt(t, sys, path); err != nil || got != "" {
					t.Errorf("%+v, %s is %v: %v, mounted is %q", settings, call, none, err, got)
				}
			}
		}
	}
}

// Where the mount manager doesn't know a mount point, the reparse point alone is removed, and
// nothing else that is there.
func TestUnmountOfLostRecords(t *testing.T) {
	const path, gone = kubelet + `\mnt`, `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`
	sys, p := newNode(t), mustNew(t, pathpolicy.Options{WritableMountPoints: true})
	must(t, sys.SetSettings(winsim.Settings{GoneMountPoint: winerr.ErrorFileNotFound}))
	again := func(r win.ReparsePoint) {
		_ = sys.Remove(path)
		must(t, sys.MkdirAll(path))
		must(t, sys.SetReparsePoint(path, r))
	}
	for _, unknown := range []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorPathNotFound, winerr.ErrorInvalidParameter,
		winerr.ErrorNotAReparsePoint} {
		for _, link := range []win.ReparsePoint{win.NewMountPoint(gone), win.NewSymlink(gone), win.NewJunction(source)} {
			again(link)
			must(t, sys.Fail(winsim.Match{Call: win.CallDeleteVolumeMountPoint, Count: 1}, unknown))
			must(t, unmountAt(t, sys, path))
			if _, err := sys.ReadLink(path); (err != nil) != (link == win.NewMountPoint(gone)) {
				t.Errorf("%v: after the unmount of %+v: %v", unknown, link, err)
			}
		}
	}
	eachCallFails(t, sys, func() error {
		again(win.NewMountPoint(gone))
		return unmountAt(t, sys, path)
	})
	again(win.NewMountPoint(gone))
	_ = p.Hold(t.Context(), unclosable{sys}, mustParse(t, p, path), func(e pathpolicy.Entry) error {
		dir, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpen))
		must(t, err)
		simtest.WantErrorOf(t, "what is open can't be closed", dir.Unmount(t.Context()), winerr.ErrorIODevice)
		return nil
	})
}

// Without the file that keeps the directory above from becoming a link, nothing is mounted.
func TestMountWithoutGuard(t *testing.T) {
	sys := newNode(t)
	must(t, sys.SetSettings(winsim.Settings{MountManagerExclusive: true}))
	volume, _ := newVolume(t, sys)
	const path = kubelet + `\mnt`
	must(t, sys.MkdirAll(path))
	must(t, sys.Fail(winsim.Match{Call: win.CallOpenAt, Object: `.csi-proxy-`}, winerr.ErrorAccessDenied))
	err := atDirectory(t, sys, path, func(dir *pathpolicy.File) error { return dir.Mount(t.Context(), volume) })
	if got := mountedAt(t, sys, path); !errors.Is(err, winerr.ErrorAccessDenied) || got != "" {
		t.Errorf("error %v, mounted is %q", err, got)
	}
}

// A relative open that fails with ErrorInvalidParameter is tried again, then made by path. One of
// several elements is never made by path, which would follow links.
func TestOpensAgainAfterInvalidParameter(t *testing.T) {
	for name, c := range map[string]struct{ failing, byPath int }{"once": {1, 0}, "twice": {2, 1}} {
		sys, p := newNode(t), newPolicy(t)
		must(t, sys.MkdirAll(kubelet+`\a\b`))
		for _, exists := range []bool{false, true} {
			must(t, sys.Fail(winsim.Match{Call: win.CallOpenAt, Count: c.failing}, winerr.ErrorInvalidParameter))
			opens, want := simtest.Counted(sys, win.CallOpen), 1+c.byPath // with the kubelet directory
			if exists {
				must(t, p.Examine(t.Context(), sys, mustParse(t, p, kubelet+`\a\b`), pathpolicy.ForAttributes,
					func(*pathpolicy.File) error { return nil }))
			} else if err := p.Reach(t.Context(), sys, mustParse(t, p, kubelet+`\a\b`),
				func(pathpolicy.Entry) error { return nil }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			simtest.Want(t, fmt.Sprintf("%s, exists %v: opens by path", name, exists), opens()[0], want)
		}
	}
}

// A directory that others make and remove all the time isn't opened for ever.
func TestMakingBehindABindFilterEnds(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.SetSettings(winsim.Settings{BindFilter: true}))
	must(t, sys.MkdirAll(kubelet))
	making := func() error {
		path := mustParse(t, p, kubelet+`\x\y`)
		return p.HoldOrMake(t.Context(), sys, path, func(pathpolicy.Entry) error { return nil })
	}
	eachCallFails(t, sys, func() error {
		_ = sys.Remove(kubelet + `\x`)
		return making()
	})
	opens := 0
	sys.OnCall(func(c winsim.Call) {
		if c.Name != win.CallOpen || c.Object != kubelet+`\x` {
			return
		}
		if opens++; opens%2 == 0 {
			must(t, sys.MkdirAll(kubelet+`\x`))
		} else {
			_ = sys.Remove(kubelet + `\x`)
		}
	})
	if err := making(); !errors.Is(err, csiproxy.ErrUnavailable) || opens != 8 {
		t.Errorf("after %d opens: %v", opens, err)
	}
}
