// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestBadPaths(t *testing.T) {
	sys := simtest.Open(t, winsim.Delays{})
	f := newFilesystem(t, sys)
	long := kubelet + `\` + strings.Repeat(`a\`, 125)
	for _, path := range []string{``, `relative`, `C:\Windows`, kubelet + `\..\x`, kubelet + `/x`, `\\server\share`, long} {
		for name, run := range map[string]func() error{
			"PathExists":           func() error { _, err := f.PathExists(t.Context(), path); return err },
			"IsSymlink":            func() error { _, err := f.IsSymlink(t.Context(), path); return err },
			"Mkdir":                func() error { return f.Mkdir(t.Context(), path) },
			"Rmdir":                func() error { return f.Rmdir(t.Context(), path, false) },
			"Rmdir with force":     func() error { return f.Rmdir(t.Context(), path, true) },
			"RmdirContents":        func() error { return f.RmdirContents(t.Context(), path) },
			"CreateSymlink at":     func() error { return f.CreateSymlink(t.Context(), kubelet+`\x`, path) },
			"CreateSymlink toward": func() error { return f.CreateSymlink(t.Context(), path, kubelet+`\x`) },
		} {
			simtest.WantErrorOf(t, fmt.Sprintf("%s %q", name, path), run(), csiproxy.ErrInvalidArgument)
		}
	}
	if open := len(sys.Calls()); open != 0 {
		t.Errorf("bad paths reached Windows: %v", sys.Calls())
	}
}

// The error about a path that is too long says how long it is, in UTF-16 units, and how long it may be. The
// limit is the API's, not Windows' 32,767.
func TestPathExistsOfALongPath(t *testing.T) {
	sys := simtest.Open(t, winsim.Delays{})
	f := newFilesystem(t, sys)
	for _, units := range []int{pathpolicy.MaxPath + 1, pathpolicy.MaxLongPath, pathpolicy.MaxLongPath + 1, 40_000} {
		path := kubelet + `\` + strings.Repeat("a", units-len(kubelet)-3) + "𐐀" // which has two units
		exists, err := f.PathExists(t.Context(), path)
		simtest.Want(t, "exists", exists, false)
		simtest.WantErrorOf(t, fmt.Sprintf("%d units", units), err, csiproxy.ErrInvalidArgument,
			fmt.Sprintf("the path has %d characters", units), "at most 260")
	}
	simtest.Want(t, "calls to Windows", len(sys.Calls()), 0)
}

func TestPathExists(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	must(t, sys.Symlink(kubelet+`\dangling`, kubelet+`\none`, true))
	must(t, sys.Junction(kubelet+`\evil`, `C:\Windows`))
	for path, want := range map[string]bool{
		kubelet:                   true,
		kubelet + `\dir\`:         true,
		`\var\lib\kubelet\dir`:    true,
		kubelet + `\none`:         false,
		kubelet + `\none\none`:    false,
		kubelet + `\dangling`:     true,
		kubelet + `\dangling\x`:   false,
		kubelet + `\evil`:         true,
		kubelet + `\dir\none\..x`: false,
	} {
		got, err := f.PathExists(t.Context(), path)
		if got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if got, err := f.PathExists(t.Context(), kubelet+`\evil\System32`); got || !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("outside: %v, %v", got, err)
	}
}

func TestMkdir(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys, `C:\work\dir`)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\real`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))
	must(t, sys.Symlink(kubelet+`\link`, `real`, true))
	must(t, sys.Symlink(kubelet+`\tofile`, `file`, false))
	must(t, sys.Symlink(kubelet+`\tofiledir`, `file`, true))
	must(t, sys.Symlink(kubelet+`\tomnt`, kubelet+`\mnt`, true))
	must(t, sys.Symlink(kubelet+`\dangling`, `none`, true))
	must(t, sys.Symlink(kubelet+`\share`, `\\server\share`, true))
	must(t, sys.Junction(kubelet+`\evil`, `C:\Windows`))

	for path, want := range map[string]error{
		kubelet:                    nil,
		kubelet + `\a\b\c`:         nil,
		kubelet + `\a\b`:           nil,
		`\var\lib\kubelet\d\e\`:    nil,
		kubelet + `\link`:          nil,
		kubelet + `\link\x`:        nil,
		kubelet + `\mnt`:           nil,
		kubelet + `\mnt\in\volume`: nil,
		kubelet + `\tomnt`:         nil,
		`C:\work\dir`:              nil,
		`C:\work\dir\x`:            nil,
		kubelet + `\file`:          csiproxy.ErrAlreadyExists,
		kubelet + `\tofile`:        csiproxy.ErrAlreadyExists,
		kubelet + `\tofiledir`:     csiproxy.ErrAlreadyExists,
		kubelet + `\dangling`:      csiproxy.ErrAlreadyExists,
		kubelet + `\share`:         csiproxy.ErrAlreadyExists,
		kubelet + `\file\x`:        csiproxy.ErrFailedPrecondition,
		kubelet + `\evil`:          csiproxy.ErrPermissionDenied,
		kubelet + `\evil\x`:        csiproxy.ErrPermissionDenied,
		kubelet + `\share\x`:       csiproxy.ErrPermissionDenied,
	} {
		for range 2 { // repeated
			simtest.WantErrorOf(t, path, f.Mkdir(t.Context(), path), want)
		}
		if want == nil {
			if _, err := sys.ReadDir(path[:2] + strings.TrimPrefix(path, `C:`)); path[0] == 'C' && err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if _, err := sys.ReadDir(kubelet + `\d\e`); err != nil {
		t.Error(err)
	}
}

func TestIsSymlink(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, disk := newVolume(t, sys)
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\dir`, true))
	must(t, sys.Symlink(kubelet+`\tomnt`, kubelet+`\mnt`, true))
	must(t, sys.Symlink(kubelet+`\tovolume`, volume, true))
	must(t, sys.Junction(kubelet+`\junction`, kubelet+`\dir`))
	must(t, sys.Symlink(kubelet+`\filelink`, `file`, false))
	must(t, sys.Symlink(kubelet+`\todangling`, `dangling`, true))
	must(t, sys.Symlink(kubelet+`\dangling`, `none`, true))
	must(t, sys.Symlink(kubelet+`\danglingdeep`, `none\none`, true))
	must(t, sys.Symlink(kubelet+`\share`, `\\server\share\`, true))
	must(t, sys.Symlink(kubelet+`\evil`, `C:\Windows`, true))
	must(t, sys.Symlink(kubelet+`\evilnone`, `C:\Windows\none`, true))

	check := func(want map[string]bool) {
		t.Helper()
		for name, want := range want {
			got, err := f.IsSymlink(t.Context(), kubelet+`\`+name)
			if got != want || err != nil {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
	check(map[string]bool{
		``: false, `dir`: false, `file`: false,
		`mnt`: true, `link`: true, `tomnt`: true, `tovolume`: true, `junction`: true, `filelink`: true,
		`todangling`: true, // what it leads to is there: a link
		`dangling`:   false, `danglingdeep`: false,
		`share`: false, // no such server
	})
	for name, want := range map[string]error{
		`none`:      csiproxy.ErrNotFound,
		`none\none`: csiproxy.ErrNotFound,
		`evil`:      csiproxy.ErrPermissionDenied,
		`evilnone`:  csiproxy.ErrPermissionDenied, // the same: whether it is there doesn't show
		`evil\x`:    csiproxy.ErrPermissionDenied,
	} {
		if got, err := f.IsSymlink(t.Context(), kubelet+`\`+name); got || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}

	must(t, sys.DetachDisk(disk))
	check(map[string]bool{`mnt`: false, `tomnt`: true, `tovolume`: false})
}

func TestIsSymlinkAsksTheSystem(t *testing.T) {
	sys := newFileNode(t)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\mnt`, volume)
	f := newFilesystem(t, sys)
	for errno, want := range map[winerr.Errno]struct {
		is  bool
		err error
	}{
		winerr.ErrorUnrecognizedVolume: {is: true}, // raw
		winerr.ErrorDeviceNotConnected: {},
		winerr.ErrorNotReady:           {err: csiproxy.ErrUnavailable},
		winerr.ErrorAccessDenied:       {err: csiproxy.ErrPermissionDenied},
	} {
		must(t, sys.Fail(failOnce("GetFileAttributesW"), errno))
		is, err := f.IsSymlink(t.Context(), kubelet+`\mnt`)
		if is != want.is || !errors.Is(err, want.err) {
			t.Errorf("%v: %v, %v, want %v", errno, is, err, want)
		}
	}
}

func TestCreateSymlink(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys, `C:\work`)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	must(t, sys.MkdirAll(kubelet+`\empty`))
	must(t, sys.MkdirAll(`C:\work`))
	must(t, sys.WriteFile(kubelet+`\file`, []byte("data")))
	newFileShares(t, sys, "server")
	must(t, sys.Symlink(kubelet+`\share`, `\\server\data\`, true))
	must(t, sys.Symlink(kubelet+`\unmapped`, `\\localhost\C$\Windows`, true))
	must(t, sys.Symlink(kubelet+`\evil`, `C:\Windows`, true))
	must(t, sys.Junction(kubelet+`\evilchain`, kubelet+`\evil`))
	must(t, sys.Junction(kubelet+`\junction`, kubelet+`\dir`))
	must(t, sys.Symlink(kubelet+`\relative`, `dir`, true))

	for _, c := range []struct {
		source, target string
		want           error
	}{
		{kubelet + `\dir`, kubelet + `\1`, nil},
		{kubelet + `\dir`, kubelet + `\1`, nil}, // repeated
		{`\var\LIB\kubelet\\DIR\`, kubelet + `\1`, nil},
		{kubelet + `\none\none`, kubelet + `\2`, nil},
		{kubelet + `\mnt`, kubelet + `\3`, nil},
		{kubelet + `\share`, kubelet + `\4`, nil},
		{kubelet + `\file`, kubelet + `\5`, nil},
		{kubelet + `\dir`, kubelet + `\mnt\link`, nil},
		{kubelet, `C:\work\link`, nil},
		{kubelet + `\dir`, kubelet + `\relative`, nil}, // the same by another text

		{kubelet + `\empty`, kubelet + `\1`, csiproxy.ErrAlreadyExists},
		{kubelet + `\dir`, kubelet + `\junction`, csiproxy.ErrAlreadyExists},
		{kubelet + `\dir`, kubelet + `\empty`, csiproxy.ErrAlreadyExists},
		{kubelet + `\dir`, kubelet + `\file`, csiproxy.ErrAlreadyExists},
		{kubelet + `\dir`, kubelet + `\mnt`, csiproxy.ErrAlreadyExists},
		{kubelet + `\dir`, kubelet + `\none\link`, csiproxy.ErrNotFound},
		{kubelet + `\dir`, kubelet, csiproxy.ErrInvalidArgument},
		{kubelet + `\new`, kubelet + `\NEW`, csiproxy.ErrInvalidArgument},
		{kubelet + `\dir`, kubelet + `\evil\link`, csiproxy.ErrPermissionDenied},
		{kubelet + `\evil`, kubelet + `\link`, csiproxy.ErrPermissionDenied},
		{kubelet + `\evilchain`, kubelet + `\link`, csiproxy.ErrPermissionDenied},
		{kubelet + `\unmapped`, kubelet + `\link`, csiproxy.ErrPermissionDenied},
		{kubelet + `\evil\System32`, kubelet + `\link`, csiproxy.ErrPermissionDenied},
	} {
		simtest.WantErrorOf(t, fmt.Sprintf("%s at %s", c.source, c.target), f.CreateSymlink(t.Context(), c.source, c.target),
			c.want)
	}

	for link, want := range map[string]string{
		kubelet + `\1`:        kubelet + `\dir`,
		kubelet + `\2`:        kubelet + `\none\none`,
		kubelet + `\3`:        kubelet + `\mnt`,
		kubelet + `\4`:        kubelet + `\share`,
		kubelet + `\5`:        kubelet + `\file`,
		kubelet + `\mnt\link`: kubelet + `\dir`,
		`C:\work\link`:        kubelet,
	} {
		simtest.Want(t, "where "+link+" leads", linkTarget(t, sys, link), want)
	}
	// Links to directories and to files differ; a missing one is taken for a
	// directory.
	entries, err := sys.ReadDir(kubelet)
	must(t, err)
	for _, e := range entries {
		if want := e.Name != "5"; strings.Contains("12345", e.Name) && e.IsDir() != want {
			t.Errorf("%s is a link to a directory: %v", e.Name, !want)
		}
	}
	must(t, sys.MkdirAll(kubelet+`\none\none\x`))
	if _, err := sys.ReadDir(kubelet + `\2\x`); err != nil {
		t.Errorf("through a link to what was missing: %v", err)
	}
	if data, err := sys.ReadFile(kubelet + `\5`); err != nil || string(data) != "data" {
		t.Errorf("through a link to a file: %q, %v", data, err)
	}
	if exists, err := f.PathExists(t.Context(), kubelet+`\link`); exists || err != nil {
		t.Errorf("a refused link: %v, %v", exists, err)
	}
}

// If the link can't be made of the new directory, the directory goes again.
func TestCreateSymlinkCleansUp(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	create := func() error { return f.CreateSymlink(t.Context(), kubelet+`\dir`, kubelet+`\link`) }

	must(t, sys.Fail(failOnce("FSCTL_SET_REPARSE_POINT"), winerr.ErrorPrivilegeNotHeld))
	simtest.WantError(t, create(), csiproxy.ErrPermissionDenied)
	if exists, err := f.PathExists(t.Context(), kubelet+`\link`); exists || err != nil {
		t.Errorf("what was made: %v, %v", exists, err)
	}

	// If that fails too, the caller hears of it, and a driver's Rmdir heals it.
	must(t, sys.Fail(failOnce("FSCTL_SET_REPARSE_POINT"), winerr.ErrorPrivilegeNotHeld))
	must(t, sys.Fail(failOnce("SetFileInformationByHandle"), winerr.ErrorIODevice))
	simtest.WantError(t, create(), csiproxy.ErrPermissionDenied)
	simtest.WantErrorOf(t, "over what is left", create(), csiproxy.ErrAlreadyExists)
	must(t, f.Rmdir(t.Context(), kubelet+`\link`, true))
	must(t, create())
}

// A link that somebody removes while it is compared is made after all; if that goes
// on, there is an end to it.
func TestCreateSymlinkWhereOneVanishes(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	for vanishes, want := range map[int]error{1: nil, 100: csiproxy.ErrUnavailable} {
		must(t, sys.Symlink(kubelet+`\link`, `C:\Windows`, true))
		opens, removed := 0, 0
		sys.OnCall(func(c winsim.Call) {
			if c.Name != "NtCreateFile" || !strings.HasSuffix(c.Object, `\link`) {
				return
			}
			// The opens by turns: to create the link, and to read the one there.
			if opens++; opens%2 == 0 && removed < vanishes {
				removed++
				must(t, sys.Remove(kubelet+`\link`))
			} else if opens%2 == 1 && removed > 0 && removed < vanishes {
				must(t, sys.Symlink(kubelet+`\link`, `C:\Windows`, true))
			}
		})
		simtest.WantErrorOf(t, fmt.Sprintf("of one that vanishes %d times", vanishes),
			f.CreateSymlink(t.Context(), kubelet+`\dir`, kubelet+`\link`), want)
		sys.OnCall(nil)
		if removed == 0 {
			t.Error("none has vanished")
		}
		if exists, err := f.PathExists(t.Context(), kubelet+`\link`); err != nil || exists != (want == nil) {
			t.Errorf("the link exists: %v, %v", exists, err)
		}
		must(t, f.Rmdir(t.Context(), kubelet+`\link`, true))
	}
}

// A link that another call is just making isn't taken for a directory.
func TestCreateSymlinkTwiceAtOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newFileNode(t)
		f := newFilesystem(t, sys)
		must(t, sys.MkdirAll(kubelet+`\dir`))
		create := func() error { return f.CreateSymlink(t.Context(), kubelet+`\dir`, kubelet+`\link`) }
		// The second call begins when the first has made a directory and not yet a link of
		// it, and the first goes on when the second has seen that.
		second, seen := make(chan error, 1), make(chan struct{})
		var once sync.Once
		var opens atomic.Int32
		saw := sync.OnceFunc(func() { close(seen) })
		sys.OnCall(func(c winsim.Call) {
			switch {
			case c.Name == "FSCTL_SET_REPARSE_POINT":
				once.Do(func() {
					go func() {
						defer saw()
						second <- create()
					}()
					<-seen
				})
			case c.Name == "NtCreateFile" && strings.HasSuffix(c.Object, `\link`):
				if opens.Add(1) == 4 { // the first's; to create, to read, and again
					saw()
				}
			}
		})
		simtest.WantErrorOf(t, "the first", create(), nil)
		simtest.WantErrorOf(t, "the second", <-second, nil)
	})
}

func TestErrorsAndObserver(t *testing.T) {
	sys := newFileNode(t)
	var heard []string
	f := groupsOf(t, sys, nodeops.Options{OnOperation: func(name string, _ time.Duration, _ error) {
		heard = append(heard, name)
	}}).Files
	path := kubelet + `\none\x`
	_, err := f.IsSymlink(t.Context(), path)
	var e *csiproxy.Error
	ok := errors.As(err, &e)
	if !ok || e.Op != "IsSymlink" || e.Object != path {
		t.Errorf("error %#v", err)
	}
	must(t, f.Mkdir(t.Context(), path))
	simtest.Want(t, "operations", heard, []string{"IsSymlink", "Mkdir"})
}
