// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/google/go-cmp/cmp"
)

// resolve is ResolveVolume with the volume in the result, and checks that Resolve says the
// same.
func resolve(t *testing.T, sys *winsim.System, p *pathpolicy.Policy, path string) (pathpolicy.Resolved, error) {
	t.Helper()
	plain, err := p.Resolve(t.Context(), sys, mustParse(t, p, path))
	must(t, err)
	r, volume, err := p.ResolveVolume(t.Context(), sys, mustParse(t, p, path))
	if r != plain {
		t.Errorf("%s: %v, and with its volume %v", path, plain, r)
	}
	// Lookup may see nothing where Resolve sees something, but nothing else.
	found, lookupErr := p.Lookup(t.Context(), sys, mustParse(t, p, path))
	if lookupErr != nil || found.Kind != pathpolicy.Nothing && found != plain {
		t.Errorf("%s: %v, and by Lookup %v, %v", path, plain, found, lookupErr)
	}
	r.Volume = volume
	return r, err
}

func TestResolve(t *testing.T) {
	sys, p := newNode(t), newPolicy(t, `C:\missing`)
	volume, disk := newVolume(t, sys)
	system, err := sys.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\mnt\in`))
	must(t, sys.Symlink(kubelet+`\todir`, `dir`, true))
	must(t, sys.Symlink(kubelet+`\tofile`, `file`, false))
	must(t, sys.Symlink(kubelet+`\tomnt`, kubelet+`\mnt`, true))
	must(t, sys.Symlink(kubelet+`\twice`, kubelet+`\tomnt`, true))
	must(t, sys.Symlink(kubelet+`\toin`, kubelet+`\mnt\in`, true))
	must(t, sys.Symlink(kubelet+`\mnt\in\top`, `..`, true))
	must(t, sys.Symlink(kubelet+`\dangling`, `none\x`, true))
	must(t, sys.Symlink(kubelet+`\danglingin`, kubelet+`\mnt\none`, true))
	must(t, sys.Symlink(kubelet+`\toroot`, kubelet, true))
	must(t, sys.Symlink(kubelet+`\tomissing`, `C:\missing`, true))
	must(t, sys.Symlink(kubelet+`\share`, `\\server\share\`, true))
	must(t, sys.Symlink(kubelet+`\toshare`, `share`, true))
	must(t, sys.Symlink(kubelet+`\evil`, `C:\Windows`, true))
	must(t, sys.Symlink(kubelet+`\loop`, `loop`, true))
	must(t, sys.MkdirAll(kubelet+`\evilmnt`))
	must(t, sys.SetReparsePoint(kubelet+`\evilmnt`, win.NewMountPoint(system)))
	must(t, sys.MkdirAll(kubelet+`\noshare`))
	must(t, sys.SetReparsePoint(kubelet+`\noshare`, win.ReparsePoint{Tag: win.TagSymlink, SubstituteName: `\\server\share`, Relative: true}))

	wants := map[string]pathpolicy.Resolved{
		kubelet:                  {Kind: pathpolicy.PlainDirectory, Volume: system},
		`C:\missing`:             {Kind: pathpolicy.Nothing, Volume: system},
		`C:\missing\x\y`:         {Kind: pathpolicy.Nothing, Volume: system},
		kubelet + `\dir`:         {Kind: pathpolicy.PlainDirectory, Volume: system},
		kubelet + `\file`:        {Kind: pathpolicy.PlainFile, Volume: system},
		kubelet + `\file\x`:      {Kind: pathpolicy.Nothing, Volume: system},
		kubelet + `\none`:        {Kind: pathpolicy.Nothing, Volume: system},
		kubelet + `\none\x`:      {Kind: pathpolicy.Nothing, Volume: system},
		kubelet + `\mnt`:         {Kind: pathpolicy.MountedVolume, Volume: volume, Target: volume},
		kubelet + `\mnt\in`:      {Kind: pathpolicy.PlainDirectory, Volume: volume},
		kubelet + `\mnt\none\x`:  {Kind: pathpolicy.Nothing, Volume: volume},
		kubelet + `\todir`:       {Kind: pathpolicy.PlainDirectory, Volume: system, Target: `dir`, ByLink: true},
		kubelet + `\tofile`:      {Kind: pathpolicy.PlainFile, Volume: system, Target: `file`, ByLink: true},
		kubelet + `\tomnt`:       {Kind: pathpolicy.MountedVolume, Volume: volume, Target: volume, ByLink: true},
		kubelet + `\twice`:       {Kind: pathpolicy.MountedVolume, Volume: volume, Target: volume, ByLink: true},
		kubelet + `\twice\in`:    {Kind: pathpolicy.PlainDirectory, Volume: volume},
		kubelet + `\toin`:        {Kind: pathpolicy.PlainDirectory, Volume: volume, Target: kubelet + `\mnt\in`, ByLink: true},
		kubelet + `\mnt\in\top`:  {Kind: pathpolicy.PlainDirectory, Volume: volume, Target: `..`, ByLink: true},
		kubelet + `\dangling`:    {Kind: pathpolicy.Nothing, Volume: system, Target: `none\x`, ByLink: true},
		kubelet + `\danglingin`:  {Kind: pathpolicy.Nothing, Volume: volume, Target: kubelet + `\mnt\none`, ByLink: true},
		kubelet + `\toroot`:      {Kind: pathpolicy.PlainDirectory, Volume: system, Target: kubelet, ByLink: true},
		kubelet + `\tomissing`:   {Kind: pathpolicy.Nothing, Volume: system, Target: `C:\missing`, ByLink: true},
		kubelet + `\tomissing\x`: {Kind: pathpolicy.Nothing, Volume: system},
		kubelet + `\share`:       {Kind: pathpolicy.SharedDirectory, Target: `\\server\share\`},
		kubelet + `\toshare`:     {Kind: pathpolicy.SharedDirectory, Target: `\\server\share\`, ByLink: true},
	}
	for path, want := range wants {
		want.InVolume = want.Volume == volume && want.Kind != pathpolicy.MountedVolume
		got, err := resolve(t, sys, p, path)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", path, err, diff)
		}
	}

	for path, want := range map[string]error{
		kubelet + `\evil`:      csiproxy.ErrPermissionDenied,
		kubelet + `\evil\x`:    csiproxy.ErrPermissionDenied,
		kubelet + `\evilmnt`:   csiproxy.ErrPermissionDenied,
		kubelet + `\evilmnt\x`: csiproxy.ErrPermissionDenied,
		kubelet + `\share\x`:   csiproxy.ErrPermissionDenied,
		kubelet + `\noshare`:   csiproxy.ErrPermissionDenied,
		kubelet + `\loop`:      csiproxy.ErrFailedPrecondition,
	} {
		if got, err := p.Resolve(t.Context(), sys, mustParse(t, p, path)); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", path, got, err, want)
		}
	}

	// A volume that has left the node is still what is mounted, and what lies in
	// it is gone.
	must(t, sys.DetachDisk(disk))
	for path, want := range map[string]pathpolicy.Resolved{
		kubelet + `\tomnt`:  {Kind: pathpolicy.MountedVolume, Volume: volume, Target: volume, ByLink: true},
		kubelet + `\mnt\in`: {Kind: pathpolicy.Nothing, Volume: system},
		kubelet + `\toin`:   {Kind: pathpolicy.Nothing, Volume: system, Target: kubelet + `\mnt\in`, ByLink: true},
	} {
		got, err := resolve(t, sys, p, path)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s without its disk: %v\n%s", path, err, diff)
		}
	}
}

func TestExists(t *testing.T) {
	sys, p := newNode(t), newPolicy(t, `C:\missing`)
	must(t, sys.MkdirAll(kubelet+`\dir`))
	must(t, sys.WriteFile(kubelet+`\file`, nil))
	must(t, sys.Symlink(kubelet+`\dangling`, `none`, true))
	must(t, sys.Symlink(kubelet+`\evil`, `C:\Windows`, true))
	sys.OnCall(func(call winsim.Call) { // that would follow the link, wherever it leads
		if call.Name == win.CallOpen && strings.HasPrefix(call.Object, kubelet+`\evil\`) {
			t.Errorf("%s was opened by its path", call.Object)
		}
	})
	for path, want := range map[string]bool{
		kubelet:                 true,
		`C:\missing`:            false,
		`C:\missing\x`:          false,
		kubelet + `\DIR`:        true,
		kubelet + `\file`:       true,
		kubelet + `\file\x`:     false,
		kubelet + `\none`:       false,
		kubelet + `\none\x`:     false,
		kubelet + `\dangling`:   true,
		kubelet + `\dangling\x`: false,
		kubelet + `\evil`:       true,
	} {
		got, err := p.Exists(t.Context(), sys, mustParse(t, p, path))
		if got != want || err != nil {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	got, err := p.Exists(t.Context(), sys, mustParse(t, p, kubelet+`\evil\System32`))
	if got || !errors.Is(err, csiproxy.ErrPermissionDenied) {
		t.Errorf("behind a link outside: %v, %v", got, err)
	}
	must(t, sys.WriteFile(`C:\missing`, nil))
	got, err = p.Exists(t.Context(), sys, mustParse(t, p, `C:\missing\x`))
	if got || !errors.Is(err, winerr.ErrorDirectory) {
		t.Errorf("below an allowed directory that is a file: %v, %v", got, err)
	}
}

// A volume is unmounted at a path, or at a directory above it, in the moment in which that is
// looked at.
func TestResolveWhileSomebodyUnmounts(t *testing.T) {
	for _, path := range []string{kubelet + `\mnt`, kubelet + `\mnt\a`} {
		sys, p := newNode(t), newPolicy(t)
		volume, _ := newVolume(t, sys)
		mount(t, sys, kubelet+`\mnt`, volume)
		sys.OnCall(func(c winsim.Call) {
			if c.Name == win.FsctlGetReparsePoint.String() {
				sys.OnCall(nil)
				must(t, sys.DeleteVolumeMountPoint(t.Context(), kubelet+`\mnt\`))
			}
		})
		want := pathpolicy.PlainDirectory
		if path != kubelet+`\mnt` {
			want = pathpolicy.Nothing
		}
		if r, err := resolve(t, sys, p, path); err != nil || r.Kind != want {
			t.Errorf("%s leads to %+v, %v", path, r, err)
		}
	}
}

func TestResolveFailures(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\mnt\a`))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\mnt\a`, true))
	eachCallFails(t, sys, func() error {
		_, _, err := p.ResolveVolume(t.Context(), sys, mustParse(t, p, kubelet+`\link`))
		return err
	})
	must(t, sys.MkdirAll(kubelet+`\mnt\a\b`))
	eachCallFails(t, sys, func() error {
		return p.Examine(t.Context(), sys, mustParse(t, p, kubelet+`\link\b`), pathpolicy.ForAttributes,
			func(*pathpolicy.File) error { return nil })
	})
}

// What Windows refuses to say of a name is asked by an open.
func TestExistsIfTheQueryByNameFails(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, sys.MkdirAll(kubelet+`\a`))
	must(t, sys.Fail(winsim.Match{Call: win.CallAttributesWithoutLinks}, winerr.ErrorInvalidParameter))
	if got, err := p.Exists(t.Context(), sys, mustParse(t, p, kubelet+`\a`)); !got || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// One query by a name tells what is a link nowhere on its way, and nothing of the rest.
func TestAskByName(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(kubelet+`\a\b`))
	must(t, sys.WriteFile(kubelet+`\a\file`, nil))
	mount(t, sys, kubelet+`\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\mnt\b`))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\a`, true))
	for path, want := range map[string]pathpolicy.ByName{
		`\a\b`: pathpolicy.PlainByName, `\a\file`: pathpolicy.PlainByName,
		`\a\none`: pathpolicy.NothingByName, `\none\b`: pathpolicy.NothingByName,
		`\link`: pathpolicy.LinkByName, `\link\b`: pathpolicy.UnknownByName, `\link\none`: pathpolicy.UnknownByName,
		`\mnt`: pathpolicy.LinkByName, `\mnt\b`: pathpolicy.UnknownByName,
	} {
		got, err := p.AskByName(t.Context(), sys, mustParse(t, p, kubelet+path))
		if got != want || errors.Is(err, fs.ErrNotExist) != (want == pathpolicy.NothingByName) {
			t.Errorf("%s: %v, %v, want %v", path, got, err, want)
		}
	}
}

// However deep a path is, asking whether it exists takes one call without a handle, unless there are links on the way or
// Windows takes the drive for one: then two opens.
func TestExistsAsksOnce(t *testing.T) {
	for _, isLink := range []bool{false, true} {
		sys, p := newNode(t), newPolicy(t)
		must(t, sys.SetSettings(winsim.Settings{DriveIsLink: isLink}))
		must(t, sys.MkdirAll(kubelet+`\a\b\c\d`))
		for path, want := range map[string]bool{kubelet + `\a\b\c\d`: true, kubelet + `\a\b\x\d`: false, kubelet: true} {
			before := sys.Calls()
			if got, err := p.Exists(t.Context(), sys, mustParse(t, p, path)); got != want || err != nil {
				t.Errorf("%s: %v, %v", path, got, err)
			}
			calls := 0
			for call, n := range sys.Calls() {
				calls += n - before[call]
			}
			if most := map[bool]int{false: 1, true: 3}[isLink]; calls > most {
				t.Errorf("%s takes %d calls, and %d at most", path, calls, most)
			}
		}
	}
}

// Lookup takes three calls however deep the path is.
func TestLookup(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	const deep = kubelet + `\a\b\c\d`
	must(t, sys.MkdirAll(deep+`\dir`))
	mount(t, sys, deep+`\mnt`, volume)
	must(t, sys.Symlink(deep+`\share`, `\\server\share`, true))
	must(t, sys.Symlink(deep+`\link`, deep+`\mnt`, true))
	for path, want := range map[string]pathpolicy.Resolved{
		`\mnt`:   {Kind: pathpolicy.MountedVolume, Volume: volume, Target: volume},
		`\share`: {Kind: pathpolicy.SharedDirectory, Target: `\\server\share`},
		`\link`:  {},
		`\dir`:   {},
		`\none`:  {},
	} {
		before := 0
		for _, n := range sys.Calls() {
			before += n
		}
		got, err := p.Lookup(t.Context(), sys, mustParse(t, p, deep+path))
		calls := -before
		for _, n := range sys.Calls() {
			calls += n
		}
		if got != want || err != nil || calls > 3 {
			t.Errorf("%s: %+v, %v, with %d calls, want %+v", path, got, err, calls, want)
		}
	}
}
