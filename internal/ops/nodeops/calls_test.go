// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// How many more calls to Windows an operation makes at most for each further disk on the node.
var callsForEachDisk = map[string]int{
	"StageVolume of a raw disk":           3, // each is opened, and asked what it is
	"StageVolume of an offline data disk": 3,
	"ListDisks of one serial number":      3,
}

// How many calls to Windows an operation makes at most, without other disks, on the way to fewer.
var callsSoFar = map[string]int{
	"StageVolume of a raw disk": 112, "StageVolume of an offline data disk": 66, "StageVolume again": 33,
	"PublishVolume": 32, "PublishVolume again": 26, "UnpublishVolume": 7, "UnstageVolume": 82, "UnstageVolume again": 82,
	"GetVolume": 30, "GetVolumeIDFromTargetPath": 16, "ListVolumes": 45, "ListDisks of one serial number": 26,
}

func TestCallsSoFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, calls := range countCalls(t, 0) {
			if calls > callsSoFar[name] {
				t.Errorf("%s makes %d calls, and %d at most so far", name, calls, callsSoFar[name])
			}
		}
	})
}

// The cost of an operation doesn't grow with what else is on the node, or as little as it must.
func TestCallsBesideOtherDisks(t *testing.T) {
	counts := make(map[int]map[string]int)
	for _, others := range []int{0, 20, 100} {
		t.Run(fmt.Sprintf("%d other disks", others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { counts[others] = countCalls(t, others) })
		})
	}
	for others, calls := range counts {
		for name, n := range calls {
			const arrival = 8 // a volume may come while it is asked for, or before
			if most := counts[0][name] + others*callsForEachDisk[name] + arrival; n > most {
				t.Errorf("%s makes %d calls beside %d other disks, %d without, and %d more at most for each",
					name, n, others, counts[0][name], callsForEachDisk[name])
			}
		}
	}
}

// countCalls returns how many calls each operation makes beside other disks.
func countCalls(t *testing.T, others int) map[string]int {
	r := newRig(t)
	for i := range others {
		simtest.Partition(t, r.sim, r.attach(winsim.DiskSpec{Serial: fmt.Sprintf("other-%d", i)}), 1)
	}
	r.raw(true)
	process, ctx := r.daemon(), t.Context()
	n := process.Storage
	stage := func() error {
		_, err := n.StageVolume(ctx, csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: staging,
		})
		return err
	}
	unstage := func() error {
		_, err := n.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
		return err
	}
	counts := make(map[string]int)
	for _, operation := range []struct {
		name string
		do   func() error
	}{
		{"StageVolume of a raw disk", stage},
		{"StageVolume again", stage},
		{"PublishVolume", func() error { return n.PublishVolume(ctx, staging, target) }},
		{"PublishVolume again", func() error { return n.PublishVolume(ctx, staging, target) }},
		{"GetVolumeIDFromTargetPath", func() error {
			_, err := process.Volume.GetVolumeIDFromTargetPath(ctx, staging)
			return err
		}},
		{"GetVolume", func() error { _, err := n.GetVolume(ctx, staging); return err }},
		{"ListVolumes", func() error { _, err := n.ListVolumes(ctx); return err }},
		{"ListDisks of one serial number", func() error {
			_, err := n.ListDisks(ctx, csiproxy.Selector{SerialNumber: "vol-1"})
			return err
		}},
		{"UnpublishVolume", func() error { return n.UnpublishVolume(ctx, target) }},
		{"UnstageVolume", unstage},
		{"StageVolume of an offline data disk", stage},
		{"UnstageVolume again", unstage},
	} {
		counts[operation.name] = r.calls(func() { r.must(operation.do()) })
	}
	return counts
}

// A volume that takes a while to arrive costs no queries as long as nothing arrives.
func TestCallsWhileAVolumeArrives(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 240 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, winsim.Delays{VolumeArrival: after})
			simtest.Partition(t, r.sim, r.attach(winsim.DiskSpec{Serial: "vol-1"}), 1)
			r.sim.Settle()
			n, ctx := r.process().Disk, t.Context()
			r.must(n.SetDiskState(ctx, 1, false))
			if calls := r.calls(func() { r.must(n.SetDiskState(ctx, 1, true)) }); calls > 44 {
				t.Errorf("%d calls if the volume arrives after %v, and 44 at most so far", calls, after)
			}
		})
	}
}

// What each published volume adds to a list.
func TestCallsOfListVolumes(t *testing.T) {
	r := newRig(t)
	n, ctx := r.process().Storage, t.Context()
	calls := func(volumes int) int {
		for i := range volumes {
			path := fmt.Sprintf(simtest.Kubelet+`\plugins\example\pv-%d-%d\globalmount`, volumes, i)
			serial := fmt.Sprintf("vol-%d-%d", volumes, i)
			r.attach(winsim.DiskSpec{Serial: serial})
			_, err := n.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: serial},
				StagingPath: path})
			r.must(err)
			r.must(n.PublishVolume(ctx, path, fmt.Sprintf(simtest.Kubelet+`\pods\pod-%d-%d\volumes\kubernetes.io~csi\pv\mount`, volumes, i)))
		}
		return r.calls(func() {
			list, err := n.ListVolumes(ctx)
			r.must(err)
			for _, m := range list.Mounts {
				if m.LeftoverReason != "" || m.Volume.Abnormal() {
					t.Errorf("%+v", m)
				}
			}
		})
	}
	one := calls(1)
	if each := (calls(10) - one) / 10; each > 36 {
		t.Errorf("each volume is %d calls, and 36 at most so far", each)
	}
}

// Lists that are asked for at one time cost no more than two: one may be under way already.
func TestCallsOfListVolumesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n, ctx := r.process().Storage, t.Context()
		for i := range 5 {
			serial := fmt.Sprintf("vol-%d", i)
			r.attach(winsim.DiskSpec{Serial: serial})
			_, err := n.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: serial},
				StagingPath: fmt.Sprintf(simtest.Kubelet+`\plugins\example\pv-%d\globalmount`, i)})
			r.must(err)
		}
		r.must(r.sim.Delay(winsim.Match{Call: winsim.EachCall}, time.Millisecond))
		list := func(callers int) int {
			return r.calls(func() {
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						if list, err := n.ListVolumes(ctx); err != nil || len(list.Mounts) != 5 {
							t.Errorf("%+v, %v", list, err)
						}
					})
				}
				wg.Wait()
			})
		}
		if one, ten := list(1), list(10); ten > 2*one {
			t.Errorf("a list is %d calls, ten at one time are %d, and two at most so far", one, ten)
		}
	})
}

// A path costs the same however deep it lies, unless a link is on the way.
func TestCallsByDepth(t *testing.T) {
	counts := make(map[string][]int)
	for _, depth := range []int{2, 60} {
		r := newRig(t)
		n, ctx := r.process().Filesystem, t.Context()
		dir := simtest.Kubelet + strings.Repeat(`\d`, depth)
		r.must(n.Mkdir(ctx, dir))
		for _, operation := range []struct {
			name string
			do   func() error
		}{
			{"Mkdir", func() error { return n.Mkdir(ctx, dir) }},
			{"CreateSymlink", func() error { return n.CreateSymlink(ctx, dir, dir+"-link") }},
			{"IsSymlink", func() error { _, err := n.IsSymlink(ctx, dir+"-link"); return err }},
			{"PathExists", func() error { _, err := n.PathExists(ctx, dir); return err }},
		} {
			counts[operation.name] = append(counts[operation.name], r.calls(func() { r.must(operation.do()) }))
		}
	}
	for name, calls := range counts {
		if calls[0] != calls[1] {
			t.Errorf("%s makes %d calls at depth 2, and %d at depth 60", name, calls[0], calls[1])
		}
	}
}

// calls counts the calls to Windows while f runs.
func (r *rig) calls(f func()) (n int) {
	before := r.sim.Calls()
	f()
	for name, after := range r.sim.Calls() {
		n += after - before[name]
	}
	return n
}
