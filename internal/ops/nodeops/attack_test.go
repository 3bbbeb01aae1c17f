// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// scene is a directory below the kubelet directory in which an attacker can do
// anything, and one outside with the same names: whoever is led there finds what he
// looks for.
type scene struct {
	sys             *winsim.System
	inside, outside string
}

func newScene(t *testing.T, sys *winsim.System, volume string, n int) scene {
	t.Helper()
	s := scene{sys, fmt.Sprintf(`%s\pods\%d`, kubelet, n), fmt.Sprintf(`C:\outside\%d`, n)}
	for _, root := range []string{s.inside, s.outside} {
		must(t, sys.MkdirAll(root+`\a\b\tree\sub\empty`))
		must(t, sys.MkdirAll(root+`\a\b\empty`))
		must(t, sys.MkdirAll(root+`\source`))
		must(t, sys.WriteFile(root+`\a\b\tree\sub\deep`, []byte("deep")))
		must(t, sys.WriteFile(root+`\a\b\tree\file`, []byte("file")))
		mount(t, sys, root+`\a\b\tree\mnt`, volume)
		must(t, sys.Junction(root+`\a\b\tree\inner`, root+`\source`))
	}
	must(t, sys.WriteFile(s.outside+`\a\b\tree\secret`, nil))
	must(t, sys.Symlink(s.outside+`\a\b\tree\secretlink`, s.outside, true))
	return s
}

// swaps are what the attacker does to one of victims.
var (
	victims = []string{``, `\a\b`, `\a\b\tree`, `\a\b\tree\sub`, `\a\b\tree\sub\empty`, `\a\b\tree\mnt`, `\a\b\tree\file`, `\a\b\empty`, `\a\b\new`}
	swaps   = map[string]func(s scene, victim string) error{
		"rename": func(s scene, victim string) error {
			if err := s.sys.Rename(s.inside+victim, s.inside+`-moved`, false); err != nil {
				return err
			}
			return s.sys.Junction(s.inside+victim, s.outside+victim)
		},
		"replace": func(s scene, victim string) error {
			if err := s.sys.Remove(s.inside + victim); err != nil {
				return err
			}
			return s.sys.Symlink(s.inside+victim, s.outside+victim, true)
		},
		"in place": func(s scene, victim string) error {
			return s.sys.SetReparsePoint(s.inside+victim, win.NewJunction(s.outside+victim))
		},
	}
)

// In each operation, before each of its calls to Windows, each directory on and
// below its path is swapped for a link to the outside, if that can be done. Nothing
// may happen outside, and nothing outside may show.
func TestSwappedLinks(t *testing.T) {
	operations := map[string]func(t *testing.T, f *nodeops.Filesystem, dir string){
		"PathExists": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			if exists, _ := f.PathExists(t.Context(), dir+`\a\b\tree\secret`); exists {
				t.Error("a file outside was seen")
			}
		},
		"IsSymlink": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			if is, _ := f.IsSymlink(t.Context(), dir+`\a\b\tree\secretlink`); is {
				t.Error("a link outside was seen")
			}
		},
		"Mkdir": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.Mkdir(t.Context(), dir+`\a\b\new\x\y`)
		},
		"Mkdir in an empty one": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.Mkdir(t.Context(), dir+`\a\b\empty\x`)
		},
		"Rmdir of a tree": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.Rmdir(t.Context(), dir+`\a\b\tree`, true)
		},
		"Rmdir of an empty one": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.Rmdir(t.Context(), dir+`\a\b\empty`, false)
		},
		"Rmdir of a file": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.Rmdir(t.Context(), dir+`\a\b\tree\file`, true)
		},
		"Rmdir of a mount point": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.Rmdir(t.Context(), dir+`\a\b\tree\mnt`, false)
		},
		"RmdirContents": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.RmdirContents(t.Context(), dir+`\a\b\tree`)
		},
		"CreateSymlink": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.CreateSymlink(t.Context(), dir+`\source`, dir+`\a\b\link`)
		},
		"CreateSymlink in an empty one": func(t *testing.T, f *nodeops.Filesystem, dir string) {
			_ = f.CreateSymlink(t.Context(), dir+`\source`, dir+`\a\b\empty\link`)
		},
	}
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sys := newFileNode(t)
			f := newFilesystem(t, sys)
			volume, _ := newVolume(t, sys)
			mount(t, sys, `C:\mnt`, volume)
			must(t, sys.WriteFile(`C:\mnt\data`, []byte("data")))
			ofVolume, ofWindows := tree(t, sys, `C:\mnt`), tree(t, sys, `C:\Windows`)
			scenes, swapped := 0, 0
			for kind, swap := range swaps {
				for _, victim := range victims {
					for at, more := 0, true; more; at++ {
						s := newScene(t, sys, volume, scenes)
						scenes++
						before := tree(t, sys, s.outside)
						calls := 0
						sys.OnCall(func(winsim.Call) {
							if calls == at && swap(s, victim) == nil {
								swapped++
							}
							calls++
						})
						run(t, f, s.inside)
						sys.OnCall(nil)
						more = at < calls
						simtest.Want(t, fmt.Sprintf("%s of %q before call %d: the outside", kind, victim, at), tree(t, sys, s.outside),
							before)
						if open := sys.OpenHandles(); len(open) > 0 {
							t.Fatalf("%s of %q before call %d: still open: %q", kind, victim, at, open)
						}
					}
				}
			}
			if swapped == 0 {
				t.Error("nothing could be swapped")
			}
			t.Logf("%d scenes, %d swaps", scenes, swapped)
			simtest.Want(t, "the volume", tree(t, sys, `C:\mnt`), ofVolume)
			simtest.Want(t, `C:\Windows`, tree(t, sys, `C:\Windows`), ofWindows)
		})
	}
}
