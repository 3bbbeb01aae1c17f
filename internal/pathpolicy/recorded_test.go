// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/records"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

const source = kubelet + `\staged`

// makeLink makes a link to source at a path.
func makeLink(t *testing.T, sys *winsim.System, path string) {
	t.Helper()
	p := newPolicy(t)
	must(t, p.ReachMaking(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
		_, err := e.MakeSymlink(t.Context(), source, false,
			func(l pathpolicy.Link) bool { return strings.EqualFold(l.Target(), source) })
		return err
	}))
}

// wantFound looks whether another process finds the links at paths, and no others but mount
// points, and how many records there are then.
func wantFound(t *testing.T, sys *winsim.System, recorded int, paths ...string) {
	t.Helper()
	links, incomplete, err := newPolicy(t).Links(t.Context(), sys)
	must(t, err)
	must(t, incomplete)
	var found []string
	for _, l := range links {
		if !l.Link.IsMountPoint() {
			found = append(found, l.Path.String())
		}
	}
	if strings.Join(found, "\n") != strings.Join(paths, "\n") {
		t.Errorf("found %q, want %q", found, paths)
	}
	all, err := records.Links.All(t.Context(), sys)
	must(t, err)
	if len(all) != recorded {
		t.Errorf("there are records %v, want %d", all, recorded)
	}
}

// Links that we make are found wherever they lie, while they are there and lead to where we
// have led them.
func TestRecordedLinks(t *testing.T) {
	eight, nine := kubelet+strings.Repeat(`\d`, 7), kubelet+strings.Repeat(`\n`, 8)
	emptyDir := kubelet + `\pods\pod\volumes\kubernetes.io~empty-dir`
	for path, recorded := range map[string]int{
		eight + `\link`:          0,
		emptyDir:                 0, // which is no directory then
		nine + `\link`:           1,
		emptyDir + `\cache\link`: 1,
	} {
		t.Run(path, func(t *testing.T) {
			sys := newNode(t)
			wantFound(t, sys, 0)
			makeLink(t, sys, path)
			makeLink(t, sys, path)
			wantFound(t, sys, recorded, path)

			must(t, sys.Remove(path))
			wantFound(t, sys, 0)
		})
	}

	t.Run("leads elsewhere", func(t *testing.T) {
		sys := newNode(t)
		makeLink(t, sys, nine+`\link`)
		must(t, sys.Remove(nine+`\link`))
		must(t, sys.Symlink(nine+`\link`, kubelet+`\another`, true))
		wantFound(t, sys, 0)
	})
	t.Run("is a directory", func(t *testing.T) {
		sys := newNode(t)
		makeLink(t, sys, nine+`\link`)
		must(t, sys.Remove(nine+`\link`))
		must(t, sys.MkdirAll(nine+`\link`))
		wantFound(t, sys, 0)
	})
	t.Run("a link on the way", func(t *testing.T) {
		sys := newNode(t)
		makeLink(t, sys, emptyDir+`\cache\link`)
		must(t, sys.Remove(emptyDir+`\cache\link`))
		must(t, sys.Remove(emptyDir+`\cache`))
		must(t, sys.Symlink(emptyDir+`\cache`, `C:\Windows`, true))
		wantFound(t, sys, 0)
	})
	t.Run("somebody else's that we are asked for, too", func(t *testing.T) {
		sys := newNode(t)
		must(t, sys.MkdirAll(nine))
		must(t, sys.Symlink(nine+`\link`, strings.ToLower(source), true))
		wantFound(t, sys, 0)
		makeLink(t, sys, nine+`\link`)
		wantFound(t, sys, 1, nine+`\link`)
	})
	t.Run("in a volume", func(t *testing.T) {
		sys := newNode(t)
		volume, n := newVolume(t, sys)
		mount(t, sys, kubelet+`\mnt`, volume)
		makeLink(t, sys, kubelet+`\mnt\link`)
		wantFound(t, sys, 1, volume+`link`)
		must(t, sys.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}))
		sys.Settle()
		wantFound(t, sys, 1) // nobody can follow it
		must(t, sys.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskOffline}))
		sys.Settle()
		wantFound(t, sys, 1, volume+`link`)
	})
	t.Run("below an open directory", func(t *testing.T) {
		sys, p := newNode(t), newPolicy(t)
		deep := strings.Repeat(`\n`, 9)
		below := kubelet + `\other` + deep
		makeLink(t, sys, kubelet+deep+`\n`) // at the same path below another one
		makeLink(t, sys, below)
		var got []string
		must(t, p.Reach(t.Context(), sys, mustParse(t, p, kubelet+`\other`), func(e pathpolicy.Entry) error {
			dir, err := e.Open(t.Context(), pathpolicy.Directory(win.FileOpen))
			must(t, err)
			incomplete, err := dir.Links(t.Context(), func(l pathpolicy.FoundLink) { got = append(got, l.Path.String()) })
			return errors.Join(incomplete, err)
		}))
		if len(got) != 1 || got[0] != below {
			t.Errorf("found %q", got)
		}
	})
	t.Run("not to be looked at", func(t *testing.T) {
		sys := newNode(t)
		makeLink(t, sys, nine+`\link`)
		must(t, sys.Fail(winsim.Match{Call: "CreateFileW", Object: `C:\Windows\csi-proxy-links`}, win.ErrorAccessDenied))
		if _, incomplete, err := newPolicy(t).Links(t.Context(), sys); err != nil || incomplete == nil {
			t.Errorf("no reason for what is missing: %v", err)
		}
		sys.ResetRules()
		wantFound(t, sys, 1, nine+`\link`)
	})
}

// A record that can't be made keeps the link from being made.
func TestUnrecorded(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.Fail(winsim.Match{Call: "CreateFileW", Object: `C:\Windows\csi-proxy-links`}, win.ErrorAccessDenied))
	path := kubelet + strings.Repeat(`\n`, 9)
	makeIt := func() error {
		return p.ReachMaking(t.Context(), sys, mustParse(t, p, path), func(e pathpolicy.Entry) error {
			_, err := e.MakeSymlink(t.Context(), source, false, func(pathpolicy.Link) bool { return true })
			return err
		})
	}
	if makeIt() == nil {
		t.Error("the link is made without a record")
	}
	if _, err := sys.ReadLink(path); err == nil {
		t.Error("the link is there")
	}
	must(t, sys.Symlink(path, source+`\`, true))
	if makeIt() == nil {
		t.Error("somebody else's link is taken for ours without a record")
	}
	sys.ResetRules()
	wantFound(t, sys, 0)
	must(t, makeIt())
	wantFound(t, sys, 1, path) // recorded as it is written
}
