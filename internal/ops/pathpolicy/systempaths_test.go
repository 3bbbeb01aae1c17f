// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"errors"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
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
		Drivers: []pathpolicy.Driver{{Name: "red", Dirs: []string{`C:\work\red`}}, {Name: "blue"}}}).Within(pathpolicy.Territory{Driver: "blue"})
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
