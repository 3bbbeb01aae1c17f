// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// growth is a table of costs by the size of something on the node.
type growth struct {
	of    string // what there are so many of
	sizes []int
	// steps returns operations on a node of one size. They run one after the other.
	steps func(n testNode, size int) []step
	// eachCall is what each call to Windows takes at least. It decides which of several operations comes first.
	eachCall time.Duration
}

// step is an operation, or several at once.
type step struct {
	name string
	do   func(ctx context.Context) error

	// grows says that the costs may grow with the size, in proportion at most. Otherwise they are constant.
	grows bool
	// shared says that operations at once share one query, or the next one if they come during that.
	shared bool
	// excess is how much more each further operation may cost than the first ones, as a fraction of that.
	excess float64
	// spread is how much the costs may differ from those in figures.txt, as a fraction of these: which operations share
	// a query depends on which comes first.
	spread float64
}

const (
	own         = "own"           // the serial number of the disk of the measured operations
	ownDriver   = "a.example.com" // which makes them
	ownPod      = simtest.Kubelet + `\pods\own`
	ownTarget   = ownPod + published
	shareServer = "server"
)

var (
	ownStaging   = stagedBy(ownDriver, 0)
	shareStaging = stagedBy(ownDriver, 1)
)

// growths are the tables of figures.txt.
var growths = []growth{
	{"other disks on the node, with a mounted volume each", []int{0, 9, 59, 199}, besideDisks, 0},
	{"pods on the node, with a published volume each", []int{0, 30, 110, 250}, besidePods, 0},
	{"directories above the path", []int{2, 10, 60}, belowDirectories, 0},
	{"entries of the removed directory", []int{10, 100, 1000}, removedEntries, 0},
	{"callers at once, on a node with 20 other disks", []int{1, 10, 100}, callersAtOnce, time.Millisecond / 10},
	{"volumes at once", []int{1, 10, 60}, volumesAtOnce, time.Millisecond / 10},
	{"drivers with endpoints of their own and a staged volume each", []int{1, 5, 20}, besideDrivers, 0},
}

// volumeLife is the life of the volume of a disk.
func volumeLife(o nodeops.Operations, findsDisk, findsUsers bool) []step {
	stage := func(ctx context.Context) error {
		_, err := o.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: bySerial(own), StagingPath: ownStaging})
		return err
	}
	unstage := func(ctx context.Context) error {
		done, err := o.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: ownStaging})
		if err == nil && !done.DiskOffline {
			err = fmt.Errorf("the disk isn't offline: %+v", done)
		}
		return err
	}
	return []step{
		{name: "StageVolume of a raw disk", grows: findsDisk, do: stage},
		{name: "StageVolume again", do: stage},
		{name: "PublishVolume", do: func(ctx context.Context) error { return o.Storage.PublishVolume(ctx, ownStaging, ownTarget) }},
		{name: "GetVolume", do: func(ctx context.Context) error { _, err := o.Storage.GetVolume(ctx, ownStaging); return err }},
		{name: "GetVolumeIDFromTargetPath", do: func(ctx context.Context) error {
			_, err := o.Volume.GetVolumeIDFromTargetPath(ctx, ownStaging)
			return err
		}},
		{name: "ExpandVolume", do: func(ctx context.Context) error {
			_, err := o.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: ownStaging})
			return err
		}},
		{name: "ListVolumes", grows: true, do: func(ctx context.Context) error {
			list, err := o.Storage.ListVolumes(ctx)
			if err == nil && (len(list.Mounts) == 0 || list.IncompleteReason != "") {
				err = fmt.Errorf("%+v", list)
			}
			return err
		}},
		{name: "UnpublishVolume", do: func(ctx context.Context) error { return o.Storage.UnpublishVolume(ctx, ownTarget) }},
		{name: "UnstageVolume", grows: findsUsers, do: unstage},
		{name: "StageVolume of a disk with data", grows: findsDisk, do: stage},
		{name: "UnstageVolume again", grows: findsUsers, do: unstage},
	}
}

func besideDisks(n testNode, others int) []step {
	n.addVolumes(others)
	n.attach(own, "")
	n.addPodDirectory(ownPod, ownDriver)
	number := func(ctx context.Context) (csiproxy.DiskNumber, error) {
		disks, err := n.Storage.ListDisks(ctx, bySerial(own))
		if err == nil && len(disks) != 1 {
			err = fmt.Errorf("%d disks have the serial number", len(disks))
		}
		if err != nil {
			return 0, err
		}
		return disks[0].Number, nil
	}
	ownNumber, err := number(n.Context())
	must(n, err)
	return append(volumeLife(n.Operations, true, true), []step{
		{name: "ListDisks of one serial number", grows: true, do: func(ctx context.Context) error { _, err := number(ctx); return err }},
		{name: "ListDiskIDs", grows: true, do: func(ctx context.Context) error { _, err := n.Disk.ListDiskIDs(ctx); return err }},
		{name: "Rescan", grows: true, do: n.Disk.Rescan},
		{name: "GetDiskStats", do: func(ctx context.Context) error { _, err := n.Disk.GetDiskStats(ctx, ownNumber); return err }},
	}...)
}

func besidePods(n testNode, pods int) []step {
	n.addPods(pods)
	n.attach(own, "")
	n.addPodDirectory(ownPod, ownDriver)
	must(n, n.sim.SMB().AddShare(smbserver.Share{Server: shareServer, Name: "data"}))
	must(n, n.sim.SMB().SetUser(shareServer, "user", csiproxy.NewSecret("password")))
	share := `\\` + shareServer + `\data`
	return append(volumeLife(n.Operations, false, true), []step{
		{name: "StageShare", grows: true, do: func(ctx context.Context) error {
			return n.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: share, StagingPath: shareStaging,
				Credentials: csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}})
		}},
		{name: "UnstageShare", grows: true, do: func(ctx context.Context) error {
			done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: shareStaging})
			if err == nil && !done.Unmapped {
				err = fmt.Errorf("the share is mapped: %+v", done)
			}
			return err
		}},
		{name: "CleanUp with nothing to do", grows: true, do: func(ctx context.Context) error {
			done, err := n.Storage.CleanUp(ctx, true)
			if err == nil && done.IncompleteReason != "" {
				err = fmt.Errorf("incomplete: %s", done.IncompleteReason)
			}
			return err
		}},
	}...)
}

func belowDirectories(n testNode, depth int) []step {
	directory := simtest.Kubelet + strings.Repeat(`\d`, depth)
	must(n, n.sim.MkdirAll(directory))
	is := func(want bool, f func(ctx context.Context, path string) (bool, error), path string) func(context.Context) error {
		return func(ctx context.Context) error {
			got, err := f(ctx, path)
			if err == nil && got != want {
				err = fmt.Errorf("%s: %v", path, got)
			}
			return err
		}
	}
	made, link := directory+`\made`, directory+`\link`
	notFound := func(what string, err error) error {
		if !errors.Is(err, csiproxy.ErrNotFound) {
			return fmt.Errorf("%s: %v", what, err)
		}
		return nil
	}
	return []step{
		{name: "IsSymlink of nothing", do: func(ctx context.Context) error {
			_, err := n.Filesystem.IsSymlink(ctx, made)
			return notFound(made, err)
		}},
		{name: "GetVolumeIDFromTargetPath of a directory", do: func(ctx context.Context) error {
			_, err := n.Volume.GetVolumeIDFromTargetPath(ctx, directory)
			return notFound(directory, err)
		}},
		{name: "PathExists of a directory", do: is(true, n.Filesystem.PathExists, directory)},
		{name: "PathExists of nothing", do: is(false, n.Filesystem.PathExists, made)},
		{name: "Mkdir", do: func(ctx context.Context) error { return n.Filesystem.Mkdir(ctx, made) }},
		{name: "Mkdir of a directory that exists", do: func(ctx context.Context) error { return n.Filesystem.Mkdir(ctx, made) }},
		{name: "CreateSymlink", do: func(ctx context.Context) error { return n.Filesystem.CreateSymlink(ctx, made, link) }},
		{name: "PathExists of a link", do: is(true, n.Filesystem.PathExists, link)},
		{name: "IsSymlink of a link", do: is(true, n.Filesystem.IsSymlink, link)},
		{name: "IsSymlink of a directory", do: is(false, n.Filesystem.IsSymlink, made)},
		{name: "Rmdir of a link", grows: true, do: func(ctx context.Context) error { return n.Filesystem.Rmdir(ctx, link, false) }},
		{name: "Rmdir", grows: true, do: func(ctx context.Context) error { return n.Filesystem.Rmdir(ctx, made, false) }},
	}
}

func removedEntries(n testNode, entries int) []step {
	directory := simtest.Kubelet + `\plugins\full`
	must(n, n.sim.MkdirAll(directory))
	for i := range entries {
		must(n, n.sim.WriteFile(fmt.Sprintf(`%s\file-%d`, directory, i), nil))
	}
	return []step{{name: "Rmdir with force", grows: true, do: func(ctx context.Context) error { return n.Filesystem.Rmdir(ctx, directory, true) }}}
}

// atOnce runs f so many times at once.
func atOnce(times int, f func(ctx context.Context, i int) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		errs := make([]error, times)
		var callers sync.WaitGroup
		for i := range times {
			callers.Go(func() { errs[i] = f(ctx, i) })
		}
		callers.Wait()
		failed := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		if failed < 0 {
			return nil
		}
		return errs[failed]
	}
}

func callersAtOnce(n testNode, callers int) []step {
	n.addVolumes(20)
	list := func(f func(ctx context.Context) error) func(context.Context) error {
		return atOnce(callers, func(ctx context.Context, _ int) error { return f(ctx) })
	}
	return []step{
		{name: "ListDiskIDs", shared: true, do: list(func(ctx context.Context) error { _, err := n.Disk.ListDiskIDs(ctx); return err })},
		{name: "Rescan", shared: true, do: list(n.Disk.Rescan)},
		{name: "ListVolumes", grows: true, spread: 0.06, do: list(func(ctx context.Context) error { _, err := n.Storage.ListVolumes(ctx); return err })},
		{name: "PathExists", grows: true, do: list(func(ctx context.Context) error {
			_, err := n.Filesystem.PathExists(ctx, simtest.Kubelet)
			return err
		})},
	}
}

func volumesAtOnce(n testNode, volumes int) []step {
	for i := range volumes {
		n.attach(fmt.Sprint("vol-", i), "")
	}
	stage := atOnce(volumes, func(ctx context.Context, i int) error {
		_, err := n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: bySerial(fmt.Sprint("vol-", i)),
			StagingPath: stagedBy(ownDriver, i)})
		return err
	})
	unstage := atOnce(volumes, func(ctx context.Context, i int) error {
		_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagedBy(ownDriver, i)})
		return err
	})
	return []step{
		// Each looks for its disk among all, and not all share the look.
		{name: "StageVolume of raw disks", grows: true, do: stage, excess: 0.25, spread: 0.06},
		{name: "UnstageVolume", grows: true, do: unstage, spread: 0.06},
		{name: "StageVolume of disks with data", grows: true, do: stage, excess: 0.5, spread: 0.06},
	}
}

func besideDrivers(n testNode, drivers int) []step {
	var all []nodeops.Driver
	for i := range drivers {
		all = append(all, nodeops.Driver{Driver: scope.Driver{Name: driverName(i),
			Disks: []scope.DiskPattern{{Vendor: fmt.Sprint("V", i), Product: "*"}}}})
	}
	operations := n.start(all...)
	for i := range drivers {
		serial := fmt.Sprint("other-", i)
		n.attach(serial, fmt.Sprint("V", i))
		_, err := operations.Driver(driverName(i)).Storage.StageVolume(n.Context(), csiproxy.StageVolumeRequest{
			Disk: bySerial(serial), StagingPath: stagedBy(driverName(i), 2)})
		must(n, err)
	}
	n.attach(own, "V0")
	n.addPodDirectory(ownPod, ownDriver)
	return volumeLife(operations.Driver(ownDriver), true, true)
}

func driverName(i int) string { return fmt.Sprintf("%c.example.com", 'a'+i) }

const growthTitle = "calls to Windows by the number of "

// measure returns the table of the costs. It fails the test if an operation costs more than it may.
func (g growth) measure(t *testing.T) table {
	// One processor, so that which of several operations comes first depends on as little as possible.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	result := table{title: growthTitle + g.of}
	var steps []step
	costs := make(map[string][]cost)
	for _, size := range g.sizes {
		result.columns = append(result.columns, strconv.Itoa(size))
		synctest.Test(t, func(t *testing.T) {
			n := newSlowTestNode(t, eachCallTakes(g.eachCall))
			steps = g.steps(n, size)
			for _, step := range steps {
				costs[step.name] = append(costs[step.name], n.measure(func() error { return step.do(t.Context()) }))
			}
		})
	}
	for _, step := range steps {
		made := &row{name: step.name, spread: step.spread}
		for _, cost := range costs[step.name] {
			made.cells = append(made.cells, cost.String())
		}
		result.rows = append(result.rows, made)
		if problem := g.exceeds(step, costs[step.name]); problem != "" {
			t.Errorf("%s: %s: %s", result.title, step.name, problem)
		}
	}
	return result
}

// exceeds says at which size the costs of a step are higher than they may be, and how high they may be; "" if nowhere.
func (g growth) exceeds(s step, costs []cost) (problem string) {
	limit := func(i int, first, second float64) float64 {
		switch {
		case s.grows:
			each := max(0, (second-first)/float64(g.sizes[1]-g.sizes[0]))
			return first + each*float64(g.sizes[i]-g.sizes[0])*(1.15+s.excess)
		case s.shared:
			return 2 * first
		default:
			return first
		}
	}
	for i, cost := range costs[1:] {
		const arrival = 2 // calls, or milliseconds: a volume may come while it is asked for, or before
		calls := limit(i+1, float64(costs[0].calls), float64(costs[1].calls)) + arrival
		ms := limit(i+1, costs[0].ms(), costs[1].ms()) + arrival
		if float64(cost.calls) > calls || cost.ms() > ms {
			return fmt.Sprintf("%d costs %v, and may cost %.0f/%.0f, since %d costs %v", g.sizes[i+1], cost, calls, ms, g.sizes[0], costs[0])
		}
	}
	return ""
}

// The daemon asks Windows for nothing at its start, whatever is staged on the node.
func TestRestartAsksNothing(t *testing.T) {
	for _, volumes := range []int{0, 200} {
		n := simnode.New(t)
		for i := range volumes {
			n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: serialNumber(i)})
			must(t, stage(t.Context(), n.Operations().Storage, i))
		}
		before := total(n.Calls())
		n.RestartDaemon()
		if made := total(n.Calls()) - before; made != 0 {
			t.Errorf("%d calls to Windows at the start of the daemon with %d staged volumes, want none", made, volumes)
		}
	}
}

func total(calls map[string]int) (n int) {
	for _, count := range calls {
		n += count
	}
	return n
}
