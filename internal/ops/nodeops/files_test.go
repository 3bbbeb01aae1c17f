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
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestBadPaths(t *testing.T) {
	sys := simtest.Open(t, winsim.Delays{})
	f := newFilesystem(t, sys)
	long := kubeletDir + `\` + strings.Repeat(`a\`, 125)
	for _, path := range []string{``, `relative`, `C:\Windows`, kubeletDir + `\..\x`, kubeletDir + `/x`, `\\server\share`, long} {
		for name, run := range map[string]func() error{
			"PathExists":           func() error { _, err := f.PathExists(t.Context(), path); return err },
			"IsSymlink":            func() error { _, err := f.IsSymlink(t.Context(), path); return err },
			"Mkdir":                func() error { return f.Mkdir(t.Context(), path) },
			"Rmdir":                func() error { return f.Rmdir(t.Context(), path, false) },
			"Rmdir with force":     func() error { return f.Rmdir(t.Context(), path, true) },
			"RmdirContents":        func() error { return f.RmdirContents(t.Context(), path) },
			"CreateSymlink at":     func() error { return f.CreateSymlink(t.Context(), kubeletDir+`\x`, path) },
			"CreateSymlink toward": func() error { return f.CreateSymlink(t.Context(), path, kubeletDir+`\x`) },
		} {
			simtest.WantErrorOf(t, fmt.Sprintf("%s %q", name, path), run(), csiproxy.ErrInvalidArgument)
		}
	}
	if open := len(sys.Calls()); open != 0 {
		t.Errorf("bad paths reached Windows: %v", sys.Calls())
	}
}

func TestPathExists(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubeletDir+`\dir`))
	must(t, sys.Symlink(kubeletDir+`\dangling`, kubeletDir+`\none`, true))
	must(t, sys.Junction(kubeletDir+`\evil`, `C:\Windows`))
	for path, want := range map[string]bool{
		kubeletDir:                   true,
		kubeletDir + `\dir\`:         true,
		`\var\lib\kubelet\dir`:       true,
		kubeletDir + `\none`:         false,
		kubeletDir + `\none\none`:    false,
		kubeletDir + `\dangling`:     true,
		kubeletDir + `\dangling\x`:   false,
		kubeletDir + `\evil`:         true,
		kubeletDir + `\dir\none\..x`: false,
	} {
		got, err := f.PathExists(t.Context(), path)
		if got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if got, err := f.PathExists(t.Context(), kubeletDir+`\evil\System32`); got || !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("outside: %v, %v", got, err)
	}
}

func TestMkdir(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys, `C:\work\dir`)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubeletDir+`\mnt`, volume)
	must(t, sys.MkdirAll(kubeletDir+`\real`))
	must(t, sys.WriteFile(kubeletDir+`\file`, nil))
	must(t, sys.Symlink(kubeletDir+`\link`, `real`, true))
	must(t, sys.Symlink(kubeletDir+`\tofile`, `file`, false))
	must(t, sys.Symlink(kubeletDir+`\tofiledir`, `file`, true))
	must(t, sys.Symlink(kubeletDir+`\tomnt`, kubeletDir+`\mnt`, true))
	must(t, sys.Symlink(kubeletDir+`\dangling`, `none`, true))
	must(t, sys.Symlink(kubeletDir+`\share`, `\\server\share`, true))
	must(t, sys.Junction(kubeletDir+`\evil`, `C:\Windows`))

	for path, want := range map[string]error{
		kubeletDir:                    nil,
		kubeletDir + `\a\b\c`:         nil,
		kubeletDir + `\a\b`:           nil,
		`\var\lib\kubelet\d\e\`:       nil,
		kubeletDir + `\link`:          nil,
		kubeletDir + `\link\x`:        nil,
		kubeletDir + `\mnt`:           nil,
		kubeletDir + `\mnt\in\volume`: nil,
		kubeletDir + `\tomnt`:         nil,
		`C:\work\dir`:                 nil,
		`C:\work\dir\x`:               nil,
		kubeletDir + `\file`:          csiproxy.ErrAlreadyExists,
		kubeletDir + `\tofile`:        csiproxy.ErrAlreadyExists,
		kubeletDir + `\tofiledir`:     csiproxy.ErrAlreadyExists,
		kubeletDir + `\dangling`:      csiproxy.ErrAlreadyExists,
		kubeletDir + `\share`:         csiproxy.ErrAlreadyExists,
		kubeletDir + `\file\x`:        csiproxy.ErrFailedPrecondition,
		kubeletDir + `\evil`:          csiproxy.ErrPermissionDenied,
		kubeletDir + `\evil\x`:        csiproxy.ErrPermissionDenied,
		kubeletDir + `\share\x`:       csiproxy.ErrPermissionDenied,
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
	if _, err := sys.ReadDir(kubeletDir + `\d\e`); err != nil {
		t.Error(err)
	}
}

func TestIsSymlink(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	volume, disk := newVolume(t, sys)
	mount(t, sys, kubeletDir+`\mnt`, volume)
	must(t, sys.MkdirAll(kubeletDir+`\dir`))
	must(t, sys.WriteFile(kubeletDir+`\file`, nil))
	must(t, sys.Symlink(kubeletDir+`\link`, kubeletDir+`\dir`, true))
	must(t, sys.Symlink(kubeletDir+`\tomnt`, kubeletDir+`\mnt`, true))
	must(t, sys.Symlink(kubeletDir+`\tovolume`, volume, true))
	must(t, sys.Junction(kubeletDir+`\junction`, kubeletDir+`\dir`))
	must(t, sys.Symlink(kubeletDir+`\filelink`, `file`, false))
	must(t, sys.Symlink(kubeletDir+`\todangling`, `dangling`, true))
	must(t, sys.Symlink(kubeletDir+`\dangling`, `none`, true))
	must(t, sys.Symlink(kubeletDir+`\danglingdeep`, `none\none`, true))
	must(t, sys.Symlink(kubeletDir+`\share`, `\\server\share\`, true))
	must(t, sys.Symlink(kubeletDir+`\evil`, `C:\Windows`, true))
	must(t, sys.Symlink(kubeletDir+`\evilnone`, `C:\Windows\none`, true))

	check := func(want map[string]bool) {
		t.Helper()
		for name, want := range want {
			got, err := f.IsSymlink(t.Context(), kubeletDir+`\`+name)
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
		if got, err := f.IsSymlink(t.Context(), kubeletDir+`\`+name); got || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}

	must(t, sys.DetachDisk(disk))
	check(map[string]bool{`mnt`: false, `tomnt`: true, `tovolume`: false})
}

func TestIsSymlinkAsksTheSystem(t *testing.T) {
	sys := newFileNode(t)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubeletDir+`\mnt`, volume)
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
		is, err := f.IsSymlink(t.Context(), kubeletDir+`\mnt`)
		if is != want.is || !errors.Is(err, want.err) {
			t.Errorf("%v: %v, %v, want %v", errno, is, err, want)
		}
	}
}

func TestCreateSymlink(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys, `C:\work`)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubeletDir+`\mnt`, volume)
	must(t, sys.MkdirAll(kubeletDir+`\dir`))
	must(t, sys.MkdirAll(kubeletDir+`\empty`))
	must(t, sys.MkdirAll(`C:\work`))
	must(t, sys.WriteFile(kubeletDir+`\file`, []byte("data")))
	newFileShares(t, sys, "server")
	must(t, sys.Symlink(kubeletDir+`\share`, `\\server\data\`, true))
	must(t, sys.Symlink(kubeletDir+`\unmapped`, `\\localhost\C$\Windows`, true))
	must(t, sys.Symlink(kubeletDir+`\evil`, `C:\Windows`, true))
	must(t, sys.Junction(kubeletDir+`\evilchain`, kubeletDir+`\evil`))
	must(t, sys.Junction(kubeletDir+`\junction`, kubeletDir+`\dir`))
	must(t, sys.Symlink(kubeletDir+`\relative`, `dir`, true))

	for _, c := range []struct {
		source, target string
		want           error
	}{
		{kubeletDir + `\dir`, kubeletDir + `\1`, nil},
		{kubeletDir + `\dir`, kubeletDir + `\1`, nil}, // repeated
		{`\var\LIB\kubelet\\DIR\`, kubeletDir + `\1`, nil},
		{kubeletDir + `\none\none`, kubeletDir + `\2`, nil},
		{kubeletDir + `\mnt`, kubeletDir + `\3`, nil},
		{kubeletDir + `\share`, kubeletDir + `\4`, nil},
		{kubeletDir + `\file`, kubeletDir + `\5`, nil},
		{kubeletDir + `\dir`, kubeletDir + `\mnt\link`, nil},
		{kubeletDir, `C:\work\link`, nil},
		{kubeletDir + `\dir`, kubeletDir + `\relative`, nil}, // the same by another text

		{kubeletDir + `\empty`, kubeletDir + `\1`, csiproxy.ErrAlreadyExists},
		{kubeletDir + `\dir`, kubeletDir + `\junction`, csiproxy.ErrAlreadyExists},
		{kubeletDir + `\dir`, kubeletDir + `\empty`, csiproxy.ErrAlreadyExists},
		{kubeletDir + `\dir`, kubeletDir + `\file`, csiproxy.ErrAlreadyExists},
		{kubeletDir + `\dir`, kubeletDir + `\mnt`, csiproxy.ErrAlreadyExists},
		{kubeletDir + `\dir`, kubeletDir + `\none\link`, csiproxy.ErrNotFound},
		{kubeletDir + `\dir`, kubeletDir, csiproxy.ErrInvalidArgument},
		{kubeletDir + `\new`, kubeletDir + `\NEW`, csiproxy.ErrInvalidArgument},
		{kubeletDir + `\dir`, kubeletDir + `\evil\link`, csiproxy.ErrPermissionDenied},
		{kubeletDir + `\evil`, kubeletDir + `\link`, csiproxy.ErrPermissionDenied},
		{kubeletDir + `\evilchain`, kubeletDir + `\link`, csiproxy.ErrPermissionDenied},
		{kubeletDir + `\unmapped`, kubeletDir + `\link`, csiproxy.ErrPermissionDenied},
		{kubeletDir + `\evil\System32`, kubeletDir + `\link`, csiproxy.ErrPermissionDenied},
	} {
		simtest.WantErrorOf(t, fmt.Sprintf("%s at %s", c.source, c.target), f.CreateSymlink(t.Context(), c.source, c.target),
			c.want)
	}

	for link, want := range map[string]string{
		kubeletDir + `\1`:        kubeletDir + `\dir`,
		kubeletDir + `\2`:        kubeletDir + `\none\none`,
		kubeletDir + `\3`:        kubeletDir + `\mnt`,
		kubeletDir + `\4`:        kubeletDir + `\share`,
		kubeletDir + `\5`:        kubeletDir + `\file`,
		kubeletDir + `\mnt\link`: kubeletDir + `\dir`,
		`C:\work\link`:           kubeletDir,
	} {
		simtest.Want(t, "where "+link+" leads", linkTarget(t, sys, link), want)
	}
	// Links to directories and to files differ; a missing one is taken for a
	// directory.
	entries, err := sys.ReadDir(kubeletDir)
	must(t, err)
	for _, e := range entries {
		if want := e.Name != "5"; strings.Contains("12345", e.Name) && e.IsDir() != want {
			t.Errorf("%s is a link to a directory: %v", e.Name, !want)
		}
	}
	must(t, sys.MkdirAll(kubeletDir+`\none\none\x`))
	if _, err := sys.ReadDir(kubeletDir + `\2\x`); err != nil {
		t.Errorf("through a link to what was missing: %v", err)
	}
	if data, err := sys.ReadFile(kubeletDir + `\5`); err != nil || string(data) != "data" {
		t.Errorf("through a link to a file: %q, %v", data, err)
	}
	if exists, err := f.PathExists(t.Context(), kubeletDir+`\link`); exists || err != nil {
		t.Errorf("a refused link: %v, %v", exists, err)
	}
}

// If the link can't be made of the new directory, the directory goes again.
func TestCreateSymlinkCleansUp(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubeletDir+`\dir`))
	create := func() error { return f.CreateSymlink(t.Context(), kubeletDir+`\dir`, kubeletDir+`\link`) }

	must(t, sys.Fail(failOnce("FSCTL_SET_REPARSE_POINT"), winerr.ErrorPrivilegeNotHeld))
	simtest.WantError(t, create(), csiproxy.ErrPermissionDenied)
	if exists, err := f.PathExists(t.Context(), kubeletDir+`\link`); exists || err != nil {
		t.Errorf("what was made: %v, %v", exists, err)
	}

	// If that fails too, the caller hears of it, and a driver's Rmdir heals it.
	must(t, sys.Fail(failOnce("FSCTL_SET_REPARSE_POINT"), winerr.ErrorPrivilegeNotHeld))
	must(t, sys.Fail(failOnce("SetFileInformationByHandle"), winerr.ErrorIODevice))
	simtest.WantError(t, create(), csiproxy.ErrPermissionDenied)
	simtest.WantErrorOf(t, "over what is left", create(), csiproxy.ErrAlreadyExists)
	must(t, f.Rmdir(t.Context(), kubeletDir+`\link`, true))
	must(t, create())
}

// A link that somebody removes while it is compared is made after all; if that goes
// on, there is an end to it.
func TestCreateSymlinkWhereOneVanishes(t *testing.T) {
	sys := newFileNode(t)
	f := newFilesystem(t, sys)
	must(t, sys.MkdirAll(kubeletDir+`\dir`))
	for vanishes, want := range map[int]error{1: nil, 100: csiproxy.ErrUnavailable} {
		must(t, sys.Symlink(kubeletDir+`\link`, `C:\Windows`, true))
		opens, removed := 0, 0
		sys.OnCall(func(c winsim.Call) {
			if c.Name != "NtCreateFile" || !strings.HasSuffix(c.Object, `\link`) {
				return
			}
			// The opens by turns: to create the link, and to read the one there.
			if opens++; opens%2 == 0 && removed < vanishes {
				removed++
				must(t, sys.Remove(kubeletDir+`\link`))
			} else if opens%2 == 1 && removed > 0 && removed < vanishes {
				must(t, sys.Symlink(kubeletDir+`\link`, `C:\Windows`, true))
			}
		})
		simtest.WantErrorOf(t, fmt.Sprintf("of one that vanishes %d times", vanishes),
			f.CreateSymlink(t.Context(), kubeletDir+`\dir`, kubeletDir+`\link`), want)
		sys.OnCall(nil)
		if removed == 0 {
			t.Error("none has vanished")
		}
		if exists, err := f.PathExists(t.Context(), kubeletDir+`\link`); err != nil || exists != (want == nil) {
			t.Errorf("the link exists: %v, %v", exists, err)
		}
		must(t, f.Rmdir(t.Context(), kubeletDir+`\link`, true))
	}
}

// A link that another call is just making isn't taken for a directory.
func TestCreateSymlinkTwiceAtOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newFileNode(t)
		f := newFilesystem(t, sys)
		must(t, sys.MkdirAll(kubeletDir+`\dir`))
		create := func() error { return f.CreateSymlink(t.Context(), kubeletDir+`\dir`, kubeletDir+`\link`) }
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
	p, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubeletDir})
	must(t, err)
	var heard []string
	f := nodeops.NewFiles(sys, p, shares.New(sys, p, shares.Options{}), nodeops.FileOptions{Observer: func(name string, _ time.Duration, _ error) {
		heard = append(heard, name)
	}})
	path := kubeletDir + `\none\x`
	_, err = f.IsSymlink(t.Context(), path)
	var e *csiproxy.Error
	ok := errors.As(err, &e)
	if !ok || e.Op != "IsSymlink" || e.Object != path {
		t.Errorf("error %#v", err)
	}
	must(t, f.Mkdir(t.Context(), path))
	simtest.Want(t, "operations", heard, []string{"IsSymlink", "Mkdir"})
}
