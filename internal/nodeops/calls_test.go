// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/lab/bench"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/storage"
)

// How many calls to Windows an operation makes at most: with no other disk on the node, and for
// each disk more. And how many of these keep data safe: see looks. A change that makes more calls
// fails here, and so does one that loses a look. One that makes fewer lowers the number, and that
// in docs/performance.md.
var callsOf = map[string]struct{ alone, other, safe, safeOther int }{
	"StageVolume of a raw disk":            {99, 3, 53, 0}, // a new process asks each disk once what it is
	"StageVolume again":                    {31, 0, 10, 0},
	"PublishVolume":                        {34, 0, 26, 0},
	"GetVolume":                            {25, 0, 0, 0},
	"ListVolumes":                          {53, 0, 0, 0},
	"ListDisks of one serial number":       {19, 0, 0, 0},
	"UnpublishVolume":                      {14, 0, 9, 0},
	"UnstageVolume":                        {95, 0, 31, 0},
	"StageVolume of an offline data disk":  {60, 2, 25, 2}, // each other disk is asked for its table
	"UnstageVolume again":                  {95, 0, 31, 0},
	"StageVolume right after another":      {58, 0, 23, 0}, // where Windows' own disk was asked, too
	"EBS's calls for an offline data disk": {121, 9, 38, 2},
}

// looks are the functions that look whether an operation would lose or expose data, each with its
// caller if it is called for other reasons, too. What an operation needs anyway isn't here, such as
// the first look at a partition table, and neither is what isn't a look, such as writing out a
// volume before it is unmounted.
var looks = map[string]string{
	"opendisk.(*Disk).Verify":                            "the disk is the one that was chosen",
	"systemdisk.(*Disks).Check":                          "Windows doesn't run from the disk",
	"use.(*Owner).exclude":                               "no other process uses the disk or volume",
	"use.Extent < use.(*Owner).tryDiskOf":                "the volume still lies on the disk",
	"use.Extent < staging.(*Staging).stagePrepared":      "the volume lies on the disk",
	"disks.(*Disks).findOriginal":                        "a disk that goes online is no copy",
	"disks.(*Disks).idsOf":                               "a disk that goes online is no copy, by the tables of others",
	"signatures.read":                                    "the disk or volume holds no data of others",
	"volumes.(*Volumes).checkRaw":                        "the volume lies on the disk and is raw when it is formatted",
	"disks.(*Disks).inspect < disks.(*Disks).writeTable": "the disk is raw when its table is written",
	"opendisk.(*Disk).VerifyLayout":                      "nobody has partitioned the disk meanwhile",
	"disks.(*Disks).Mounted < staging.(*Staging).retire": "no volume of the disk is in use",
	"pathpolicy.(*walk).down":                            "no link leads the change elsewhere",
	"pathpolicy.(*walk).checkVolume":                     "a pod gets no link to a protected volume",
	"ProtectsBesideWindows < volumes.(*Volumes).Mount":   "a pod gets no volume that the administrator protects",
}

// The cost of an operation doesn't grow with what else is on the node, or as little as it must.
func TestNumberOfCalls(t *testing.T) {
	var made sync.Map
	for _, others := range []int{0, 20, 100} {
		t.Run(fmt.Sprintf("%d other disks", others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { countCalls(t, others, &made) })
		})
	}
	for look, why := range looks {
		if _, ok := made.Load(look); !ok {
			t.Errorf("%s, which sees that %s, is never called", look, why)
		}
	}
}

func countCalls(t *testing.T, others int, made *sync.Map) {
	r := newRig(t)
	for i := range others {
		simtest.Partition(t, r.sim, r.attach(winsim.DiskSpec{Serial: fmt.Sprintf("other-%d", i)}), 1)
	}
	r.raw(true)
	process, ctx := r.process(), t.Context()
	n := process.Storage
	stage := func() error {
		_, err := n.StageVolume(ctx, storage.StageVolumeRequest{
			Disk: storage.Selector{SerialNumber: "vol-1"}, StagingPath: staging,
		})
		return err
	}
	unstage := func() error {
		_, err := n.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging})
		return err
	}
	ebs := func() error {
		time.Sleep(time.Minute) // so that no answer of before counts
		return bench.EBSStage(ctx, (*node.Node)(&process.Operations), "vol-1", staging)
	}
	for _, operation := range []struct {
		name string
		do   func() error
	}{
		{"StageVolume of a raw disk", stage},
		{"StageVolume again", stage},
		{"PublishVolume", func() error { return n.PublishVolume(ctx, staging, target) }},
		{"GetVolume", func() error { _, err := n.GetVolume(ctx, staging); return err }},
		{"ListVolumes", func() error { _, err := n.ListVolumes(ctx); return err }},
		{"ListDisks of one serial number", func() error {
			_, err := n.ListDisks(ctx, storage.Selector{SerialNumber: "vol-1"})
			return err
		}},
		{"UnpublishVolume", func() error { return n.UnpublishVolume(ctx, target) }},
		{"UnstageVolume", unstage},
		{"StageVolume of an offline data disk", stage},
		{"UnstageVolume again", unstage},
		{"StageVolume right after another", stage},
		{"UnstageVolume again", unstage},
		{"EBS's calls for an offline data disk", ebs},
	} {
		var safe atomic.Int64
		r.sim.OnCall(func(winsim.Call) {
			if look := lookOf(callers()); look != "" {
				made.Store(look, true)
				safe.Add(1)
			}
		})
		calls := r.calls(func() { r.must(operation.do()) })
		r.sim.OnCall(nil)
		of := callsOf[operation.name]
		if most := of.alone + others*of.other; calls > most {
			t.Errorf("%s makes %d calls beside %d other disks, and %d at most so far", operation.name, calls, others, most)
		}
		if want := of.safe + others*of.safeOther; int(safe.Load()) != want {
			t.Errorf("%s makes %d calls that keep data safe beside %d other disks, and %d so far", operation.name,
				safe.Load(), others, want)
		}
	}
}

// callers are the functions that have led to a call of the seam, from the last one on, without
// closures: "pathpolicy.(*walk).down < pathpolicy.(*walk).to < …".
func callers() string {
	stack := make([]uintptr, 100)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	var functions []string
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		_, name, ok := strings.Cut(frame.Function, "/internal/")
		name, _, _ = strings.Cut(path.Base(name), ".func")
		if ok && (len(functions) == 0 || functions[len(functions)-1] != name) {
			functions = append(functions, name)
		}
	}
	return strings.Join(functions, " < ")
}

// lookOf returns which of looks a call is made by, "" if by none.
func lookOf(callers string) string {
	for _, tells := range []string{"MountedAtPath", "GetVolumeIDFromTargetPath", "ListVolumesOnDisk"} {
		if strings.Contains(callers, "volumes.(*Volumes)."+tells) { // which changes nothing
			return ""
		}
	}
	for look := range looks {
		if strings.Contains(callers, look+" < ") {
			return look
		}
	}
	return ""
}

// A volume that takes a while to arrive costs no looks as long as nothing arrives.
func TestCallsWhileAVolumeArrives(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 240 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlowRig(t, winsim.Delays{VolumeArrival: after})
			simtest.Partition(t, r.sim, r.attach(winsim.DiskSpec{Serial: "vol-1"}), 1)
			r.sim.Settle()
			n, ctx := r.process().Disk, t.Context()
			r.must(n.SetDiskState(ctx, 1, false))
			if calls := r.calls(func() { r.must(n.SetDiskState(ctx, 1, true)) }); calls > 33 {
				t.Errorf("%d calls if the volume arrives after %v, and 33 at most so far", calls, after)
			}
		})
	}
}

// What watching a hundred disks costs while nothing changes, whoever watches.
func TestCallsOfWatchDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 100 {
			r.attach(winsim.DiskSpec{Serial: fmt.Sprintf("other-%d", i)})
		}
		r.sim.Settle()
		n := r.process()
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		for range 5 {
			go func() {
				for range n.Storage.WatchDisks(ctx, storage.Selector{}) {
				}
			}()
			time.Sleep(700 * time.Millisecond)
		}
		time.Sleep(90 * time.Second) // until it expects no more news
		const period = 5 * time.Minute
		calls := r.calls(func() { time.Sleep(period) })
		if got := float64(calls) / period.Seconds(); got > 25 {
			t.Errorf("%.1f calls a second, want 25 at most", got)
		}
	})
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
			_, err := n.StageVolume(ctx, storage.StageVolumeRequest{Disk: storage.Selector{SerialNumber: serial},
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
	if each := (calls(10) - one) / 10; each > 37 {
		t.Errorf("each volume is %d calls, and 33 at most so far", each)
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
