// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// reach returns the path that Reach reaches, and checks that Hold reaches the same.
func reach(t *testing.T, sys pathpolicy.System, p *pathpolicy.Policy, path string) (reached string, err error) {
	t.Helper()
	parsed, held := mustParse(t, p, path), ""
	err = p.Reach(t.Context(), sys, parsed, func(e pathpolicy.Entry) error {
		reached = e.Path()
		return nil
	})
	holdErr := p.Hold(t.Context(), sys, parsed, func(e pathpolicy.Entry) error {
		held = e.Path()
		return nil
	})
	if held != reached || csiproxy.KindOf(err) != csiproxy.KindOf(holdErr) {
		t.Errorf("%s: Reach reaches %q, %v; Hold reaches %q, %v", path, reached, err, held, holdErr)
	}
	return reached, err
}

// unclosable is a node on which what is open can't be closed without an error.
type unclosable struct{ pathpolicy.System }

func (u unclosable) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	f, err := u.System.OpenFile(ctx, path, o)
	return unclosableFile{f}, err
}

type unclosableFile struct{ win.File }

func (f unclosableFile) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	child, err := f.File.OpenAt(ctx, name, o)
	return unclosableFile{child}, err
}

func (f unclosableFile) Close() error {
	if err := f.File.Close(); err != nil {
		return err
	}
	return winerr.ErrorIODevice
}

// What goes wrong when the directories on the way are closed is told, unless something has gone
// wrong before.
func TestReachTellsErrorsOfClosing(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet+`\a`))
	path := mustParse(t, p, kubelet+`\a\b`)
	for _, earlier := range []error{nil, winerr.ErrorBusy} {
		want := winerr.ErrorIODevice
		if earlier != nil {
			want = winerr.ErrorBusy
		}
		err := p.Reach(t.Context(), unclosable{sys}, path, func(pathpolicy.Entry) error { return earlier })
		simtest.WantErrorOf(t, fmt.Sprintf("after %v", earlier), err, want)
	}
	made := func(pathpolicy.Entry) error { return nil }
	err := p.ReachOrMake(t.Context(), unclosable{sys}, mustParse(t, p, kubelet), made)
	simtest.WantErrorOf(t, "of the allowed directory", err, winerr.ErrorIODevice)
}

// recording notes how files are opened by their paths.
type recording struct {
	pathpolicy.System
	opens map[string]win.OpenOptions
}

func (r recording) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	r.opens[path] = o
	return r.System.OpenFile(ctx, path, o)
}

// The administrator's directories that needn't be held are opened so that nobody is kept from
// what he does with them, also where Windows takes more care than the simulation.
func TestOpensOfAllowedDirectoriesShareAll(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	for name, do := range map[string]func(r recording, path pathpolicy.Path) error{
		"the volume of one is told": func(r recording, _ pathpolicy.Path) error {
			_, err := p.Protects(t.Context(), r, `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`)
			return err
		},
		"one is made": func(r recording, path pathpolicy.Path) error {
			return p.ReachOrMake(t.Context(), r, path, func(pathpolicy.Entry) error { return nil })
		},
	} {
		r := recording{sys, map[string]win.OpenOptions{}}
		must(t, do(r, mustParse(t, p, kubelet)))
		o := r.opens[kubelet]
		if o.Access != win.FileReadAttributes|win.Synchronize ||
			o.Share != win.ShareRead|win.ShareWrite|win.ShareDelete || o.Options&win.FileOpenForBackup == 0 {
			t.Errorf("when %s, it is opened with %+v", name, o)
		}
	}
}

// reachFunc is Policy.Reach, Policy.Hold, or what makes directories as well.
type reachFunc func(ctx context.Context, sys pathpolicy.System, path pathpolicy.Path, f func(e pathpolicy.Entry) error) error

func TestReachHolds(t *testing.T) {
	for name, held := range map[string]func(p *pathpolicy.Policy) reachFunc{
		"Reach": func(p *pathpolicy.Policy) reachFunc { return p.Reach },
		"Hold":  func(p *pathpolicy.Policy) reachFunc { return p.Hold },
	} {
		t.Run(name, func(t *testing.T) { testReachHolds(t, held) })
	}
}

func testReachHolds(t *testing.T, reach func(p *pathpolicy.Policy) reachFunc) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet+`\a\b\c`))
	must(t, sys.MkdirAll(kubelet+`\elsewhere`))

	err := reach(p)(t.Context(), sys, mustParse(t, p, `\VAR\lib\kubelet\A\b\c`), func(e pathpolicy.Entry) error {
		simtest.Want(t, "path", e.Path(), kubelet+`\A\b\c`)
		f, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpen))
		if err != nil {
			return err
		}
		for _, dir := range []string{kubelet, kubelet + `\a`, kubelet + `\a\b`, kubelet + `\a\b\c`} {
			if err := sys.Rename(dir, dir+`-moved`, false); err == nil {
				t.Errorf("%s could be renamed", dir)
			}
			if err := sys.Remove(dir); err == nil {
				t.Errorf("%s could be removed", dir)
			}
		}
		// An empty directory becomes a link all the same, and nothing is made behind it.
		must(t, sys.SetReparsePoint(kubelet+`\a\b\c`, win.NewJunction(`C:\Windows`)))
		info, err := f.Info(t.Context())
		if err != nil || !info.IsReparsePoint() {
			t.Errorf("info %v, %v", info, err)
		}
		_, err = f.Entry("x").Open(t.Context(), win.OpenOptions{Disposition: win.FileCreate, Options: win.FileDirectoryFile})
		simtest.WantErrorOf(t, "create in a directory that has become a link", err, csiproxy.ErrPermissionDenied)
		return nil
	})
	simtest.Must(t, err)
	if open := sys.OpenHandles(); len(open) > 0 {
		t.Errorf("still open: %q", open)
	}
	must(t, sys.Rename(kubelet+`\a\b\c`, kubelet+`\a\b\d`, false))
	if _, err := sys.ReadDir(`C:\Windows\x`); !errors.Is(err, winerr.ErrorFileNotFound) {
		t.Errorf("C:\\Windows\\x: %v", err)
	}
}

func TestReachFollows(t *testing.T) {
	sys, p := newNode(t), newPolicy(t, `C:\work`)
	volume, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(kubelet+`\a\b`))
	must(t, sys.MkdirAll(`C:\work\w`))
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\mnt\in`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))

	must(t, sys.Symlink(kubelet+`\absolute`, `c:\VAR\lib\kubelet\a`, true))
	must(t, sys.Symlink(kubelet+`\relative`, `a`, true))
	must(t, sys.Symlink(kubelet+`\a\up`, `..\a\.\b`, true))
	must(t, sys.Symlink(kubelet+`\a\around`, `..\..\kubelet\a`, true))
	must(t, sys.Symlink(kubelet+`\a\rooted`, `\var\lib\kubelet\a`, true))
	must(t, sys.Junction(kubelet+`\junction`, `C:\work`))
	must(t, sys.Symlink(kubelet+`\twice`, kubelet+`\relative`, true))
	must(t, sys.Symlink(kubelet+`\toroot`, kubelet, true))
	must(t, sys.Symlink(kubelet+`\tovolume`, volume, true))
	must(t, sys.Symlink(kubelet+`\mnt\back`, kubelet+`\a`, true))
	must(t, sys.Symlink(kubelet+`\mnt\in\updir`, `..\in`, true))
	must(t, sys.Symlink(kubelet+`\mnt\in\top`, `..`, true))
	must(t, sys.Symlink(kubelet+`\mnt\rooted`, `\in`, true))

	for path, want := range map[string]string{
		`absolute\x`:        kubelet + `\a\x`,
		`relative\x`:        kubelet + `\a\x`,
		`a\up\x`:            kubelet + `\a\b\x`,
		`a\around\x`:        kubelet + `\a\x`,
		`a\rooted\b\x`:      kubelet + `\a\b\x`,
		`junction\w\x`:      `C:\work\w\x`,
		`twice\x`:           kubelet + `\a\x`,
		`toroot\a\x`:        kubelet + `\a\x`,
		`relative`:          kubelet + `\relative`, // the last one isn't followed
		`mnt\in\x`:          volume + `in\x`,
		`mnt\x`:             volume + `x`,
		`tovolume\x`:        volume + `x`,
		`mnt\back\x`:        kubelet + `\a\x`,
		`mnt\in\updir\x`:    volume + `in\x`,
		`mnt\in\top\x`:      volume + `x`,
		`mnt\rooted\x`:      volume + `in\x`,
		`toroot\mnt\back\b`: kubelet + `\a\b`,
	} {
		got, err := reach(t, sys, p, kubelet+`\`+path)
		if err != nil || !strings.EqualFold(got, want) {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
		}
	}

	for path, want := range map[string]error{
		`none\x`:     csiproxy.ErrNotFound,
		`a\none\y\z`: csiproxy.ErrNotFound,
		`file\x`:     csiproxy.ErrFailedPrecondition,
	} {
		if _, err := reach(t, sys, p, kubelet+`\`+path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestReachRefuses(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	system, err := sys.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\mnt\in`))
	must(t, sys.MkdirAll(`C:\var\lib\kubelet-evil\x`))

	for name, r := range map[string]win.ReparsePoint{
		"absolute":       win.NewSymlink(`C:\Windows`),
		"junction":       win.NewJunction(`C:\Windows`),
		"neighbour":      win.NewJunction(`C:\var\lib\kubelet-evil`),
		"parent":         win.NewSymlink(`..`),
		"up":             win.NewSymlink(`..\..\..\Windows`),
		"too far up":     win.NewSymlink(`..\..\..\..\var\lib\kubelet`),
		"rooted":         win.NewSymlink(`\Windows`),
		"dots":           win.NewJunction(kubelet + `\..\..\..\Windows`),
		"share":          win.NewSymlink(`\\server\share`),
		"system volume":  win.NewMountPoint(system),
		"system volume2": win.NewSymlink(strings.ToUpper(system)),
		"volume's dir":   win.NewJunction(volume + `in`),
		"system dir":     {Tag: win.TagMountPoint, SubstituteName: `\??\` + system[4:] + `Windows`},
		"device":         {Tag: win.TagSymlink, SubstituteName: `\Device\HarddiskVolume1\Windows`},
		"device2":        {Tag: win.TagSymlink, SubstituteName: `\??\GLOBALROOT\Device\HarddiskVolume1`},
		"drive relative": {Tag: win.TagSymlink, SubstituteName: `\??\C:Windows`},
		"empty":          {Tag: win.TagSymlink},
		"slash":          win.NewSymlink(`../../../Windows`),
		"stream":         win.NewSymlink(`mnt:stream`),
	} {
		link := kubelet + `\` + name
		must(t, sys.MkdirAll(link))
		must(t, sys.SetReparsePoint(link, r))
		_, err := reach(t, sys, p, link+`\x`)
		simtest.WantErrorOf(t, name, err, csiproxy.ErrPermissionDenied)
		if e := new(csiproxy.Error); errors.As(err, &e) && e.Object != link {
			t.Errorf("%s: the error is about %s", name, e.Object)
		}
	}

	// In a mounted volume, the way doesn't lead above its root.
	must(t, sys.Symlink(kubelet+`\mnt\in\up`, `..\..`, true))
	if _, err := reach(t, sys, p, kubelet+`\mnt\in\up\x`); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("above a volume: %v", err)
	}

	// A reparse point of a file system filter.
	must(t, sys.MkdirAll(kubelet+`\unknown`))
	f, err := sys.OpenFile(t.Context(), kubelet+`\unknown`, win.OpenOptions{Access: win.FileWriteAttributes, Disposition: win.FileOpen})
	must(t, err)
	_, err = f.Control(t.Context(), win.FsctlSetReparsePoint, []byte{0x18, 0, 0, 0x90, 0, 0, 0, 0}, nil)
	must(t, err)
	must(t, f.Close())
	if _, err := reach(t, sys, p, kubelet+`\unknown\x`); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("unknown tag: %v", err)
	}
}

// The volume of an allowed directory on another drive is the node's own too.
func TestReachRefusesVolumeOfWorkingDir(t *testing.T) {
	sys := newNode(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.SetVolumeMountPoint(t.Context(), `E:\`, volume))
	must(t, sys.MkdirAll(`E:\work`))
	must(t, sys.MkdirAll(`E:\secret`))
	mount(t, sys, kubelet+`\mnt`, volume)
	if got, err := reach(t, sys, newPolicy(t), kubelet+`\mnt\secret\x`); err != nil {
		t.Errorf("%s, %v", got, err)
	}
	p := newPolicy(t, `E:\work`, `F:\gone`)
	if _, err := reach(t, sys, p, kubelet+`\mnt\secret\x`); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("through a mount point of the working directory's volume: %v", err)
	}
	system, err := sys.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	must(t, sys.MkdirAll(`E:\work\mnt`))
	must(t, sys.SetReparsePoint(`E:\work\mnt`, win.NewMountPoint(system)))
	onE, err := pathpolicy.New(pathpolicy.Options{KubeletPath: `E:\work`})
	must(t, err)
	if _, err := reach(t, sys, onE, `E:\work\mnt\Windows\x`); !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("through a mount point of C:: %v", err)
	}
	if got, err := reach(t, sys, p, `E:\work\x`); err != nil || got != `E:\work\x` {
		t.Errorf("working directory: %s, %v", got, err)
	}
}

func TestReachEnds(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.Symlink(kubelet+`\loop`, kubelet+`\loop`, true))
	must(t, sys.Symlink(kubelet+`\ping`, `pong`, true))
	must(t, sys.Symlink(kubelet+`\pong`, `ping`, true))
	must(t, sys.Symlink(kubelet+`\deeper`, `deeper\deeper\deeper`, true))
	chain := func(n int) string { return fmt.Sprintf(`%s\link%d`, kubelet, n) }
	must(t, sys.MkdirAll(chain(0)))
	for n := range 33 {
		must(t, sys.Symlink(chain(n+1), chain(n), true))
	}
	for _, path := range []string{`loop\x`, `ping\x`, `deeper\x`, `link33\x`} {
		if _, err := reach(t, sys, p, kubelet+`\`+path); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
			t.Errorf("%s: %v, want failed precondition", path, err)
		}
	}
	if _, err := reach(t, sys, p, chain(32)+`\x`); err != nil {
		t.Errorf("32 links: %v", err)
	}

	// Directories without end are not walked to the end.
	deep := kubelet + strings.Repeat(`\d`, 1100)
	must(t, sys.MkdirAll(deep))
	must(t, sys.Symlink(kubelet+`\long`, deep, true))
	err := p.Hold(t.Context(), sys, mustParse(t, p, kubelet+`\long\x`), func(pathpolicy.Entry) error { return nil })
	simtest.WantErrorOf(t, "1100 directories", err, csiproxy.ErrFailedPrecondition)
}

func TestReachMaking(t *testing.T) {
	sys, p := newNode(t), newPolicy(t, `C:\new\work`)
	must(t, sys.MkdirAll(kubelet+`\real`))
	must(t, sys.Symlink(kubelet+`\link`, `real`, true))
	must(t, sys.Symlink(kubelet+`\dangling`, `none`, true))
	must(t, sys.Junction(kubelet+`\evil`, `C:\Windows`))
	making := func(path string) error {
		return p.ReachOrMake(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
			_, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpenIf))
			return err
		})
	}
	for path, made := range map[string]string{
		kubelet + `\a\b\c`:      kubelet + `\a\b\c`,
		kubelet + `\link\a\b`:   kubelet + `\real\a\b`,
		`C:\new\work`:           `C:\new\work`,
		`C:\new\work\x\y`:       `C:\new\work\x\y`,
		kubelet + `\dangling\x`: kubelet + `\none\x`, // made inside, as the link says
	} {
		for range 2 {
			simtest.WantErrorOf(t, path, making(path), nil)
		}
		if _, err := sys.ReadDir(made); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	simtest.WantErrorOf(t, "behind a link outside", making(kubelet+`\evil\x\y`), csiproxy.ErrPermissionDenied)
	if _, err := sys.ReadDir(`C:\Windows\x`); !errors.Is(err, winerr.ErrorFileNotFound) {
		t.Errorf("C:\\Windows\\x: %v", err)
	}
}

func TestCheckReplaceable(t *testing.T) {
	sys, p := newNode(t), newPolicy(t, `C:\var`, `C:\var\lib\work`)
	must(t, sys.MkdirAll(`C:\var\lib\work\x`))
	must(t, sys.Symlink(`C:\var\link`, `lib`, true))
	for path, want := range map[string]bool{
		`C:\var`:              false,
		`C:\VAR\LIB`:          false,
		`C:\var\lib\Kubelet`:  false,
		`C:\var\link\work`:    false, // by another name
		`C:\var\lib\work\x`:   true,
		`C:\var\lib\kubelet2`: true,
		`C:\var\link`:         true, // a link itself
	} {
		err := p.Reach(t.Context(), sys, mustParse(t, p, path), pathpolicy.Entry.CheckReplaceable)
		if want != (err == nil) || !want && !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestReachWaits(t *testing.T) {
	for name, c := range map[string]struct {
		closeAfter, cancelAfter time.Duration
		want                    error
		took                    time.Duration
	}{
		"until it is closed": {closeAfter: 300 * time.Millisecond, cancelAfter: time.Hour},
		"not forever": {closeAfter: time.Hour, cancelAfter: time.Hour, want: csiproxy.ErrUnavailable,
			took: time.Second},
		"not past the end": {closeAfter: time.Hour, cancelAfter: 10 * time.Millisecond, want: context.Canceled,
			took: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sys, p := newNode(t), newPolicy(t)
				must(t, sys.MkdirAll(kubelet+`\busy`))
				f, err := sys.OpenFile(t.Context(), kubelet+`\busy`, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
				must(t, err)
				var once = make(chan struct{})
				go func() {
					time.Sleep(c.closeAfter)
					f.Close()
					close(once)
				}()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(c.cancelAfter, cancel)
				defer cancel()

				start := time.Now()
				err = p.Reach(ctx, sys, mustParse(t, p, kubelet+`\busy\x`), func(pathpolicy.Entry) error { return nil })
				simtest.WantError(t, err, c.want)
				if took := time.Since(start); c.took != 0 && took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				<-once
			})
		})
	}
}

func TestErrorOfTheFunction(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	want := errors.New("of the function")
	err := p.Reach(t.Context(), sys, mustParse(t, p, kubelet+`\x`), func(pathpolicy.Entry) error { return want })
	if err != want {
		t.Errorf("error %v", err)
	}
}

// The daemon survives a panic, so a walk closes its directories after one, too.
func TestPanicOfTheFunction(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet+`\a\b`))
	defer func() {
		if recover() == nil {
			t.Error("the panic is gone")
		}
		if open := sys.OpenHandles(); len(open) > 0 {
			t.Errorf("still open: %q", open)
		}
	}()
	_ = p.Reach(t.Context(), sys, mustParse(t, p, kubelet+`\a\b`), func(pathpolicy.Entry) error { panic("of the function") })
}

// Every failure of Windows on the way is returned, and leaves nothing open.
func TestReachFailures(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\mnt\a`))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\mnt\a`, true))
	path := mustParse(t, p, kubelet+`\link\b\c`)
	for name, reachOrMake := range map[string]reachFunc{"ReachOrMake": p.ReachOrMake, "HoldOrMake": p.HoldOrMake} {
		for _, isThere := range []bool{false, true} {
			t.Log(name, isThere)
			eachCallFails(t, sys, func() error {
				must(t, sys.MkdirAll(kubelet+`\mnt\a\b\c`))
				if !isThere {
					must(t, sys.Remove(kubelet+`\mnt\a\b\c`))
					must(t, sys.Remove(kubelet+`\mnt\a\b`))
				}
				return reachOrMake(t.Context(), sys, path, func(e pathpolicy.Entry) error {
					_, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpenIf))
					return err
				})
			})
		}
	}
	eachCallFails(t, sys, func() error { // makes the allowed directory
		return p.ReachOrMake(t.Context(), sys, mustParse(t, p, kubelet), func(pathpolicy.Entry) error { return nil })
	})
}

// eachCallFails has each call of the seam that run makes fail once.
func eachCallFails(t *testing.T, sys *winsim.System, run func() error) {
	t.Helper()
	before := sys.Calls()
	simtest.Must(t, run())
	failed := 0
	for name, n := range sys.Calls() {
		for skip := range n - before[name] {
			must(t, sys.Fail(winsim.Match{Call: name, Skip: skip, Count: 1}, winerr.ErrorIODevice))
			err := run()
			sys.ResetRules()
			if number, _ := csiproxy.WindowsErrorOf(err); number != uint32(winerr.ErrorIODevice) {
				t.Errorf("%s fails after %d: %v", name, skip, err)
			}
			if open := sys.OpenHandles(); len(open) > 0 {
				t.Fatalf("%s fails after %d: still open: %q", name, skip, open)
			}
			failed++
		}
	}
	if failed == 0 {
		t.Error("no call was made to fail")
	}
}
