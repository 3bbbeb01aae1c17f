// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"fmt"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Before each call that NewSMBGlobalMapping makes, somebody who can write in a
// directory on the way to the local path, or at it, leads it elsewhere, if that can
// be done. Nothing may appear outside or on another share.
func TestLocalPathIsSwapped(t *testing.T) {
	const outside = `C:\outside`
	for name, swap := range map[string]func(sys *winsim.System, dir string) error{
		"a directory renamed": func(sys *winsim.System, dir string) error {
			if err := sys.Rename(dir+`\a`, dir+`\moved`, false); err != nil {
				return err
			}
			return sys.Junction(dir+`\a`, outside)
		},
		"a directory replaced": func(sys *winsim.System, dir string) error {
			if err := sys.Remove(dir + `\a\b`); err != nil {
				return err
			}
			return sys.Symlink(dir+`\a\b`, outside, true)
		},
		"a directory made a link": func(sys *winsim.System, dir string) error {
			return sys.SetReparsePoint(dir+`\a\b`, win.NewJunction(outside))
		},
		"a directory made a link to another share": func(sys *winsim.System, dir string) error {
			return sys.SetReparsePoint(dir+`\a\b`, win.NewSymlink(`\\server\logs`))
		},
		"a link planted": func(sys *winsim.System, dir string) error {
			return sys.Symlink(dir+`\a\b\stage`, outside, true)
		},
		"a link to another share planted": func(sys *winsim.System, dir string) error {
			return sys.Symlink(dir+`\a\b\stage`, `\\server\logs\`, true)
		},
		"a junction planted": func(sys *winsim.System, dir string) error {
			return sys.Junction(dir+`\a\b\stage`, outside)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys, m := newNode(t)
			must(t, sys.MkdirAll(outside))
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, "", alice))
			swapped := 0
			for at, more := 0, true; more; at++ {
				dir := fmt.Sprintf(`%s\pods\%d`, kubelet, at)
				must(t, sys.MkdirAll(dir+`\a\b`))
				calls, done := 0, false
				sys.OnCall(func(winsim.Call) {
					if calls++; calls == at+1 {
						done = swap(sys, dir) == nil
					}
				})
				err := m.NewSMBGlobalMapping(t.Context(), `\\server\data`, dir+`\a\b\stage`, alice)
				sys.OnCall(nil)
				more = at < calls
				if done {
					swapped++
				}
				if err == nil && !done {
					must(t, sys.WriteFile(dir+`\a\b\stage\file`, nil))
				}
				for _, elsewhere := range []string{outside, `\\server\logs`} {
					if entries, err := sys.ReadDir(elsewhere); err != nil || len(entries) != 0 {
						t.Fatalf("before call %d: at %s there is %v, %v", at, elsewhere, entries, err)
					}
				}
				if open := sys.OpenHandles(); len(open) > 0 {
					t.Fatalf("before call %d: still open: %q", at, open)
				}
			}
			if swapped == 0 {
				t.Error("nothing could be swapped")
			}
		})
	}
}

// A link out to a share, whatever it is a share of, is the end of the way for all
// calls but those of whoever uses it.
func TestLinkToShareIsNotFollowed(t *testing.T) {
	sys, _ := newNode(t)
	must(t, sys.SMB().AddShare(smbserver.Share{Server: "localhost", Name: "C$"}))
	must(t, sys.SMB().SetUser("localhost", alice.Username, alice.Password))
	m := newMappings(t, sys, shares.Options{})
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\localhost\C$`, stage, alice))
	must(t, sys.WriteFile(stage+`\kept`, nil))
	n, err := nodeops.New(sys, nodeops.Options{})
	must(t, err)
	f := n.Filesystem
	for name, err := range map[string]error{
		"Mkdir":                  f.Mkdir(t.Context(), stage+`\dir`),
		"Rmdir":                  f.Rmdir(t.Context(), stage+`\kept`, true),
		"RmdirContents through":  f.RmdirContents(t.Context(), stage+`\dir`),
		"CreateSymlink":          f.CreateSymlink(t.Context(), kubelet+`\plugins`, stage+`\link`),
		"CreateSymlink to there": f.CreateSymlink(t.Context(), stage+`\kept`, kubelet+`\plugins\link`),
		"NewSMBGlobalMapping":    m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage+`\link`, alice),
	} {
		simtest.WantErrorOf(t, name, err, csiproxy.ErrPermissionDenied)
	}
	want(t, f.RmdirContents(t.Context(), stage), csiproxy.ErrFailedPrecondition)
	must(t, f.Rmdir(t.Context(), stage, true))
	entries, err := sys.ReadDir(`\\localhost\C$`)
	must(t, err)
	if len(entries) != 1 || entries[0].Name != "kept" {
		t.Errorf("on the share there is %v", entries)
	}
}
