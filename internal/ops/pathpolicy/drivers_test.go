// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// twoDrivers returns the policies of a node, by "", and of its drivers red and blue. red also has C:\work\red.
func twoDrivers(t *testing.T) map[string]*Policy {
	t.Helper()
	node, err := New(Options{KubeletPath: kubelet, WorkingDirs: []string{`C:\work`},
		Drivers: []Driver{{Name: "red", Dirs: []string{`C:\work\red`}}, {Name: "blue"}}})
	simtest.Must(t, err)
	node.linkEntries = 20
	return map[string]*Policy{"": node, "red": node.Within(DriverPaths{Driver: "red"}), "blue": node.Within(DriverPaths{Driver: "blue"})}
}

// A search covers the own directories of the driver that is named, and else those that are no driver's. So what is
// crowded in one driver's directories is incomplete there only.
func TestLinksOfDrivers(t *testing.T) {
	places := map[string]string{ // with the drivers to which they belong
		kubelet + `\plugins\red`: "red", kubelet + `\plugins\RED\below`: "red",
		kubelet + `\plugins\kubernetes.io\csi\blue`: "blue", kubelet + `\plugins\blue`: "blue", `C:\work\red`: "red",
		kubelet + `\plugins`: "", kubelet + `\plugins\redder`: "", kubelet + `\else`: "",
	}
	for crowded, owner := range places {
		sys := simtest.Open(t, winsim.Delays{})
		policies := twoDrivers(t)
		simtest.Must(t, sys.MkdirAll(kubelet+`\target`))
		for place := range places {
			simtest.Must(t, sys.MkdirAll(place))
		}
		links := map[string][]string{
			"":     {kubelet + `\plugins\redder\a-link`},
			"red":  {kubelet + `\plugins\red\a-link`, `C:\work\red\a-link`},
			"blue": {kubelet + `\plugins\blue\a-link`},
		}
		for _, paths := range links {
			for _, path := range paths {
				simtest.Must(t, sys.Symlink(path, kubelet+`\target`, true))
			}
		}
		for i := range policies[""].linkEntries + 1 {
			simtest.Must(t, sys.MkdirAll(fmt.Sprint(crowded, `\d`, i)))
		}
		for driver, want := range links {
			found, incomplete, err := policies[driver].Links(t.Context(), sys)
			simtest.Must(t, err)
			if isOwner := driver == owner; isOwner != errors.Is(incomplete, csiproxy.ErrResourceExhausted) || !isOwner && incomplete != nil {
				t.Errorf("%s is crowded: the search for %q is incomplete by %v", crowded, driver, incomplete)
			}
			var paths []string
			for _, l := range found {
				paths = append(paths, l.Path.String())
			}
			if owner != driver && !slices.Equal(paths, want) {
				t.Errorf("%s is crowded: the search for %q finds %q, want %q", crowded, driver, paths, want)
			}
		}
	}
}

// A driver's calls hold many deep directories, and are refused beyond a limit. The calls of others go on.
func TestManyHeldDirectories(t *testing.T) {
	sys, policies := simtest.Open(t, winsim.Delays{}), twoDrivers(t)
	var walks []*Walk
	hold := func(driver string) error {
		path, err := policies[driver].Parse(kubelet+`\plugins\`+driver+`\deep\x`, MaxPath)
		simtest.Must(t, err)
		walk := policies[driver].Walk(sys)
		walks = append(walks, walk)
		_, err = walk.Hold(t.Context(), path)
		return err
	}
	closeAll := func() {
		for _, walk := range walks {
			simtest.Must(t, walk.Close())
		}
	}
	for _, driver := range []string{"blue", "red"} {
		deep := kubelet + `\plugins\` + driver + strings.Repeat(`\d`, 1000)
		simtest.Must(t, sys.MkdirAll(deep))
		simtest.Must(t, sys.Symlink(kubelet+`\plugins\`+driver+`\deep`, deep, true))
	}
	for range 32 {
		simtest.Must(t, hold("blue"))
	}
	simtest.WantErrorOf(t, "more calls of the driver", hold("blue"), csiproxy.ErrResourceExhausted)
	simtest.Must(t, hold("red"))
	closeAll()
	simtest.Must(t, hold("blue"))
	closeAll()
	for driver, p := range policies {
		simtest.Want(t, "files held by "+driver, p.held.Load(), 0)
	}
}

// The memory that found links take is bounded in each search. Too many or too long links of one driver are missing from its own
// search only.
func TestMemoryOfLinks(t *testing.T) {
	const limit = 20 << 10
	for name, c := range map[string]struct {
		links, found int
		target       string
	}{
		"few short ones":       {20, 20, `target`},
		"many short ones":      {100, 29, `target`},
		"few long ones":        {20, 4, strings.Repeat(`x`, 3900)},
		"few with many names":  {20, 1, `target` + strings.Repeat(`\x`, 700)},
		"few with empty names": {20, 12, strings.Repeat(`\`, 1000)},
	} {
		sys := simtest.Open(t, winsim.Delays{})
		policies := twoDrivers(t)
		for driver, p := range policies {
			p.linkEntries, p.linkBytes = 1000, limit
			simtest.Must(t, sys.MkdirAll(kubelet+`\plugins\`+driver))
		}
		simtest.Must(t, sys.Symlink(kubelet+`\plugins\red\a-link`, kubelet+`\target`, true))
		simtest.Must(t, sys.Symlink(kubelet+`\plugins\other`, kubelet+`\target`, true))
		for i := range c.links {
			simtest.Must(t, sys.Symlink(fmt.Sprintf(`%s\plugins\blue\%d`, kubelet, i), kubelet+`\plugins\blue\`+c.target, true))
		}
		for driver, want := range map[string]int{"": 1, "red": 1, "blue": c.found} {
			found, incomplete, err := policies[driver].Links(t.Context(), sys)
			simtest.Must(t, err)
			simtest.Want(t, name+": links found for "+driver, len(found), want)
			if isCut := driver == "blue" && c.found < c.links; isCut != errors.Is(incomplete, csiproxy.ErrResourceExhausted) || !isCut && incomplete != nil {
				t.Errorf("%s: the search for %q is incomplete by %v", name, driver, incomplete)
			}
		}
	}
}

// The own directory of a driver may be a link, which its pod could make of an empty one: the link is found, and not followed.
func TestDirectoryOfDriverIsLink(t *testing.T) {
	sys := simtest.Open(t, winsim.Delays{})
	policies := twoDrivers(t)
	simtest.Must(t, sys.MkdirAll(kubelet+`\plugins\blue`))
	simtest.Must(t, sys.Symlink(kubelet+`\plugins\blue\below`, kubelet+`\plugins`, true))
	simtest.Must(t, sys.Symlink(kubelet+`\plugins\red`, kubelet+`\plugins\blue`, true))
	for driver, want := range map[string]int{"": 0, "red": 1, "blue": 1} {
		found, incomplete, err := policies[driver].Links(t.Context(), sys)
		simtest.Must(t, errors.Join(incomplete, err))
		simtest.Want(t, "links found for "+driver, len(found), want)
	}
}

// What a driver keeps open in its own directories delays no search but its own.
func TestLinksWaitForOwnDirectoriesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := simtest.Open(t, winsim.Delays{})
		policies := twoDrivers(t)
		for _, dir := range []string{kubelet + `\plugins\blue`, kubelet + `\plugins\red\busy`} {
			simtest.Must(t, sys.MkdirAll(dir))
		}
		simtest.Must(t, sys.Fail(winsim.Match{Call: win.CallOpenAt, Object: `plugins\blue`}, winerr.ErrorSharingViolation))
		simtest.Must(t, sys.Fail(winsim.Match{Call: win.CallOpenAt, Object: `busy`, Count: 3}, winerr.ErrorSharingViolation))
		for driver, wait := range map[string]time.Duration{"": 0, "red": 15 * time.Millisecond, "blue": waitLimit} {
			begun := time.Now()
			_, incomplete, err := policies[driver].Links(t.Context(), sys)
			simtest.Must(t, err)
			simtest.Want(t, "wait for "+driver, time.Since(begun), wait)
			if (driver == "blue") != errors.Is(incomplete, winerr.ErrorSharingViolation) {
				t.Errorf("the search for %q is incomplete by %v", driver, incomplete)
			}
		}
	})
}

// Kubelet's file says which driver may use a published path. Whoever isn't named there gets the same answer as where
// nothing is.
func TestPublishedPathOfKubelet(t *testing.T) {
	const directory = kubelet + `\pods\uid\volumes\kubernetes.io~csi\pv`
	long := `{"driverName":"red","volumeHandle":"` + strings.Repeat("v", maxVolumeData) + `"}`
	for contents, want := range map[string]string{
		`{"attachmentID":"csi-0","driverName":"red","volumeHandle":"v","volumeLifecycleMode":"Persistent"}` + "\n": "red",
		`{"driverName":"RED"} and more`: "red",
		`{"driverName":"blue"}`:         "blue",
		`{"driverName":"redder"}`:       "", `{"driverName":""}`: "", `{}`: "", ``: "", "\x00\x00": "", `{"driverName":"red"`: "",
		`{"driverName":["red"]}`: "", `{"driverName":"red","volumeHandle":1}`: "", `"red"`: "", "\ufeff" + `{"driverName":"red"}`: "",
		long: "", "missing": "", "a link": "", "a link, by a filter": "",
	} {
		sys := simtest.Open(t, winsim.Delays{})
		policies := twoDrivers(t)
		red := policies["red"]
		simtest.Must(t, sys.MkdirAll(directory))
		switch data := directory + `\vol_data.json`; contents {
		case "missing":
		case "a link", "a link, by a filter":
			simtest.Must(t, sys.SetSettings(winsim.Settings{BindFilter: contents != "a link"}))
			simtest.Must(t, sys.WriteFile(kubelet+`\planted`, []byte(`{"driverName":"red"}`)))
			simtest.Must(t, sys.Symlink(data, kubelet+`\planted`, false))
			held, err := sys.OpenFile(t.Context(), kubelet+`\planted`, win.OpenOptions{Access: win.FileListDirectory, Disposition: win.FileOpen})
			simtest.Must(t, err) // nobody else can open it: the link isn't followed
			defer held.Close()
		default:
			simtest.Must(t, sys.WriteFile(data, []byte(contents)))
		}
		var texts []string
		for _, p := range []*Policy{red, policies["blue"], policies[""]} {
			path, err := p.Parse(directory+`\mount`, MaxPath)
			simtest.Must(t, err)
			_, readErr := p.Exists(t.Context(), sys, path)
			makeErr := p.ReachOrMake(t.Context(), sys, path, func(Entry) error { return nil })
			simtest.Want(t, contents+": reading and making", fmt.Sprint(makeErr), fmt.Sprint(readErr))
			switch {
			case p.driverPaths == nil || p.driverPaths.driver == want:
				simtest.Must(t, readErr)
			default:
				simtest.WantError(t, readErr, csiproxy.ErrPermissionDenied)
				texts = append(texts, strings.ReplaceAll(readErr.Error(), p.driverPaths.driver, "DRIVER"))
			}
		}
		for _, text := range texts {
			simtest.Want(t, contents+": the answer", text, "kubelet's vol_data.json in the volume's directory doesn't name driver DRIVER")
		}
		none, err := red.Parse(kubelet+`\pods\none\volumes\kubernetes.io~csi\pv\mount`, MaxPath)
		simtest.Must(t, err)
		_, err = red.Exists(t.Context(), sys, none)
		simtest.Want(t, "the answer where nothing is", fmt.Sprint(err),
			"kubelet's vol_data.json in the volume's directory doesn't name driver red")
	}
}

// published returns a node where kubelet has red publish at a path, and a plain directory is there.
func published(t *testing.T) (sys *winsim.System, directory string) {
	t.Helper()
	sys, directory = simtest.Open(t, winsim.Delays{}), kubelet+`\pods\uid\volumes\kubernetes.io~csi\pv`
	simtest.Must(t, sys.MkdirAll(directory+`\mount\below`))
	simtest.Must(t, sys.WriteFile(directory+`\vol_data.json`, []byte(`{"driverName":"red"}`)))
	simtest.Must(t, sys.MkdirAll(kubelet+`\plugins\red\below`))
	return sys, directory
}

// In a published path and beside it, a driver makes, replaces and deletes nothing but what is at that path.
func TestChangesAtPublishedPath(t *testing.T) {
	makeDirectory := func(ctx context.Context, e Entry) error {
		_, err := e.Open(ctx, Directory(win.FileCreate))
		return err
	}
	makeLink := func(ctx context.Context, e Entry) error {
		_, err := e.MakeSymlink(ctx, kubelet+`\plugins\red`, false, func(Link) bool { return false })
		return err
	}
	openToDelete := func(ctx context.Context, e Entry) error {
		_, err := e.Open(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
		return err
	}
	var sys *winsim.System
	var directory string
	for _, test := range []struct {
		what, path string
		change     func(ctx context.Context, e Entry) error
		want       error
	}{
		{"a directory made in it", `\mount\new`, makeDirectory, csiproxy.ErrPermissionDenied},
		{"a link made in it", `\mount\new`, makeLink, csiproxy.ErrPermissionDenied},
		{"what is in it deleted", `\mount\below`, openToDelete, csiproxy.ErrPermissionDenied},
		{"the directory of it made", ``, makeDirectory, winerr.ErrorAlreadyExists},
		{"a link made in place of its directory", ``, makeLink, csiproxy.ErrPermissionDenied},
		{"a link made where its directory was", ``, func(ctx context.Context, e Entry) error {
			for _, name := range []string{`\mount\below`, `\mount`, `\vol_data.json`, ``} {
				simtest.Must(t, sys.Remove(directory+name))
			}
			return makeLink(ctx, e)
		}, csiproxy.ErrPermissionDenied},
		{"its directory deleted", ``, openToDelete, csiproxy.ErrPermissionDenied},
		{"a directory made at it", `\mount`, makeDirectory, winerr.ErrorAlreadyExists},
		{"a link made at it", `\mount`, makeLink, csiproxy.ErrAlreadyExists},
		{"what is at it deleted", `\mount`, openToDelete, nil},
	} {
		sys, directory = published(t)
		red := twoDrivers(t)["red"]
		path, err := red.Parse(directory+test.path, MaxPath)
		simtest.Must(t, err)
		err = red.Reach(t.Context(), sys, path, func(e Entry) error { return test.change(t.Context(), e) })
		simtest.WantErrorOf(t, test.what, err, test.want)
	}
}

// If kubelet's file can't be read, nothing is done at the published path: a directory of that name is refused by Windows.
func TestUnreadableFileOfKubelet(t *testing.T) {
	sys, directory := published(t)
	simtest.Must(t, sys.Remove(directory+`\vol_data.json`))
	simtest.Must(t, sys.MkdirAll(directory+`\vol_data.json`))
	red := twoDrivers(t)["red"]
	path, err := red.Parse(directory+`\mount`, MaxPath)
	simtest.Must(t, err)
	simtest.WantErrorOf(t, "Reach", red.Reach(t.Context(), sys, path, func(Entry) error { return errors.New("it was reached") }),
		winerr.ErrorAccessDenied)
}

// Only directories of kubelet's own names are published paths.
func TestPathsLikePublishedOnes(t *testing.T) {
	red := twoDrivers(t)["red"]
	for path, want := range map[string]error{
		`volumes\kubernetes.io~csi\pv\mount`:         nil,
		`Volumes\Kubernetes.io~CSI\pv\Mount\x`:       nil,
		`volumes\kubernetes.io~csi\pv`:               nil,
		`volumes\kubernetes.io~csi`:                  csiproxy.ErrPermissionDenied,
		`volumes\kubernetes.io~csi\pv\other`:         csiproxy.ErrPermissionDenied,
		`volumes\kubernetes.io~secret\pv\mount`:      csiproxy.ErrPermissionDenied,
		`other\kubernetes.io~csi\pv\mount`:           csiproxy.ErrPermissionDenied,
		`volume-subpaths\kubernetes.io~csi\pv\mount`: csiproxy.ErrPermissionDenied,
	} {
		_, err := red.Parse(kubelet+`\pods\uid\`+path, MaxPath)
		simtest.WantErrorOf(t, path, err, want)
	}
}

// A driver mounts volumes in its own directories, and in its volumes, but at no published path.
func TestMountPathsOfDriver(t *testing.T) {
	policies := twoDrivers(t)
	sys, directory := published(t)
	inVolume := Path{volume: `\\?\Volume{00000000-0000-0000-0000-000000000001}\`, names: []string{"x"}}
	for _, test := range []struct {
		driver string
		path   string
		want   error
	}{
		{"red", directory + `\mount`, csiproxy.ErrPermissionDenied}, {"red", kubelet + `\plugins\red\x`, nil},
		{"", directory + `\mount`, nil}, {"", kubelet + `\x`, nil},
	} {
		p := policies[test.driver]
		path, err := p.Parse(test.path, MaxPath)
		simtest.Must(t, err)
		simtest.WantErrorOf(t, test.driver+" at "+test.path, p.CheckMountPath(path), test.want)
		simtest.Must(t, p.CheckMountPath(inVolume))
	}
	path, err := policies["red"].Parse(directory+`\mount`, MaxPath)
	simtest.Must(t, err)
	for what, change := range map[string]func(f *File) error{
		"mount":   func(f *File) error { return f.Mount(t.Context(), inVolume.volume) },
		"unmount": func(f *File) error { return f.Unmount(t.Context()) },
	} {
		err = policies["red"].Reach(t.Context(), sys, path, func(e Entry) error {
			f, err := e.Open(t.Context(), Directory(win.FileOpen))
			simtest.Must(t, err)
			return change(f)
		})
		simtest.WantErrorOf(t, what, err, csiproxy.ErrPermissionDenied)
	}
}

// A driver makes links to its own directories and shares.
func TestLinkTargetsOfDriver(t *testing.T) {
	sys, _ := published(t)
	red := twoDrivers(t)[""].Within(DriverPaths{Driver: "red", Share: func(path string) bool { return path == `\\red\share` }})
	for target, want := range map[string]error{
		`\\red\share`: nil, `\\blue\share`: csiproxy.ErrPermissionDenied, kubelet + `\plugins\red\below`: nil, `C:\work\red\x`: nil,
		kubelet + `\plugins\blue`: csiproxy.ErrPermissionDenied, kubelet + `\pods\uid\volumes\kubernetes.io~csi\pv\mount`: csiproxy.ErrPermissionDenied,
		`C:\Windows`: csiproxy.ErrPermissionDenied,
	} {
		path, err := red.Parse(kubelet+`\plugins\red\link`, MaxPath)
		simtest.Must(t, err)
		err = red.Reach(t.Context(), sys, path, func(e Entry) error {
			_, err := e.MakeSymlink(t.Context(), target, false, func(Link) bool { return false })
			return err
		})
		simtest.WantErrorOf(t, "to "+target, err, want)
		if err == nil {
			simtest.Must(t, sys.Remove(kubelet+`\plugins\red\link`))
		}
	}
}

// What a driver's links lead to is checked with the names behind them: beside a published path, and in another driver's directory, the
// driver reaches nothing, and isn't told where the link leads.
func TestLinksOutOfDriver(t *testing.T) {
	sys, directory := published(t)
	red := twoDrivers(t)["red"]
	simtest.Must(t, sys.MkdirAll(kubelet+`\plugins\blue\below`))
	simtest.Must(t, sys.Symlink(kubelet+`\plugins\red\pv`, directory, true))
	simtest.Must(t, sys.Symlink(kubelet+`\plugins\red\other`, kubelet+`\plugins\blue`, true))
	for path, want := range map[string]error{
		`pv\mount`: nil, `pv\vol_data.json`: csiproxy.ErrPermissionDenied, `pv\other\below`: csiproxy.ErrPermissionDenied,
		`other\below`: csiproxy.ErrPermissionDenied,
	} {
		parsed, err := red.Parse(kubelet+`\plugins\red\`+path, MaxPath)
		simtest.Must(t, err)
		err = red.Reach(t.Context(), sys, parsed, func(Entry) error { return nil })
		simtest.WantErrorOf(t, path, err, want)
		if err != nil && strings.Contains(err.Error(), "blue") {
			t.Errorf("%s: the error names the other driver: %v", path, err)
		}
	}
}

// Where a link leads to another driver's share, a driver finds nothing.
func TestSharesOfDriver(t *testing.T) {
	sys, _ := published(t)
	red := twoDrivers(t)[""].Within(DriverPaths{Driver: "red", Share: func(path string) bool { return path == `\\red\share` }})
	for target, want := range map[string]Resolved{
		`\\red\share`: {Kind: SharedDirectory, Target: `\\red\share`}, `\\blue\share`: {Hidden: true},
	} {
		link := kubelet + `\plugins\red\link`
		simtest.Must(t, sys.Symlink(link, target, true))
		path, err := red.Parse(link, MaxPath)
		simtest.Must(t, err)
		resolved, err := red.Resolve(t.Context(), sys, path)
		simtest.Must(t, err)
		simtest.Want(t, target+" resolved", resolved, want)
		found, err := red.Lookup(t.Context(), sys, path)
		simtest.Must(t, err)
		want.Hidden = false
		simtest.Want(t, target+" looked up", found, want)
		simtest.Must(t, sys.Remove(link))
	}
}

// Of links to a driver's own directories, only those in its directories, and those at published paths, are its own.
func TestOwnLinks(t *testing.T) {
	red := twoDrivers(t)["red"]
	target, err := red.Parse(kubelet+`\plugins\red\below`, MaxPath)
	simtest.Must(t, err)
	for path, want := range map[string]int{
		`plugins\red\link`: 1, `pods\uid\volumes\kubernetes.io~csi\pv\mount`: 1,
		`pods\uid\volumes\kubernetes.io~csi\pv`: 0, `pods\uid\volumes\kubernetes.io~csi\pv\mount\below`: 0,
	} {
		at, err := red.Parse(kubelet+`\`+path, MaxPath)
		simtest.Must(t, err)
		simtest.Want(t, path, len(red.Own(slices.Values([]*FoundLink{{Path: at, Link: Link{Kind: LinkInside, Path: target}}}))), want)
	}
}

// A driver's policy asks the check of its own which volumes Windows runs from.
func TestProtectedVolumesOfDriver(t *testing.T) {
	sys := simtest.Open(t, winsim.Delays{})
	check := func(reason string) VolumeCheck {
		return func(context.Context, string) (string, map[string]string, error) { return reason, nil, nil }
	}
	node, err := New(Options{Drivers: []Driver{{Name: "red"}}, OfTheNode: check("the node's")})
	simtest.Must(t, err)
	for want, p := range map[string]*Policy{"the node's": node.Within(DriverPaths{Driver: "red"}),
		"the driver's": node.Within(DriverPaths{Driver: "red", OfTheNode: check("the driver's")})} {
		reason, err := p.Protects(t.Context(), sys, `\\?\Volume{00000000-0000-0000-0000-000000000001}\`)
		simtest.Must(t, err)
		simtest.Want(t, "the reason", reason, want)
	}
}
