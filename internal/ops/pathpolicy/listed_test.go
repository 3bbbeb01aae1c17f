// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"errors"
	"maps"
	"slices"
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

// Windows lists where volumes are mounted by paths without links. Listed finds the allowed directory in each of them.
func TestListed(t *testing.T) {
	sys := newNode(t)
	lettered, _ := newVolume(t, sys)
	must(t, sys.SetVolumeMountPoint(t.Context(), `D:\`, lettered))
	must(t, sys.MkdirAll(`D:\kubelet`))
	must(t, sys.MkdirAll(`D:\work\blue`))
	must(t, sys.Rename(kubelet, kubelet+`-old`, false))
	must(t, sys.Junction(kubelet, `D:\kubelet`))
	bare, _ := newVolume(t, sys)
	simtest.Mount(t, sys, `C:\work`, bare)
	must(t, sys.Junction(`C:\alias`, `D:\work`))
	p, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet, WorkingDirs: []string{`C:\work`, `C:\none`, `D:\work`, `C:\alias`},
		Drivers: []pathpolicy.Driver{{Name: "blue", Dirs: []string{`C:\alias\blue`}}}})
	must(t, err)
	want := map[string]string{ // the allowed paths that are found; "" for one outside
		`C:\VAR\lib\kubelet\x\`: kubelet + `\x`, kubelet + `\`: "", `C:\`: "", `D:\`: "", `C:\none\y\`: `C:\none\y`,
		`D:\Kubelet\a\b.\`: kubelet + `\a\b.`, `D:\kubelet\`: "", `D:\kubelets\a\`: "", `E:\kubelet\a\`: "", `C:\other\a\`: "",
		lettered + `kubelet\y\`: kubelet + `\y`, bare + `a\`: `C:\work\a`, bare: "", lettered + `a\`: "", `D:\kubelet\pki\a\`: "",
		`D:\work\blue\x\`: `C:\alias\blue\x`, `D:\work\red\`: `D:\work\red`,
	}
	for listed, path := range want {
		found, err := p.Listed(t.Context(), sys, []string{listed})
		must(t, err)
		parsed := found[0]
		if len(found) != 1 || parsed.IsOutside() != (path == "") || path != "" && parsed.String() != path ||
			!parsed.Equal(p.ParseListed(parsed.String())) {
			t.Errorf("%s: %v, want %q", listed, found, path)
		}
		if isDrive := parsed.IsDrive(); isDrive != (len(listed) == 3 || listed == bare) {
			t.Errorf("%s is a drive: %t", listed, isDrive)
		}
	}
	listed := slices.Collect(maps.Keys(want))
	must(t, sys.Fail(winsim.Match{Call: win.CallOpen, Object: kubelet, Count: 1}, winerr.ErrorAccessDenied))
	_, err = p.Listed(t.Context(), sys, listed)
	simtest.WantError(t, err, csiproxy.ErrPermissionDenied, kubelet)
	must(t, sys.Fail(winsim.Match{Call: win.CallVolumePathNames, Count: 1}, winerr.ErrorIODevice))
	_, err = p.Listed(t.Context(), sys, listed)
	simtest.WantErrorOf(t, "the volume of kubelet's directory", err, winerr.ErrorIODevice)
}

// Anybody can plant more mount points of the volume with kubelet's directory than Windows can list. Paths on its drive are found
// all the same; a drive that hangs isn't waited for.
func TestListedBesideTooManyMountPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newNode(t)
		for _, drive := range []string{"D:", "E:"} {
			lettered, _ := newVolume(t, sys)
			must(t, sys.SetVolumeMountPoint(t.Context(), drive+`\`, lettered))
		}
		must(t, sys.MkdirAll(`D:\kubelet`))
		must(t, sys.Rename(kubelet, kubelet+`-old`, false))
		must(t, sys.Junction(kubelet, `D:\kubelet`))
		must(t, sys.Fail(winsim.Match{Call: win.CallVolumePathNames}, winerr.ErrorMoreData))
		must(t, sys.DelayUncancellable(winsim.Match{Call: win.CallVolumeNameForMountPoint, Object: "E:"}, time.Hour))
		begun := time.Now()
		p := pathpolicy.Default()
		found, err := p.Listed(t.Context(), sys, []string{`D:\kubelet\x\`, `E:\kubelet\x\`, `D:\kubelet\y\`, `F:\kubelet\x\`})
		must(t, err)
		simtest.Want(t, "found", texts(found), []string{kubelet + `\x`, `E:\kubelet\x`, kubelet + `\y`, `F:\kubelet\x`})
		simtest.Want(t, "it took", time.Since(begun), 200*time.Millisecond)
		time.Sleep(2 * time.Hour) // of the bubble: until what hangs has ended
	})
}

func texts(paths []pathpolicy.Path) (texts []string) {
	for _, path := range paths {
		texts = append(texts, path.String())
	}
	return texts
}

// Anybody can plant 100,000 mount points of a volume, and each call about it reads them.
func TestListedAllocations(t *testing.T) {
	p, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet, Drivers: []pathpolicy.Driver{{Name: "blue"}, {Name: "red"}}})
	must(t, err)
	planted := slices.Repeat([]string{kubelet + `\pods\x\volumes\kubernetes.io~empty-dir\data\mine\`, kubelet + `\plugins\blue\x\`}, 50)
	allocations := testing.AllocsPerRun(1, func() {
		listed, err := p.Listed(t.Context(), nil, planted)
		must(t, err)
		for _, path := range listed {
			p.DriverOf(path)
			p.IsOfPod(path)
		}
	})
	if most := float64(10 * len(planted)); allocations > most {
		t.Errorf("%v allocations for %d paths, want at most %v", allocations, len(planted), most)
	}
}

// In whose own directories a volume is mounted is asked without its drives.
func TestDriversAt(t *testing.T) {
	sys := newNode(t)
	must(t, sys.Rename(kubelet, `C:\kubelet`, false))
	must(t, sys.Junction(kubelet, `C:\kubelet`))
	p, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet, Drivers: []pathpolicy.Driver{{Name: "blue"}, {Name: "red"}}})
	must(t, err)
	for listed, want := range map[string]map[string]bool{
		`C:\kubelet\plugins\blue\x\ ` + kubelet + `\plugins\red\x\`: {"blue": true, "red": true},
		`X:\ C:\kubelet\plugins\blue\x\`:                            {"blue": true},
		`C:\logs\x\ C:\kubelet\plugins\green\x\`:                    {"": true},
		`X:\`:                                                       {},
	} {
		drivers, err := p.DriversAt(t.Context(), sys, strings.Fields(listed))
		must(t, err)
		simtest.Want(t, listed, drivers, want)
	}
	must(t, sys.Fail(winsim.Match{Call: win.CallOpen}, winerr.ErrorIODevice))
	_, err = p.DriversAt(t.Context(), sys, []string{`C:\kubelet\plugins\blue\x\`})
	simtest.WantErrorOf(t, "kubelet's directory", err, winerr.ErrorIODevice)
}

// A volume mounted in a directory that is an allowed one by another path is found at each path that Windows has for it. With one
// allowed directory, its own paths take no call.
func TestListedByMountPoint(t *testing.T) {
	sys := newNode(t)
	bare, _ := newVolume(t, sys)
	simtest.Mount(t, sys, `C:\disk`, bare)
	must(t, sys.MkdirAll(`C:\disk\kubelet`))
	must(t, sys.Rename(kubelet, kubelet+`-old`, false))
	must(t, sys.Junction(kubelet, `C:\disk\kubelet`))
	p := pathpolicy.Default()
	found, err := p.Listed(t.Context(), sys, []string{`C:\disk\kubelet\x\`, bare + `kubelet\x\`})
	must(t, err)
	simtest.Want(t, "found", texts(found), []string{kubelet + `\x`, kubelet + `\x`})
	found, err = p.Listed(t.Context(), nil, []string{kubelet + `\x\`, `X:\`, "x"})
	must(t, err)
	simtest.Want(t, "found without a call", len(found), 2)
}

// VolumeAt tells which volume is mounted at a path, behind no link.
func TestVolumeAt(t *testing.T) {
	for name, prepare := range map[string]func(sys *winsim.System) error{
		"":                   func(*winsim.System) error { return nil },
		"with a bind filter": func(sys *winsim.System) error { return sys.SetSettings(winsim.Settings{BindFilter: true}) },
		"with one that errs": func(sys *winsim.System) error { return sys.SetSettings(winsim.Settings{BindFilterInvalid: true}) },
	} {
		sys := newNode(t)
		volume, _ := newVolume(t, sys)
		another, _ := newVolume(t, sys)
		for _, top := range []string{kubelet, `C:\logs`} {
			simtest.Mount(t, sys, top+`\a\b\mount`, volume)
			must(t, sys.MkdirAll(top+`\a\plain`))
			must(t, sys.WriteFile(top+`\a\file`, nil))
			must(t, sys.Junction(top+`\a\junction`, top+`\a\b`))
			must(t, sys.Symlink(top+`\a\unc`, `\\server\data`, true))
			simtest.Mount(t, sys, top+`\a\volume`, another)
			must(t, sys.MkdirAll(top+`\a\volume\inner`))
			must(t, sys.SetReparsePoint(top+`\a\volume\inner`, win.NewMountPoint(volume)))
		}
		must(t, prepare(sys))
		sys.OnCall(func(call winsim.Call) {
			if strings.Contains(call.Object, "server") {
				t.Errorf("%s: a link is followed: %v", name, call)
			}
		})
		for path, want := range map[string]string{
			`a\b\mount`: volume, `a\volume`: another, `a\plain`: "", `a\file`: "", `a\file\x`: "", `a\none`: "", `none\x`: "",
			`a\junction`: "", `a\unc`: "", `a\junction\mount`: "behind a link", `a\unc\mount`: "behind a link",
			`a\volume\inner`: "behind a link",
		} {
			for _, top := range []string{kubelet, `C:\logs`} {
				isInside := top == kubelet
				if !isInside && name != "" {
					continue // there is no filter
				}
				listed, err := pathpolicy.Default().Listed(t.Context(), sys, []string{top + `\` + path + `\`})
				must(t, err)
				got, err := pathpolicy.Default().VolumeAt(t.Context(), sys, listed[0].String())
				if want == "behind a link" {
					if errors.Is(err, winerr.ErrorReparsePointEncountered) == isInside || isInside && err != nil || got != "" {
						t.Errorf("%s %s: %q, %v", name, listed[0], got, err)
					}
					continue
				}
				must(t, err)
				simtest.Want(t, name+" "+listed[0].String(), got, want)
			}
		}
		simtest.Want(t, "open handles", len(sys.OpenHandles()), 0)
	}
}
