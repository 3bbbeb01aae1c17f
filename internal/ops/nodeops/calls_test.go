// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/storage"
)

// How many more calls to Windows an operation makes at most for each further disk on the node.
var callsForEachDisk = map[string]int{
	"StageVolume of a raw disk":           5, // each is asked what it is, and once whether it is a container's
	"StageVolume of an offline data disk": 4,
	"ListDisks of one serial number":      3,
}

// checks are the functions that check whether an operation would lose or expose data, each with its
// caller if it is called for other reasons, too. What an operation needs anyway isn't here, such as
// the first query of a partition table, and neither is what isn't a check, such as writing out a
// volume before it is unmounted.
var checks = map[string]string{
	"opendisk.(*Disk).Verify":                                  "the disk is the one that was chosen",
	"use.(*Owner).checkSystemDisk":                             "Windows doesn't run from the disk",
	"use.(*Owner).exclude":                                     "no other process uses the disk or volume",
	"use.Extent < use.(*Owner).tryDiskOf":                      "the volume still lies on the disk",
	"use.Extent < staging.(*Staging).stagePrepared":            "the volume lies on the disk",
	"signatures.read":                                          "the disk or volume holds no data of others",
	"volumes.(*Volumes).checkRaw":                              "the volume lies on the disk and is raw when it is formatted",
	"disks.(*Disks).inspect < disks.(*Disks).writeTable":       "the disk is raw when its table is written",
	"opendisk.(*Disk).VerifyLayout":                            "nobody has partitioned the disk meanwhile",
	"disks.(*Disks).DirectoriesOf < staging.(*Staging).retire": "no volume of the disk is in use",
	"pathpolicy.(*walk).down":                                  "no link leads the change elsewhere",
	"pathpolicy.(*walk).checkVolume":                           "a pod gets no link to a protected volume",
	"ProtectsBesideWindows < volumes.(*Volumes).Mount":         "a pod gets no volume that the administrator protects",
}

// The cost of an operation doesn't grow with what else is on the node, or as little as it must, and
// no check is lost.
func TestCallsBesideOtherDisks(t *testing.T) {
	var made sync.Map
	counts := make(map[int]map[string]int)
	for _, others := range []int{0, 20, 100} {
		t.Run(fmt.Sprintf("%d other disks", others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { counts[others] = countCalls(t, others, &made) })
		})
	}
	for others, calls := range counts {
		for name, n := range calls {
			if most := counts[0][name] + others*callsForEachDisk[name]; n > most {
				t.Errorf("%s makes %d calls beside %d other disks, %d without, and %d more at most for each",
					name, n, others, counts[0][name], callsForEachDisk[name])
			}
		}
	}
	for check, why := range checks {
		if _, ok := made.Load(check); !ok {
			t.Errorf("%s, which checks that %s, is never called", check, why)
		}
	}
}

// countCalls returns how many calls each operation makes beside other disks.
func countCalls(t *testing.T, others int, made *sync.Map) map[string]int {
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
	counts := make(map[string]int)
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
	} {
		r.sim.OnCall(func(winsim.Call) {
			if check := checkOf(callers()); check != "" {
				made.Store(check, true)
			}
		})
		counts[operation.name] = r.calls(func() { r.must(operation.do()) })
		r.sim.OnCall(nil)
	}
	return counts
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

// checkOf returns which of checks a call is made by, "" if by none.
func checkOf(callers string) string {
	for _, query := range []string{"MountedAtPath", "GetVolumeIDFromTargetPath", "ListVolumesOnDisk"} {
		if strings.Contains(callers, "volumes.(*Volumes)."+query) { // which changes nothing
			return ""
		}
	}
	for check := range checks {
		if strings.Contains(callers, check+" < ") {
			return check
		}
	}
	return ""
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
			if calls := r.calls(func() { r.must(n.SetDiskState(ctx, 1, true)) }); calls > 40 {
				t.Errorf("%d calls if the volume arrives after %v, and 40 at most so far", calls, after)
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
		t.Errorf("each volume is %d calls, and 36 at most so far", each)
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
