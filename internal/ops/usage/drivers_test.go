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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// part is the simulated node as one driver sees it: without the volumes of others. It counts the calls that begin with it.
type part struct {
	*winsim.System
	calls  int
	hidden map[string]error // by the name of a volume, without a backslash at the end
	// mounted are the directories of volumes, by their names.
	mounted map[string]string
}

func (p *part) check(path string) error {
	p.calls++
	for name, err := range p.hidden {
		if strings.HasPrefix(path, name) {
			return err
		}
	}
	return nil
}

func (p *part) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	if err := p.check(path); err != nil {
		return nil, err
	}
	return p.System.OpenFile(ctx, path, o)
}

func (p *part) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	if err := p.check(path); err != nil {
		return nil, err
	}
	return p.System.OpenDevice(ctx, path, access)
}

// VolumePathNames lists mount points in a volume below the directory where that is mounted, as Windows may do.
func (p *part) VolumePathNames(ctx context.Context, name string) ([]string, error) {
	paths, err := p.System.VolumePathNames(ctx, name)
	for i, path := range paths {
		for host, directory := range p.mounted {
			if rest, isBelow := strings.CutPrefix(path, host); isBelow {
				paths[i] = directory + `\` + rest
			}
		}
	}
	return paths, err
}

// shared is a node with the drivers red and blue, which each have a volume that the other one doesn't see.
type shared struct {
	sim     *winsim.System
	node    *usage.Finder
	own     map[string]*usage.Finder
	parts   map[string]*part // by driver; "" for the node
	whole   *part            // the whole node, by the calls of drivers
	volumes map[string]csiproxy.VolumeID
	owners  owners
}

func newShared(t *testing.T) *shared {
	t.Helper()
	s := &shared{sim: simtest.Open(t, winsim.Delays{}), own: make(map[string]*usage.Finder), parts: make(map[string]*part),
		volumes: make(map[string]csiproxy.VolumeID), owners: make(owners)}
	for _, driver := range []string{"red", "blue"} {
		name, disk := simtest.Volume(t, s.sim)
		s.volumes[driver], s.owners[disk] = csiproxy.VolumeID(name), driver
		simtest.Must(t, s.sim.MkdirAll(directoryOf(driver)))
	}
	paths, err := pathpolicy.New(pathpolicy.Options{Drivers: []pathpolicy.Driver{{Name: "red"}, {Name: "blue"}}})
	simtest.Must(t, err)
	s.parts[""], s.whole = &part{System: s.sim}, &part{System: s.sim}
	common := usage.NewSharedFinder(s.parts[""], paths, s.owners, slog.New(slog.DiscardHandler))
	s.node = usage.NewFinder(common)
	for driver, other := range map[string]string{"red": "blue", "blue": "red"} {
		s.parts[driver] = &part{System: s.sim, hidden: map[string]error{strings.TrimSuffix(string(s.volumes[other]), `\`): scope.ErrNotOwn}}
		s.own[driver] = usage.FinderForDriver(common, driver, s.parts[driver], s.whole, paths.Within(pathpolicy.DriverPaths{Driver: driver}))
	}
	return s
}

func directoryOf(driver string) string { return simtest.Kubelet + `\plugins\` + driver }

func second(_ usage.FoundLinks, incomplete, err error) error { return errors.Join(incomplete, err) }

func allLinks(ctx context.Context, f *usage.Finder) error {
	_, incomplete, err := f.AllLinks(ctx)
	return errors.Join(incomplete.Any(), err)
}

// What concerns the whole node is asked by calls of the driver, so that many of these keep nobody else waiting.
func TestDriversAskOfNodeByTheirOwnCalls(t *testing.T) {
	s := newShared(t)
	own := s.own["red"]
	simtest.Mount(t, s.sim, simtest.Kubelet+`\mount`, string(s.volumes["blue"])) // in a directory that is no driver's
	search := s.calls("", func() { simtest.Must(t, second(own.Links(t.Context(), ""))) })
	for name, test := range map[string]struct {
		ask         func(ctx context.Context) error
		callsOfNode int
	}{
		"SystemDisks":         {func(ctx context.Context) error { _, err := own.SystemDisks(ctx); return err }, 0},
		"ProtectedDisks":      {func(ctx context.Context) error { _, err := own.ProtectedDisks(ctx); return err }, 0},
		"MountsMissingVolume": {func(ctx context.Context) error { _, err := own.MountsMissingVolume(ctx, 0); return err }, search},
	} {
		before := s.whole.calls
		simtest.Want(t, name+": calls of the node", s.calls("", func() { simtest.Must(t, test.ask(t.Context())) }), test.callsOfNode)
		if s.whole.calls == before {
			t.Errorf("%s: no calls of the driver", name)
		}
	}
}

// calls counts the calls that begin with a part while f runs.
func (s *shared) calls(of string, f func()) int {
	before := s.parts[of].calls
	f()
	return s.parts[of].calls - before
}

// What a driver has in its own directories is searched and followed by its own system, whoever asks, and leads to nothing of others.
func TestDriversAreAskedByTheirOwnSystems(t *testing.T) {
	s := newShared(t)
	ctx := t.Context()
	var leading []string
	explained := make(map[string]string)
	search := func() {
		links, incomplete, err := s.node.AllLinks(ctx)
		simtest.Must(t, errors.Join(incomplete.Any(), err))
		leading, err = s.node.LinksToVolumeAmong(ctx, links, "red", s.volumes["red"])
		simtest.Must(t, err)
		for l := range links.All() {
			explained[l.Path.String()], err = s.node.ExplainEmpty(ctx, l)
			simtest.Must(t, err)
		}
	}
	nobodys := s.calls("", func() { simtest.Must(t, second(s.node.Links(ctx, ""))) })
	simtest.Want(t, "calls of the node to search all", s.calls("", func() { simtest.Must(t, allLinks(ctx, s.node)) }), nobodys)
	before := s.calls("", search)
	ofDriver := s.calls("blue", search)
	aside := directoryOf("blue") + `\kubernetes.io~secret`
	simtest.Must(t, s.sim.MkdirAll(aside+`\plain`))
	simtest.Must(t, s.sim.MkdirAll(aside+`\mount`))
	simtest.Must(t, s.sim.SetReparsePoint(aside+`\mount`, win.NewMountPoint(string(s.volumes["red"]))))
	published := simtest.Kubelet + `\pods\uid\volumes\kubernetes.io~csi\pv`
	simtest.Must(t, s.sim.MkdirAll(published))
	for link, target := range map[string]string{directoryOf("blue") + `\link`: aside + `\mount\x\y`, published + `\mount`: aside + `\mount\x\y`,
		directoryOf("blue") + `\plain`: aside + `\plain`, directoryOf("blue") + `\nothing`: aside + `\nothing\x`} {
		simtest.Must(t, s.sim.Symlink(link, target, true))
	}
	simtest.Want(t, "calls of the node", s.calls("", search), before)
	if after := s.calls("blue", search); after <= ofDriver {
		t.Errorf("%d calls of the driver with links, and %d without", after, ofDriver)
	}
	simtest.Want(t, "links that lead to the other driver's volume", len(leading), 0)
	simtest.Want(t, "reasons", explained, map[string]string{directoryOf("blue") + `\link`: "it leads to nothing", published + `\mount`: "it leads to nothing",
		directoryOf("blue") + `\plain`: "", directoryOf("blue") + `\nothing`: "it leads to nothing"})
}

// The links that a driver's finder returns are those in its own directories and in those of no driver, whichever driver is named.
func TestLinksAreOfOwnDriver(t *testing.T) {
	s := newShared(t)
	for _, driver := range []string{"red", "blue"} {
		simtest.Must(t, s.sim.Symlink(directoryOf(driver)+`\link`, directoryOf(driver), true))
	}
	for _, named := range []string{"", "red", "blue", "green"} {
		for driver, want := range map[string]string{"red": directoryOf("red") + `\link`, "blue": directoryOf("blue") + `\link`} {
			links, incomplete, err := s.own[driver].Links(t.Context(), named)
			simtest.Must(t, errors.Join(incomplete, err))
			if all := slices.Collect(links.All()); len(all) != 1 || all[0].Path.String() != want {
				t.Errorf("the links of %s to %q: %v", driver, named, all)
			}
		}
		links, incomplete, err := s.node.Links(t.Context(), named)
		simtest.Must(t, errors.Join(incomplete, err))
		simtest.Want(t, "links to the node by "+named, len(slices.Collect(links.All())), map[string]int{"red": 1, "blue": 1}[named])
	}
}

// To a driver, another's volume is missing. A volume that may be its own is so only if it has left.
func TestMissingToDriver(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(s *shared)
		want    bool
		err     error
	}{
		"its own":                       {func(*shared) {}, false, nil},
		"another's":                     {func(s *shared) { s.volumes["red"] = s.volumes["blue"] }, true, nil},
		"none":                          {func(s *shared) { s.volumes["red"] = `\\?\Volume{00000000-0000-0000-0000-000000000002}\` }, true, nil},
		"its own, not seen for a while": {func(s *shared) { s.hide("red") }, false, csiproxy.ErrUnavailable},
		"its own, whose disk has left": {func(s *shared) {
			for disk, owner := range s.owners {
				if owner == "red" {
					simtest.Must(t, s.sim.DetachDisk(disk))
				}
			}
		}, true, nil},
		"unknown": {func(s *shared) {
			simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.CallOpen, Object: strings.TrimSuffix(string(s.volumes["red"]), `\`)}, winerr.ErrorIODevice))
		}, false, winerr.ErrorIODevice},
	} {
		s := newShared(t)
		c.prepare(s)
		missing, err := s.own["red"].IsMissing(t.Context(), s.volumes["red"])
		simtest.WantErrorOf(t, name, err, c.err)
		simtest.Want(t, name+" is missing", missing, c.want)
	}
}

// hide hides a driver's volume from the driver itself.
func (s *shared) hide(driver string) {
	s.parts[driver].hidden[strings.TrimSuffix(string(s.volumes[driver]), `\`)] = winerr.ErrorFileNotFound
}

// A mount point of another driver's volume in a driver's own directory is one of a missing volume to that driver, and nothing to
// the other one. Where no driver has its own, a volume is missing if the node lacks it.
func TestMountsMissingToDriver(t *testing.T) {
	for name, c := range map[string]struct {
		path, volume string
		want         map[string]bool
	}{
		"another's in an own directory":   {directoryOf("red") + `\mount`, "blue", map[string]bool{"red": true, "blue": false, "": false}},
		"its own in an own directory":     {directoryOf("red") + `\mount`, "red", map[string]bool{"red": false, "blue": false, "": false}},
		"another's in nobody's directory": {simtest.Kubelet + `\mount`, "blue", map[string]bool{"red": false, "blue": false, "": false}},
	} {
		s := newShared(t)
		simtest.Must(t, s.sim.MkdirAll(c.path))
		simtest.Must(t, s.sim.SetReparsePoint(c.path, win.NewMountPoint(string(s.volumes[c.volume]))))
		for driver, want := range c.want {
			finder := s.node
			if driver != "" {
				finder = s.own[driver]
			}
			missing, err := finder.MountsMissingVolume(t.Context(), 0)
			simtest.Must(t, err)
			simtest.Want(t, name+": a missing volume is mounted, to "+driver, missing, want)
		}
	}
}

// A mount point in the own directories of another driver than the volume's is left out, and not asked. Others are asked by the
// system of the driver in whose directories they are.
func TestMountedAtInDirectoriesOfDrivers(t *testing.T) {
	s := newShared(t)
	ctx, id := t.Context(), string(s.volumes["red"])
	paths := []string{directoryOf("red") + `\mount`, simtest.Kubelet + `\mount`, directoryOf("blue") + `\mount`}
	for _, path := range paths {
		simtest.Must(t, s.sim.MkdirAll(path))
		simtest.Must(t, s.sim.SetVolumeMountPoint(ctx, path+`\`, id))
	}
	simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: directoryOf("blue"), Fires: winsim.MustNotFire}, winerr.ErrorIODevice))
	for who, finder := range map[string]*usage.Finder{"the driver": s.own["red"], "the node": s.node} {
		var mounted []string
		asked := s.calls("red", func() {
			var err error
			mounted, err = finder.MountedAt(ctx, id)
			simtest.Must(t, err)
		})
		for i, want := range []bool{true, true, false} {
			if got := strings.Contains(strings.Join(mounted, "\n")+"\n", paths[i]+"\n"); got != want {
				t.Errorf("%s: mounted at %q: %t", who, paths[i], got)
			}
		}
		if asked == 0 {
			t.Errorf("%s asks nothing by the driver's system", who)
		}
	}
	s.sim.ResetRules()
	staged, err := s.node.StagedAt(ctx, s.volumes["red"], paths)
	simtest.Must(t, err)
	simtest.Want(t, "where a driver's volume is staged", fmt.Sprint(staged), fmt.Sprint(paths[:1]))
	clear(s.owners)
	mounted, err := s.node.MountedAt(ctx, id)
	simtest.Must(t, err)
	simtest.Want(t, "mounts of a volume that is no driver's", len(mounted), len(paths))
	staged, err = s.node.StagedAt(ctx, s.volumes["red"], append(mounted, `C:\elsewhere`, `X:\`))
	simtest.Must(t, err)
	simtest.Want(t, "where that is staged", fmt.Sprint(staged), fmt.Sprint(paths[1:2]))
	staged, err = s.own["red"].StagedAt(ctx, s.volumes["red"], paths)
	simtest.Must(t, err)
	simtest.Want(t, "where it is staged to the driver", fmt.Sprint(staged), fmt.Sprint(paths[:1]))
	simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.IoctlVolumeGetVolumeDiskExtents.String()}, winerr.ErrorIODevice))
	_, err = s.node.MountedAt(ctx, id)
	simtest.WantErrorOf(t, "the owner is unknown", err, winerr.ErrorIODevice)
}

// A pod's mount point in the volume that it has from a driver, its own or another one, is no use of the volume which it names,
// if Windows lists it below the path where that is mounted. In a directory of its own, a driver may stage volumes below a staging path.
func TestMountPointInVolumeOfPod(t *testing.T) {
	for _, staging := range []string{`plugins\kubernetes.io\csi\red\1\globalmount`, `plugins\kubernetes.io\csi\green\1\globalmount`,
		`plugins\kubernetes.io\csi\pv\pv-1\globalmount`, `pods\uid\volumes\kubernetes.io~csi\pv-1\mount`} {
		for _, isMounted := range []bool{true, false} {
			for _, who := range []string{"red", ""} {
				s := newShared(t)
				pods, disk := simtest.Volume(t, s.sim)
				if strings.Contains(staging, "red") {
					s.owners[disk] = "red"
				}
				staging := simtest.Kubelet + `\` + staging
				if isMounted {
					simtest.Mount(t, s.sim, staging, pods)
				}
				s.mountAt(t, staging+`\mine`)
				s.parts["red"].mounted = map[string]string{pods: staging}
				s.parts[""].mounted = s.parts["red"].mounted
				isUse := !isMounted && strings.HasPrefix(staging, simtest.Kubelet+`\plugins`)
				simtest.Want(t, fmt.Sprintf("%s, mounted %t, by %q: uses", staging, isMounted, who), len(s.mountedTo(t, who)) > 0, isUse)
			}
		}
	}
}

// However many mount points of a volume a driver has planted in its directories, the owner of the volume is asked once.
func TestManyMountPoints(t *testing.T) {
	for who, most := range map[string]int{"red": 20, "": 30} {
		s := newShared(t)
		for i := range 100 {
			s.mountAt(t, fmt.Sprintf(`%s\mount%d`, directoryOf("blue"), i))
		}
		calls := 0
		s.sim.OnCall(func(winsim.Call) { calls++ })
		simtest.Want(t, "where it is mounted", len(s.mountedTo(t, who)), 0)
		if calls > most {
			t.Errorf("by %q: %d calls", who, calls)
		}
	}
}

// A volume with more mount points than Windows can list is mounted where the search of links finds it, and at many more places.
func TestTooManyMountPointsToList(t *testing.T) {
	s := newShared(t)
	for _, path := range []string{directoryOf("red"), simtest.Kubelet, directoryOf("blue"), `C:\logs`} {
		s.mountAt(t, path+`\mount`)
	}
	simtest.Mount(t, s.sim, directoryOf("red")+`\mine`, string(s.volumes["blue"]))
	query := winsim.Match{Call: win.CallVolumePathNames, Object: string(s.volumes["red"])}
	for who, finder := range map[string]*usage.Finder{"red": s.own["red"], "": s.node} {
		simtest.Must(t, s.sim.Fail(query, winerr.ErrorMoreData))
		simtest.Want(t, "where it is mounted", s.mountedTo(t, who), []string{simtest.Kubelet + `\mount`, directoryOf("red") + `\mount`,
			usage.ManyMore})
		for object, want := range map[string]error{directoryOf("red"): csiproxy.ErrUnavailable, simtest.Kubelet: csiproxy.ErrUnavailable} {
			broken := winsim.Match{Call: win.CallReadDir, Object: object, Count: 1}
			simtest.Must(t, s.sim.Fail(broken, winerr.ErrorIODevice))
			_, err := finder.MountedAt(t.Context(), string(s.volumes["red"]))
			simtest.WantErrorOf(t, "while not all links are known", err, want)
		}
		s.sim.ResetRules()
	}
	simtest.Must(t, s.sim.Fail(query, winerr.ErrorMoreData))
	simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.IoctlVolumeGetVolumeDiskExtents.String()}, winerr.ErrorIODevice))
	_, err := s.node.MountedAt(t.Context(), string(s.volumes["red"]))
	simtest.WantErrorOf(t, "the owner is unknown", err, winerr.ErrorIODevice)
}

// mountAt makes a mount point of red's volume.
func (s *shared) mountAt(t *testing.T, path string) {
	t.Helper()
	simtest.Must(t, s.sim.MkdirAll(path))
	simtest.Must(t, s.sim.SetVolumeMountPoint(t.Context(), path+`\`, string(s.volumes["red"])))
}

// mountedTo returns where red's volume is mounted, to a driver or the node.
func (s *shared) mountedTo(t *testing.T, who string) []string {
	t.Helper()
	finder := s.node
	if who != "" {
		finder = s.own[who]
	}
	mounted, err := finder.MountedAt(t.Context(), string(s.volumes["red"]))
	simtest.Must(t, err)
	return mounted
}

// Mount points outside of the allowed directories are asked for a fifth of a second in all, and one at a time. Those that give no
// answer count.
func TestMountPointsOutside(t *testing.T) {
	query := winsim.Match{Call: win.CallOpenAt, Object: "mine"}
	for name, test := range map[string]struct {
		begin func(s *shared) error
		asked int
		took  time.Duration
	}{
		"they answer":     {func(*shared) error { return nil }, 100, 0},
		"they hang":       {func(s *shared) error { return s.sim.DelayUncancellable(query, time.Hour) }, 1, 200 * time.Millisecond},
		"they are slow":   {func(s *shared) error { return s.sim.Delay(query, 30*time.Millisecond) }, 7, 200 * time.Millisecond},
		"they are broken": {func(s *shared) error { return s.sim.Fail(query, winerr.ErrorIODevice) }, 100, 0},
	} {
		for _, place := range []string{`C:\logs`, `X:`} {
			for _, who := range []string{"red", ""} {
				synctest.Test(t, func(t *testing.T) {
					s := newShared(t)
					simtest.Must(t, s.sim.SetVolumeLetter(string(s.volumes["blue"]), "X:"))
					for i := range 100 {
						s.mountAt(t, fmt.Sprintf(`%s\mine%d`, place, i))
					}
					simtest.Must(t, test.begin(s))
					asked := 0
					s.sim.OnCall(func(call winsim.Call) {
						if call.Name == win.CallOpenAt && strings.Contains(call.Object, "mine") {
							asked++
						}
					})
					begun := time.Now()
					what := fmt.Sprintf("%s, in %s, by %q: ", name, place, who)
					simtest.Want(t, what+"mount points", len(s.mountedTo(t, who)), 100)
					simtest.Want(t, what+"it took", time.Since(begun), test.took)
					simtest.Want(t, what+"asked", asked, test.asked)
					time.Sleep(2 * time.Hour) // of the bubble: until what hangs has ended
				})
			}
		}
	}
}

// To the node, a driver's volume counts as mounted in its own directory if that hangs.
func TestMountedWhereDirectoryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		path := directoryOf("red") + `\mount`
		simtest.Mount(t, s.sim, path, string(s.volumes["red"]))
		simtest.Must(t, s.sim.DelayUncancellable(winsim.Match{Call: win.CallOpenAt}, time.Hour))
		begun := time.Now()
		mounted, err := s.node.MountedAt(t.Context(), string(s.volumes["red"]))
		simtest.Must(t, err)
		simtest.Want(t, "where it is mounted", fmt.Sprint(mounted), fmt.Sprint([]string{path}))
		simtest.Want(t, "it took", time.Since(begun), 200*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = s.node.MountedAt(ctx, string(s.volumes["red"]))
		simtest.WantErrorOf(t, "the call ends before", err, context.DeadlineExceeded)
		time.Sleep(2 * time.Hour) // of the bubble: until what hangs has ended
	})
}

// To the node, what has left belongs to no driver: its links are those in the directories that are no driver's.
func TestOwnerOfWhatHasLeft(t *testing.T) {
	for name, prepare := range map[string]func(s *shared, disk csiproxy.DiskNumber){
		"volume": func(s *shared, disk csiproxy.DiskNumber) { simtest.Must(t, s.sim.DetachDisk(disk)) },
		"disk":   func(s *shared, disk csiproxy.DiskNumber) { s.owners[disk] = goneOwner },
	} {
		s := newShared(t)
		for disk, owner := range s.owners {
			if owner == "red" {
				prepare(s, disk)
			}
		}
		for _, dir := range []string{directoryOf("red"), directoryOf("blue"), simtest.Kubelet} {
			simtest.Must(t, s.sim.MkdirAll(dir+`\mount`))
			simtest.Must(t, s.sim.SetReparsePoint(dir+`\mount`, win.NewMountPoint(string(s.volumes["red"]))))
			simtest.Must(t, s.sim.Symlink(dir+`\link`, dir+`\mount`, true))
		}
		links, err := s.node.LinksToVolume(t.Context(), s.volumes["red"])
		simtest.Must(t, err)
		simtest.Want(t, "links, when the "+name+" has left", links, []string{simtest.Kubelet + `\link`})
	}
}

// Few calls of a driver hold links while Windows doesn't answer. Further ones wait, and those of another driver don't.
func TestCallsThatFollowLinksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		hangs := directoryOf("blue") + `\kubernetes.io~secret` // isn't searched
		simtest.Must(t, s.sim.MkdirAll(hangs))
		simtest.Must(t, s.sim.Symlink(directoryOf("blue")+`\link`, hangs+`\below`, true))
		var hanging atomic.Int64
		release := make(chan struct{})
		s.sim.OnCall(func(c winsim.Call) {
			if strings.Contains(c.Object, "secret") {
				hanging.Add(1)
				<-release
			}
		})
		var calls sync.WaitGroup
		for range 2 * 8 {
			calls.Go(func() {
				_, err := s.own["blue"].LinksToVolume(t.Context(), s.volumes["blue"])
				simtest.Must(t, err)
			})
			synctest.Wait()
		}
		simtest.Want(t, "hanging calls", hanging.Load(), 8)
		for _, ask := range []func(ctx context.Context) error{
			func(ctx context.Context) error {
				_, err := s.own["blue"].LinksToVolume(ctx, s.volumes["blue"])
				return err
			},
			func(ctx context.Context) error { _, err := s.own["blue"].MountsOf(ctx, 1); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			simtest.WantErrorOf(t, "one more call", ask(ctx), context.DeadlineExceeded)
			cancel()
		}
		_, err := s.own["red"].LinksToVolume(t.Context(), s.volumes["red"])
		simtest.Must(t, err)
		close(release)
		calls.Wait()
		s.sim.OnCall(nil)
	})
}

// A link into the directories of another driver is followed by the driver that asks, to which these aren't there.
func TestLinkIntoAnothersDirectoryIsNotFollowed(t *testing.T) {
	s := newShared(t)
	simtest.Must(t, s.sim.Symlink(simtest.Kubelet+`\link`, directoryOf("blue")+`\nothing`, true))
	links, incomplete, err := s.own["red"].AllLinks(t.Context())
	simtest.Must(t, errors.Join(incomplete.Any(), err))
	simtest.Want(t, "calls of the other driver", s.calls("blue", func() {
		for l := range links.All() {
			_, err := s.own["red"].ExplainEmpty(t.Context(), l)
			simtest.WantErrorOf(t, l.Path.String(), err, csiproxy.ErrPermissionDenied)
		}
	}), 0)
	simtest.Want(t, "links", len(slices.Collect(links.All())), 1)
}

// What can't be read outside of a driver's own directories isn't named to it: neither a directory nor the way of a link.
func TestPathsOfOthersInErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fail  string // the opens of which fail
		named bool   // whether the path is the driver's
	}{
		"a pod's directory": {`pods\secret`, false}, "an own directory": {`red\secret`, true},
	} {
		s := newShared(t)
		simtest.Must(t, s.sim.MkdirAll(directoryOf("red")+`\secret`))
		simtest.Must(t, s.sim.MkdirAll(simtest.Kubelet+`\pods\secret\volumes`))
		simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: c.fail}, winerr.ErrorAccessDenied))
		_, incomplete, err := s.own["red"].AllLinks(t.Context())
		simtest.Must(t, err)
		_, linksErr := s.own["red"].LinksToVolume(t.Context(), s.volumes["red"])
		simtest.WantErrorOf(t, name, linksErr, csiproxy.ErrUnavailable)
		for _, err := range []error{incomplete.Any(), linksErr} {
			if err == nil || strings.Contains(err.Error(), "secret") != c.named {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, incomplete, err = s.node.AllLinks(t.Context())
		simtest.Must(t, err)
		if incomplete.Any() == nil || !strings.Contains(incomplete.Any().Error(), "secret") {
			t.Errorf("%s, to the node: %v", name, incomplete)
		}
	}
	for path, named := range map[string]bool{simtest.Kubelet + `\secret`: false, directoryOf("red") + `\secret`: true} {
		s := newShared(t)
		simtest.Must(t, s.sim.MkdirAll(path))
		simtest.Mount(t, s.sim, path, string(s.volumes["red"]))
		simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.IoctlVolumeGetVolumeDiskExtents.String()}, winerr.ErrorIODevice))
		_, err := s.own["red"].MountsOf(t.Context(), 0)
		if err == nil || strings.Contains(err.Error(), "secret") != named {
			t.Errorf("mounts of a disk, with one at %s: %v", path, err)
		}
	}
	s := newShared(t)
	const published = simtest.Kubelet + `\pods\secret\volumes\kubernetes.io~csi\pv`
	simtest.Must(t, s.sim.MkdirAll(published+`\mount`))
	simtest.Must(t, s.sim.WriteFile(published+`\vol_data.json`, []byte(`{"driverName":"blue"}`)))
	simtest.Must(t, s.sim.Symlink(simtest.Kubelet+`\link`, published+`\mount\x\y`, true))
	simtest.Must(t, s.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `vol_data.json`}, winerr.ErrorAccessDenied))
	_, err := s.own["red"].LinksToVolume(t.Context(), s.volumes["red"])
	simtest.WantErrorOf(t, "the way of a link", err, csiproxy.ErrUnavailable)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the way of a link: %v", err)
	}
}

// A mount point of a missing volume counts for the disks of the driver in whose own directory it is, and for no others.
func TestMissingVolumeInAnothersDirectory(t *testing.T) {
	s := newShared(t)
	path := directoryOf("blue") + `\mount`
	simtest.Must(t, s.sim.MkdirAll(path))
	simtest.Must(t, s.sim.SetReparsePoint(path, win.NewMountPoint(`\\?\Volume{00000000-0000-0000-0000-000000000002}\`)))
	for disk, owner := range s.owners {
		missing, err := s.node.MountsMissingVolume(t.Context(), disk)
		simtest.Must(t, err)
		simtest.Want(t, "a missing volume is mounted, for a disk of "+owner, missing, owner == "blue")
	}
}
