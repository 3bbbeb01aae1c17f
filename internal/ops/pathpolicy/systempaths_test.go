// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// wide allows all of C: and D:. The daemon is in C:\k, and its log on another server.
func wide(t *testing.T) *pathpolicy.Policy {
	t.Helper()
	return mustNew(t, pathpolicy.Options{WorkingDirs: []string{`C:\`, `D:\`}, OwnFiles: []string{`C:\k\csi-proxy.exe`, `\\logs\share\x.log`}})
}

func TestSystemPathsByText(t *testing.T) {
	p := wide(t)
	for path, want := range map[string]error{
		`C:\Windows`:                              csiproxy.ErrInvalidArgument,
		`c:\WINDOWS\System32\x`:                   csiproxy.ErrInvalidArgument,
		`C:\Program Files\x`:                      csiproxy.ErrInvalidArgument,
		`C:\Program Files (x86)`:                  csiproxy.ErrInvalidArgument,
		`C:\PROGRA~1\x`:                           csiproxy.ErrInvalidArgument,
		`C:\k\csi-proxy.exe`:                      csiproxy.ErrInvalidArgument,
		`C:\k\CSI-PR~1.EXE`:                       csiproxy.ErrInvalidArgument,
		kubelet + `\pki`:                          csiproxy.ErrInvalidArgument,
		kubelet + `\Config.yaml`:                  csiproxy.ErrInvalidArgument,
		kubelet + `\CPU_manager_State`:            csiproxy.ErrInvalidArgument,
		kubelet + `\plugins_registry\x.sock`:      csiproxy.ErrInvalidArgument,
		kubelet + `\PLUGIN~1\x`:                   csiproxy.ErrInvalidArgument,
		`C:\var\lib\KUBELE~1\pki`:                 csiproxy.ErrInvalidArgument,
		`C:\`:                                     nil,
		`C:\Windows2`:                             nil,
		`C:\k\other`:                              nil,
		`C:\Users\ADMINI~1\x`:                     nil,
		kubelet + `\plugins\x\PLUGIN~1`:           nil,
		kubelet + `\pods\cpu_manager_state`:       nil,
		kubelet + `\plugins\red\plugins_registry`: nil,
		`D:\Windows`:                              nil,
		`D:\PROGRA~1`:                             nil,
	} {
		_, err := p.Parse(path, pathpolicy.MaxPath)
		simtest.WantErrorOf(t, path, err, want)
	}
	_, err := newPolicy(t).Parse(kubelet+`\pki\kubelet.crt`, pathpolicy.MaxPath)
	simtest.WantError(t, err, csiproxy.ErrInvalidArgument, `touches nothing in C:\var\lib\kubelet\pki`)
}

// A driver doesn't learn from a refusal which directories are allowed beside its own, nor where the daemon has its files.
func TestRefusedPathsOfDriver(t *testing.T) {
	p := mustNew(t, pathpolicy.Options{WorkingDirs: []string{`C:\work`, `C:\k`}, OwnFiles: []string{`C:\k\drivers.json`},
		Drivers: []pathpolicy.Driver{{Name: "red", Dirs: []string{`C:\work\red`}}, {Name: "blue"}}}).Within(pathpolicy.DriverPaths{Driver: "blue"})
	_, want := p.Parse(`C:\nothing\x`, pathpolicy.MaxPath)
	simtest.WantErrorOf(t, "a path outside", want, csiproxy.ErrPermissionDenied, "is not inside of the directories of driver blue")
	for _, path := range []string{`C:\work\x`, `C:\work\red\x`, `C:\k\x`, `C:\k\drivers.json`, `C:\Windows`, kubelet + `\pki`} {
		_, err := p.Parse(path, pathpolicy.MaxPath)
		simtest.Want(t, path, err.Error(), want.Error())
		simtest.WantErrorOf(t, path, err, csiproxy.ErrPermissionDenied)
	}
}

// Links lead to no system path, nor to where the rest of a path would lead to one.
func TestSystemPathsBehindLinks(t *testing.T) {
	sys, p := newNode(t), wide(t)
	must(t, sys.MkdirAll(`C:\work`))
	must(t, sys.MkdirAll(kubelet+`\pki`))
	for link, target := range map[string]string{`windows`: `C:\Windows`, `lib`: `C:\var\lib`, `relative`: `..\var\lib`, `root`: `\`} {
		must(t, sys.Symlink(`C:\work\`+link, target, true))
	}
	must(t, sys.Junction(`C:\work\junction`, `C:\var\lib`))
	for _, path := range []string{`windows\x`, `lib\kubelet\pki`, `lib\kubelet\pki\x`, `relative\kubelet\pki\x`, `root\Windows\x`, `root\PROGRA~1\x`,
		`junction\kubelet\pki\x`, `junction\KUBELE~1\pki\x`} {
		path = `C:\work\` + path
		_, err := p.Resolve(t.Context(), sys, mustParse(t, p, path))
		simtest.WantErrorOf(t, "resolve "+path, err, csiproxy.ErrPermissionDenied)
		err = p.ReachOrMake(t.Context(), sys, mustParse(t, p, path), func(pathpolicy.Entry) error { return errors.New("it was reached") })
		simtest.WantErrorOf(t, "reach "+path, err, csiproxy.ErrPermissionDenied)
		_, err = p.Exists(t.Context(), sys, mustParse(t, p, path))
		simtest.WantErrorOf(t, "look for "+path, err, csiproxy.ErrPermissionDenied)
	}
	if _, err := sys.ReadDir(kubelet + `\pki\x`); !errors.Is(err, winerr.ErrorFileNotFound) {
		t.Errorf("there is a directory in pki: %v", err)
	}
	if is, err := p.Exists(t.Context(), sys, mustParse(t, p, `C:\work\lib\kubelet\plugins`)); !is || err != nil {
		t.Errorf("beside pki: %t, %v", is, err)
	}
}

// What holds a system path stays: deleting the directory would delete it too.
func TestWhatHoldsSystemPathsStays(t *testing.T) {
	sys, p := newNode(t), wide(t)
	must(t, sys.MkdirAll(`C:\k\logs`))
	for path, want := range map[string]error{`C:\k`: csiproxy.ErrInvalidArgument, `C:\K\`: csiproxy.ErrInvalidArgument, `C:\k\logs`: nil} {
		err := p.Reach(t.Context(), sys, mustParse(t, p, path), pathpolicy.Entry.CheckReplaceable)
		simtest.WantErrorOf(t, path, err, want)
	}
}

// A working directory that is a link, or lies below one, is checked by where it really is, too: nothing there can be opened for
// deletion that is the system's, and what holds it stays.
func TestSystemPathsInLinkedDirectory(t *testing.T) {
	sys := newNode(t)
	for _, dir := range []string{`C:\Windows\System32`, kubelet + `\pki`, kubelet + `\plugins`, `C:\k\logs`, `C:\sub\x`, `C:\links`} {
		must(t, sys.MkdirAll(dir))
	}
	must(t, sys.WriteFile(`C:\k\csi-proxy.exe`, nil))
	must(t, sys.Symlink(`C:\Windows\System32\link`, `C:\sub`, true))
	must(t, sys.Symlink(`C:\k\logs\link`, `C:\sub`, true))
	for link, target := range map[string]string{`all`: `C:\`, `windows`: `C:\Windows`, `k`: `C:\k`, `kubelet`: kubelet, `lib`: `C:\var\lib`} {
		must(t, sys.Junction(`C:\links\`+link, target))
	}
	must(t, sys.MkdirAll(kubelet+`\Windows`))
	must(t, sys.Symlink(`C:\sub\way`, kubelet, true))
	volume, _ := newVolume(t, sys)
	must(t, sys.SetVolumeMountPoint(t.Context(), `D:\`, volume))
	must(t, sys.MkdirAll(`D:\tools`))
	must(t, sys.WriteFile(`D:\tools\csi-proxy.log`, nil))
	must(t, sys.Junction(`C:\tools`, `D:\tools`))
	mount(t, sys, `C:\links\mounted`, volume)
	must(t, sys.MkdirAll(`C:\links\mounted\Windows`))
	options := pathpolicy.Options{OwnFiles: []string{`C:\k\csi-proxy.exe`, `E:\missing\x.log`, `D:\tools\csi-proxy.log`}}
	for _, link := range []string{`links\all`, `links\windows`, `links\k`, `links\kubelet`, `links\lib\kubelet`, `links\mounted`, `tools`} {
		options.WorkingDirs = append(options.WorkingDirs, `C:\`+link)
	}
	p := mustNew(t, options)
	for path, want := range map[string]error{
		`all\Windows\System32`:   csiproxy.ErrPermissionDenied,
		`all\WINDOWS`:            csiproxy.ErrPermissionDenied,
		`all\PROGRA~1\x`:         csiproxy.ErrPermissionDenied,
		`all\k\csi-proxy.exe`:    csiproxy.ErrPermissionDenied,
		`all\k`:                  csiproxy.ErrInvalidArgument, // it holds the program
		`all\var`:                csiproxy.ErrInvalidArgument, // it holds kubelet's directory
		`windows\System32`:       csiproxy.ErrPermissionDenied,
		`k\csi-proxy.exe`:        csiproxy.ErrPermissionDenied,
		`kubelet\pki`:            csiproxy.ErrPermissionDenied,
		`lib\kubelet\pki`:        csiproxy.ErrPermissionDenied,
		`all\sub\x`:              nil,
		`all\k\logs`:             nil,
		`k\logs`:                 nil,
		`kubelet\plugins`:        nil,
		`lib\kubelet\plugins`:    nil,
		`mounted\Windows`:        nil,
		`all\sub\way\Windows`:    nil, // which is in kubelet's directory
		`C:\tools\csi-proxy.log`: csiproxy.ErrPermissionDenied,
	} {
		if !strings.HasPrefix(path, `C:\`) {
			path = `C:\links\` + path
		}
		err := p.Reach(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
			_, err := e.Open(t.Context(), win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
			return errors.Join(e.CheckReplaceable(), err)
		})
		simtest.WantErrorOf(t, path, err, want)
	}
	all, incomplete, err := p.Links(t.Context(), sys)
	must(t, errors.Join(incomplete, err))
	found := make(map[string]bool)
	for _, l := range all {
		found[l.Path.String()] = true
	}
	for path, want := range map[string]bool{`C:\links\all\k\logs\link`: true, `C:\links\all\Windows\System32\link`: false} {
		simtest.Want(t, "the search finds "+path, found[path], want)
	}
}

// The search for links leaves system paths out: no operation makes a link there, and Windows has more entries than the bound.
func TestSearchLeavesSystemPathsOut(t *testing.T) {
	sys := newNode(t)
	must(t, sys.MkdirAll(`C:\target`))
	for _, link := range []string{`C:\Windows\System32\link`, kubelet + `\pki\link`, `C:\other\link`} {
		must(t, sys.MkdirAll(link[:strings.LastIndexByte(link, '\\')]))
		must(t, sys.Symlink(link, `C:\target`, true))
	}
	all, incomplete, err := mustNew(t, pathpolicy.Options{WorkingDirs: []string{`C:\`}}).Links(t.Context(), sys)
	must(t, errors.Join(incomplete, err))
	var paths []string
	for _, l := range all {
		paths = append(paths, l.Path.String())
	}
	simtest.Want(t, "links", paths, []string{`C:\other\link`})
}

// A walk in a working directory takes two calls more than one in kubelet's directory, if that is no link.
func TestCallsInWorkingDirectory(t *testing.T) {
	sys := newNode(t)
	p := newPolicy(t, `C:\work`)
	calls := make(map[string]int)
	for _, dir := range []string{kubelet, `C:\work`} {
		must(t, sys.MkdirAll(dir+`\a\b`))
		path := mustParse(t, p, dir+`\a\b`)
		sys.OnCall(func(winsim.Call) { calls[dir]++ })
		must(t, p.Reach(t.Context(), sys, path, func(pathpolicy.Entry) error { return nil }))
		sys.OnCall(nil)
	}
	simtest.Want(t, "calls in the working directory", calls[`C:\work`], calls[kubelet]+2)
}

// What a working directory that is a link leads to must be known: else nothing is reached in it.
func TestLinkedDirectoryUnknown(t *testing.T) {
	for name, fail := range map[string]winsim.Match{
		"its final path": {Call: win.CallFinalPath, Object: `links\sub`}, "its drive": {Call: win.CallVolumeNameForMountPoint},
		"a system path": {Call: win.CallOpen, Object: `C:\k`},
	} {
		sys := newNode(t)
		for _, dir := range []string{`C:\links`, `C:\sub\x`, `C:\k`} {
			must(t, sys.MkdirAll(dir))
		}
		must(t, sys.Junction(`C:\links\sub`, `C:\sub`))
		p := mustNew(t, pathpolicy.Options{WorkingDirs: []string{`C:\links\sub`}, OwnFiles: []string{`C:\k\csi-proxy.exe`}})
		path := mustParse(t, p, `C:\links\sub\x`)
		must(t, p.Reach(t.Context(), sys, path, func(pathpolicy.Entry) error { return nil }))
		must(t, sys.Fail(fail, winerr.ErrorAccessDenied))
		err := p.Reach(t.Context(), sys, path, func(pathpolicy.Entry) error { return errors.New("it was reached") })
		simtest.WantErrorOf(t, name, err, winerr.ErrorAccessDenied)
	}
}

// The daemon's files have other names too: with a prefix, and by a short name, which stands for all names that it may be of.
func TestOwnFilesByOtherNames(t *testing.T) {
	p := mustNew(t, pathpolicy.Options{WorkingDirs: []string{`C:\`},
		OwnFiles: []string{`\\?\C:\k\csi-proxy.exe`, `\??\C:\k\drivers.json`, `C:\MYPROG~1\csi-proxy.exe`, `C:\logs\MYA1B2~1.LOG`}})
	for path, want := range map[string]error{
		`C:\k\csi-proxy.exe`:               csiproxy.ErrInvalidArgument,
		`C:\k\drivers.json`:                csiproxy.ErrInvalidArgument,
		`C:\My Programs\csi-proxy.exe`:     csiproxy.ErrInvalidArgument,
		`C:\m yprograms 2\CSI-PROXY.EXE`:   csiproxy.ErrInvalidArgument,
		`C:\logs\my log of the daemon.log`: csiproxy.ErrInvalidArgument,
		`C:\MyPrograms\other.exe`:          nil,
		`C:\Programs\csi-proxy.exe`:        nil,
		`C:\logs\other.log`:                nil,
	} {
		_, err := p.Parse(path, pathpolicy.MaxPath)
		simtest.WantErrorOf(t, path, err, want)
	}
	sys := newNode(t)
	must(t, sys.MkdirAll(`C:\My Programs`))
	must(t, sys.MkdirAll(`C:\Other`))
	for path, want := range map[string]error{`C:\My Programs`: csiproxy.ErrInvalidArgument, `C:\Other`: nil} {
		err := p.Reach(t.Context(), sys, mustParse(t, p, path), pathpolicy.Entry.CheckReplaceable)
		simtest.WantErrorOf(t, path, err, want)
	}
}

func TestSystemPathsAsAllowed(t *testing.T) {
	for _, dir := range []string{`C:\Windows`, `C:\Windows\Temp`, `C:\Program Files\x`, `C:\WINDOW~1\x`, kubelet + `\pki`, `C:\k\csi-proxy.exe`} {
		_, err := pathpolicy.New(pathpolicy.Options{WorkingDirs: []string{dir}, OwnFiles: []string{`C:\k\csi-proxy.exe`}})
		simtest.WantErrorOf(t, dir, err, csiproxy.ErrInvalidArgument)
	}
	for dir, want := range map[string][]string{
		`C:\`:     {`C:\Windows`, `C:\Program Files`, `C:\Program Files (x86)`, `C:\k\csi-proxy.exe`, kubelet},
		`c:\k`:    {`C:\k\csi-proxy.exe`},
		`C:\var`:  {kubelet},
		`C:\work`: nil,
		`D:\`:     nil,
	} {
		if got := wide(t).SystemPathsIn(dir); !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", dir, got, want)
		}
	}
}
