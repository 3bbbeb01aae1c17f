// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// node is a simulated node with a disk that has a volume.
type node struct {
	sim    *winsim.System
	number csiproxy.DiskNumber
	id     csiproxy.VolumeID
}

func newNode(t *testing.T) node {
	t.Helper()
	sim := simtest.Open(t, winsim.Delays{})
	n := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "moves"})
	simtest.Partition(t, sim, n, 1)
	sim.Settle()
	return node{sim, n, csiproxy.VolumeID(sim.VolumesOfDisk(n)[0])}
}

const (
	mountPath = simtest.Kubelet + `\mount`
	linkPath  = simtest.Kubelet + `\link`  // to mountPath
	again     = simtest.Kubelet + `\again` // to linkPath
	sharePath = simtest.Kubelet + `\share`
)

// newUsedNode returns a node whose volume is mounted, with links to it and to a share.
func newUsedNode(t *testing.T) node {
	t.Helper()
	n := newNode(t)
	simtest.Mount(t, n.sim, mountPath, string(n.id))
	simtest.Must(t, n.sim.Symlink(linkPath, mountPath, true))
	simtest.Must(t, n.sim.Symlink(again, linkPath, true))
	simtest.Must(t, n.sim.Symlink(sharePath, `\\server\share`, true))
	return n
}

func TestErrorAtEachCall(t *testing.T) {
	type operation = func(ctx context.Context, f *usage.Finder, n node) (any, error)
	operations := map[string]operation{
		"links to volume": func(ctx context.Context, f *usage.Finder, n node) (any, error) { return f.LinksToVolume(ctx, n.id) },
		"away":            func(ctx context.Context, f *usage.Finder, n node) (any, error) { return f.IsMissing(ctx, n.id) },
		"away, detached": func(ctx context.Context, f *usage.Finder, n node) (any, error) {
			detach(t, n)
			return f.IsMissing(ctx, n.id)
		},
		"a mount is away": func(ctx context.Context, f *usage.Finder, n node) (any, error) {
			detach(t, n)
			return f.MountsMissingVolume(ctx, 0)
		},
		"no mount is away": func(ctx context.Context, f *usage.Finder, n node) (any, error) {
			maybe, err := f.MountsMissingVolume(ctx, 0)
			if maybe && err == nil {
				err = simtest.ErrUnknown
			}
			return maybe, err
		},
		"mounts of disk": func(ctx context.Context, f *usage.Finder, n node) (any, error) { return f.MountsOf(ctx, n.number) },
		"mounts of disk, detached": func(ctx context.Context, f *usage.Finder, n node) (any, error) {
			detach(t, n)
			return f.MountsOf(ctx, n.number)
		},
		"protected disks": func(ctx context.Context, _ *usage.Finder, n node) (any, error) {
			protected, err := protecting(t, n, string(n.id)).ProtectedDisks(ctx)
			return protected[n.number], err
		},
		"missing volumes": func(ctx context.Context, _ *usage.Finder, n node) (any, error) {
			missing, err := protecting(t, n, string(n.id)).MissingVolumes(ctx)
			if missing[string(n.id)] { // what is never ready isn't there
				err = simtest.ErrUnknown
			}
			return missing, err
		},
		"an empty disk while a volume is missing": func(ctx context.Context, _ *usage.Finder, n node) (any, error) {
			d, err := opendisk.Open(ctx, n.sim, n.number, win.AccessNone)
			if err != nil {
				return nil, err
			}
			defer d.Close()
			err = protecting(t, n, "X:").CheckEmptyDisk(ctx, d)
			if errors.Is(err, csiproxy.ErrFailedPrecondition) { // it isn't known to be a data disk
				err = simtest.ErrUnknown
			}
			return nil, err
		},
	}
	attempts := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, do := range operations {
		attempts[name] = func(t *testing.T) simtest.Attempt {
			n := newUsedNode(t)
			f := usage.DefaultFinder(n.sim)
			return simtest.Attempt{Sys: n.sim, Run: func(ctx context.Context) (any, error) {
				return do(ctx, f, n)
			}}
		}
	}
	simtest.ErrorAtEachCall(t, attempts)
}

func detach(t *testing.T, n node) {
	t.Helper()
	if slices.ContainsFunc(n.sim.Disks(), func(d disks.Record) bool { return d.Number == n.number }) {
		simtest.Must(t, n.sim.DetachDisk(n.number))
	}
}

// protecting returns the finder for a node whose administrator protects volumes.
func protecting(t *testing.T, n node, volumes ...string) *usage.Finder {
	t.Helper()
	paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: simtest.Kubelet, ProtectedVolumes: volumes})
	simtest.Must(t, err)
	return usage.NewFinder(usage.NewSharedFinder(n.sim, paths, nil, slog.New(slog.DiscardHandler)))
}

// What is known of a volume that comes and goes.
func TestUsers(t *testing.T) {
	n := newUsedNode(t)
	f := protecting(t, n, string(n.id))
	is := func(what string, got, want any, err error) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
			t.Errorf("%s: %v, %v, want %v", what, got, err, want)
		}
	}
	links, err := f.LinksToVolume(t.Context(), n.id)
	is("links", links, []string{again, linkPath}, err)
	protected, err := f.ProtectedDisks(t.Context())
	is("protected", protected, map[csiproxy.DiskNumber]bool{0: true, n.number: true}, err)
	awaited, err := f.MountsMissingVolume(t.Context(), n.number)
	is("a mount is away", awaited, false, err)
	mounts, err := f.MountsOf(t.Context(), n.number)
	is("mounts of its disk", mounts, []string{mountPath}, err)
	mounts, err = f.MountsOf(t.Context(), n.number+1)
	is("mounts of another disk", mounts, []string{}, err)
	// One error proves nothing.
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: "CreateFileW", Object: string(n.id[:20]), Count: 1},
		winerr.ErrorDeviceNotConnected))
	_, err = f.IsMissing(t.Context(), n.id)
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: "CreateFileW", Object: string(n.id[:20]), Count: 1},
		winerr.ErrorDeviceNotConnected))
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallFindVolumes, Count: 1}, winerr.ErrorAccessDenied))
	_, err = f.IsMissing(t.Context(), n.id)
	simtest.WantError(t, err, csiproxy.ErrPermissionDenied)
	const hidden = simtest.Kubelet + `\hidden`
	simtest.Must(t, n.sim.MkdirAll(hidden))
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `hidden`}, winerr.ErrorAccessDenied))
	_, err = f.LinksToVolume(t.Context(), n.id)
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	awaited, err = f.MountsMissingVolume(t.Context(), n.number)
	is("a mount may be away", awaited, true, err)
	_, err = f.MountsOf(t.Context(), n.number)
	simtest.WantError(t, err, csiproxy.ErrPermissionDenied)
	n.sim.ResetRules()

	detach(t, n)
	away, err := f.IsMissing(t.Context(), n.id)
	is("away", away, true, err)
	awaited, err = f.MountsMissingVolume(t.Context(), n.number)
	is("a mount is away", awaited, true, err)
	protected, err = f.ProtectedDisks(t.Context())
	is("protected", protected, map[csiproxy.DiskNumber]bool{0: true}, err)
}

// owners has the disks of a node, and their drivers.
type owners map[csiproxy.DiskNumber]string

// goneOwner stands for a disk that has left.
const goneOwner = "gone"

func (o owners) OwnerOfNumber(_ context.Context, n csiproxy.DiskNumber) (string, error) {
	if o[n] == goneOwner {
		return "", winerr.ErrorNoSuchDevice
	}
	return o[n], nil
}
func (o owners) OwnerOfShare(string) string { return "" }

// What is in the own directories of one driver is no use of what another driver has, whoever asks: neither links and mount
// points there, nor the ways through them, nor what can't be read.
func TestDirectoriesOfAnotherDriver(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, n node){
		"nothing": func(*testing.T, node) {},
		"unreadable": func(t *testing.T, n node) {
			simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallReadDir, Object: `plugins\blue`}, winerr.ErrorIODevice))
		},
		"hangs": func(t *testing.T, n node) {
			simtest.Must(t, n.sim.Delay(winsim.Match{Call: win.CallReadDir, Object: `plugins\blue`}, time.Hour))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			const (
				blue   = simtest.Kubelet + `\plugins\blue\`
				own    = simtest.Kubelet + `\plugins\red\mount`
				of     = simtest.Kubelet + `\pods\uid\volumes\kubernetes.io~csi\`
				direct = of + `direct\mount`
			)
			for _, path := range []string{blue + "mount", own} {
				simtest.Must(t, n.sim.MkdirAll(path))
				simtest.Mount(t, n.sim, path, string(n.id))
			}
			simtest.Must(t, n.sim.MkdirAll(blue+`plain`))
			for link, target := range map[string]string{
				blue + `link`: own, blue + `plain\deep`: own, direct: own,
				of + `by-link\mount`: blue + `link`, of + `by-mount\mount`: blue + `mount\x`, of + `deep\mount`: blue + `plain\deep\x`,
			} {
				simtest.Must(t, n.sim.MkdirAll(link[:strings.LastIndex(link, `\`)]))
				simtest.Must(t, n.sim.Symlink(link, target, true))
			}
			paths, err := pathpolicy.New(pathpolicy.Options{Drivers: []pathpolicy.Driver{{Name: "red"}, {Name: "blue"}}})
			simtest.Must(t, err)
			shared := usage.NewSharedFinder(n.sim, paths, owners{n.number: "red"}, slog.New(slog.DiscardHandler))
			all := usage.NewFinder(shared)
			drivers := make(map[string]*usage.Finder)
			for _, driver := range []string{"red", "blue"} {
				drivers[driver] = usage.FinderForDriver(shared, driver, n.sim, n.sim, paths.Within(pathpolicy.DriverPaths{Driver: driver}))
			}
			begin(t, n)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for who, f := range map[string]*usage.Finder{"the driver": drivers["red"], "the node": all} {
				begun := time.Now()
				mounts, err := f.MountsOf(ctx, n.number)
				simtest.Must(t, err)
				simtest.Want(t, name+": mounts, to "+who, fmt.Sprint(mounts), fmt.Sprint([]string{own}))
				links, err := f.LinksToVolume(ctx, n.id)
				simtest.Must(t, err)
				simtest.Want(t, name+": links, to "+who, fmt.Sprint(links), fmt.Sprint([]string{direct}))
				simtest.Want(t, name+": how long it takes "+who, time.Since(begun), 0)
			}
			begun := time.Now()
			_, incomplete, err := all.AllLinks(ctx)
			simtest.Must(t, err)
			if took := time.Since(begun); took > 10*time.Second || (incomplete.Any() == nil) != (name == "nothing") {
				t.Errorf("%s: the search of all takes %v, and is incomplete by %v", name, took, incomplete)
			}
			time.Sleep(2 * time.Minute) // of the bubble: until the search that hangs has ended
		})
	}
}

// When a node is drained, many calls need the links at once: those that come during a search share the next one.
func TestSearchesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newUsedNode(t)
		f := usage.DefaultFinder(n.sim)
		simtest.Must(t, n.sim.Delay(winsim.Match{Call: win.CallReadDir}, time.Second))
		listings := func(callers int) int {
			before := n.sim.Calls()[win.CallReadDir]
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					if err := allLinks(t.Context(), f); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			return n.sim.Calls()[win.CallReadDir] - before
		}
		if one, all := listings(1), listings(110); one == 0 || all > 2*one {
			t.Errorf("one call lists %d directories, and 110 at one time %d", one, all)
		}
	})
}

// A link may lead to a volume by way of what isn't searched. What can't be found out is an error,
// and what the rules forbid, or a volume that is gone, is no use.
func TestLinksToVolume(t *testing.T) {
	const (
		mount, other = simtest.Kubelet + `\mount`, simtest.Kubelet + `\other-mount`
		link         = simtest.Kubelet + `\link`
		unsearched   = simtest.Kubelet + `\kubernetes.io~empty-dir\way`
	)
	for name, c := range map[string]struct {
		target string
		errno  winerr.Errno // of opens in the volume
		times  int
		want   []string
		kind   error
	}{
		"into the volume":                      {target: mount + `\sub`, want: []string{link}},
		"into it when it is silent":            {target: mount + `\sub`, errno: winerr.ErrorNotReady, times: 100, want: []string{link}},
		"by way of another link":               {target: simtest.Kubelet + `\found\sub`, want: []string{link, simtest.Kubelet + `\found`}},
		"to a mount point behind another link": {target: simtest.Kubelet + `\aside\mount`, want: []string{link}},
		"elsewhere":                            {target: simtest.Kubelet + `\other`},
		"through a way outside":                {target: simtest.Kubelet + `\outside\sub`},
		"by a pod's link":                      {target: unsearched + `\sub`, want: []string{link}},
		"into a volume not ready":              {target: unsearched + `\sub`, errno: winerr.ErrorNotReady, times: 100, kind: csiproxy.ErrUnavailable},
		"refused by Windows":                   {target: unsearched + `\sub`, errno: winerr.ErrorAccessDenied, times: 100, kind: csiproxy.ErrUnavailable},
		"by way of what is gone":               {target: unsearched + `\sub`, errno: winerr.ErrorDeviceNotConnected, times: 100},
		"gone for a moment":                    {target: unsearched + `\sub`, errno: winerr.ErrorDeviceNotConnected, times: 1, want: []string{link}},
		// Its pods choose what is in it.
		"by a link in another volume": {target: other + `\planted`},
		"into another, silent volume": {target: other + `\sub`, errno: winerr.ErrorNotReady, times: 100},
	} {
		sim := simtest.Open(t, winsim.Delays{})
		id, _ := simtest.Volume(t, sim)
		simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\other`))
		simtest.Must(t, sim.MkdirAll(`C:\elsewhere\sub`))
		simtest.Must(t, sim.Symlink(simtest.Kubelet+`\outside`, `C:\elsewhere`, true))
		simtest.Mount(t, sim, mount, id)
		simtest.Must(t, sim.MkdirAll(mount+`\sub`))
		second, _ := simtest.Volume(t, sim)
		simtest.Mount(t, sim, other, second)
		simtest.Must(t, sim.MkdirAll(other+`\sub`))
		simtest.Must(t, sim.Symlink(other+`\planted`, mount, true))
		simtest.Must(t, sim.MkdirAll(strings.TrimSuffix(unsearched, `\way`)))
		simtest.Must(t, sim.Symlink(unsearched, mount, true))
		simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\plain\mount`))
		simtest.Mount(t, sim, simtest.Kubelet+`\plain\mount`, id)
		simtest.Must(t, sim.Symlink(simtest.Kubelet+`\aside`, simtest.Kubelet+`\plain`, true))
		if strings.Contains(c.target, `\found`) {
			simtest.Must(t, sim.Symlink(simtest.Kubelet+`\found`, mount, true))
		}
		simtest.Must(t, sim.Symlink(link, c.target, true))
		paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: simtest.Kubelet})
		simtest.Must(t, err)
		all, incomplete, err := usage.NewFinder(usage.NewSharedFinder(sim, paths, nil, slog.New(slog.DiscardHandler))).AllLinks(t.Context())
		simtest.Must(t, errors.Join(incomplete.Any(), err))
		if c.errno != 0 {
			simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `sub`, Count: c.times, Fires: winsim.MayFire}, c.errno))
		}
		links, err := usage.DefaultFinder(sim).LinksToVolumeAmong(t.Context(), all, "", csiproxy.VolumeID(id))
		slices.Sort(links)
		slices.Sort(c.want)
		if !slices.Equal(links, c.want) || c.kind == nil && err != nil || !errors.Is(err, c.kind) {
			t.Errorf("%s: %q, %v", name, links, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = usage.DefaultFinder(sim).LinksToVolumeAmong(ctx, all, "", csiproxy.VolumeID(id))
		if csiproxy.KindOf(err) == csiproxy.ErrUnavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled: %v", name, err)
		}
	}
}

// Calls that share a search share its links, too: with many links, each call would otherwise take megabytes.
func TestCallsShareLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		simtest.Must(t, s.sim.Symlink(simtest.Kubelet+`\link`, simtest.Kubelet, true))
		simtest.Must(t, s.sim.Symlink(directoryOf("blue")+`\link`, simtest.Kubelet, true))
		finder := s.own["blue"]
		s.sim.OnCall(func(winsim.Call) { time.Sleep(time.Millisecond) }) // in virtual time, so that calls meet in a search
		var found [3][]*pathpolicy.FoundLink
		var all sync.WaitGroup
		for i := range found {
			all.Go(func() {
				links, incomplete, err := finder.AllLinks(t.Context())
				simtest.Must(t, errors.Join(incomplete.Any(), err))
				found[i] = slices.Collect(links.All())
				simtest.Want(t, "the link at its path", links.At(directoryOf("blue")+`\LINK`), found[i][1])
				simtest.Want(t, "the first link on a path", links.FirstOn(simtest.Kubelet+`\Link\below`), found[i][0])
				simtest.Want(t, "the first link on another path", links.FirstOn(simtest.Kubelet+`\none\`+strings.Repeat("x", 1000)), nil)
			})
			synctest.Wait() // the first one searches, and the others wait for the next search
		}
		all.Wait()
		s.sim.OnCall(nil)
		simtest.Want(t, "links", len(found[1]), 2)
		if found[1][0] != found[2][0] || found[0][0] == found[1][0] { // of the search that both have waited for
			t.Errorf("the calls have the links %p, %p and %p", found[0][0], found[1][0], found[2][0])
		}
	})
}

// The end of a chain of links is looked at once, however many links lead into it.
func TestManyLinksIntoChain(t *testing.T) {
	following := func(planted int) (calls int) {
		n := newNode(t)
		finder := usage.DefaultFinder(n.sim)
		simtest.Must(t, n.sim.MkdirAll(simtest.Kubelet+`\plain`))
		for i := range planted {
			simtest.Must(t, n.sim.Symlink(fmt.Sprint(simtest.Kubelet, `\`, i), simtest.Kubelet+`\chain`, true))
		}
		simtest.Must(t, n.sim.Symlink(simtest.Kubelet+`\chain`, simtest.Kubelet+`\plain\below`, true))
		simtest.Must(t, n.sim.Symlink(simtest.Kubelet+`\circle`, simtest.Kubelet+`\circle\below`, true))
		count := func(f func() error) int {
			calls := 0
			n.sim.OnCall(func(winsim.Call) { calls++ })
			simtest.Must(t, f())
			n.sim.OnCall(nil)
			return calls
		}
		search := count(func() error { _, _, err := finder.AllLinks(t.Context()); return err })
		return count(func() error { _, err := finder.LinksToVolume(t.Context(), n.id); return err }) - search
	}
	few := following(1)
	if few == 0 {
		t.Error("the end of the chain isn't looked at")
	}
	simtest.Want(t, "calls to follow many links", following(100), few)
}

// Of a chain of links to a volume, those count that can be followed to its end.
func TestLongChainOfLinks(t *testing.T) {
	n := newNode(t)
	simtest.Mount(t, n.sim, mountPath, string(n.id))
	target := mountPath
	for i := range 2 * usage.MaxLinksFollowed {
		link := fmt.Sprint(simtest.Kubelet, `\`, i)
		simtest.Must(t, n.sim.Symlink(link, target, true))
		target = link
	}
	links, err := usage.DefaultFinder(n.sim).LinksToVolume(t.Context(), n.id)
	simtest.Must(t, err)
	simtest.Want(t, "links", len(links), usage.MaxLinksFollowed-1) // and the mount point
}
