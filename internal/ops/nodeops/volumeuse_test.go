// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	csiDriver  = "disk.csi.example.com"
	volumeData = `\vol_data.json`
)

// csiStaging is the path at which kubelet has csiDriver stage a PersistentVolume.
func csiStaging(name string) string {
	return simtest.Kubelet + `\plugins\kubernetes.io\csi\` + csiDriver + `\hash-of-` + name + `\globalmount`
}

// publishedFor is the directory in which kubelet has the volume of a pod.
func publishedFor(pod, name string) string {
	return simtest.Kubelet + `\pods\` + pod + `\volumes\kubernetes.io~csi\` + name
}

// publish links a PersistentVolume into a pod.
func (r *rig) publish(pod, name, staged string) {
	r.must(r.sim.MkdirAll(publishedFor(pod, name)))
	r.must(r.sim.WriteFile(publishedFor(pod, name)+volumeData, []byte(`{"driverName": "`+csiDriver+`"}`)))
	r.must(r.sim.Symlink(publishedFor(pod, name)+`\mount`, staged, true))
}

// claimed stages and publishes a new volume for a PersistentVolume.
func (r *rig) claimed(name string) (volume string, disk csiproxy.DiskNumber) {
	volume, disk = simtest.Volume(r.t, r.sim)
	simtest.Mount(r.t, r.sim, csiStaging(name), volume)
	r.publish("pod-of-"+name, name, csiStaging(name))
	return volume, disk
}

// wantUse compares what VolumeUse returns with the names of PersistentVolumes.
func wantUse(t *testing.T, what string, n *nodeops.Node, leftOut int, names ...string) (use []usage.VolumeUse) {
	t.Helper()
	use, missing, err := n.VolumeUse(t.Context())
	simtest.Must(t, err)
	slices.SortFunc(use, func(a, b usage.VolumeUse) int { return cmp.Compare(a.PersistentVolume, b.PersistentVolume) })
	var got []string
	for _, v := range use {
		got = append(got, v.PersistentVolume)
		if v.Driver != csiDriver || v.SizeBytes == 0 || v.UsedBytes == 0 || v.UsedBytes >= v.SizeBytes {
			t.Errorf("%s: %+v", what, v)
		}
	}
	simtest.Want(t, what, fmt.Sprintf("%q, without %d", got, missing), fmt.Sprintf("%q, without %d", names, leftOut))
	return use
}

func TestVolumeUse(t *testing.T) {
	r := newRig(t)
	n := r.process()
	wantUse(t, "nothing is staged", n, 0)
	volume, _ := r.claimed("pv-1")
	odd := "pv \u202e{é}"
	r.claimed(odd)
	tooLong := strings.Repeat("\u6f22", 240)
	r.claimed(tooLong)
	r.must(r.sim.WriteFile(csiStaging("pv-1")+`\data`, make([]byte, 1<<20)))
	use := wantUse(t, "two volumes", n, 0, odd, "pv-1")
	stats, err := n.Volume.GetVolumeStats(t.Context(), csiproxy.VolumeID(volume))
	r.must(err)
	if v := use[1]; v.SizeBytes != uint64(stats.SizeBytes) || v.UsedBytes != uint64(stats.UsedBytes) || v.UsedBytes <= use[0].UsedBytes {
		t.Errorf("%+v, want %+v, and more than an empty volume's %d", v, stats, use[0].UsedBytes)
	}

	// A second pod of the volume, and volumes that are no PersistentVolume of a CSI driver.
	r.publish("second", "pv-1", csiStaging("pv-1"))
	other, _ := simtest.Volume(t, r.sim)
	simtest.Mount(t, r.sim, staging, other)
	r.publish("third", "pv-of-another-path", staging)
	r.must(r.sim.MkdirAll(csiStaging("directory")))
	r.publish("fourth", "directory", csiStaging("directory"))
	unpublished, _ := simtest.Volume(t, r.sim)
	simtest.Mount(t, r.sim, csiStaging("unpublished"), unpublished)
	r.must(r.sim.Symlink(simtest.Kubelet+`\plugins\no-pod`, csiStaging("unpublished"), true))
	wantUse(t, "others", n, 0, odd, "pv-1")

	r.must(n.Volume.UnmountVolume(t.Context(), csiproxy.VolumeID(volume), csiStaging("pv-1")))
	wantUse(t, "one is unstaged", n, 0, odd)

	// The volume under another name, and its name for another volume: each comes once.
	r.publish("z", "pv-z", csiStaging(odd))
	r.publish("z", odd, csiStaging("unpublished"))
	wantUse(t, "a name and a volume twice", n, 0, odd)
}

// The file in which kubelet notes the driver isn't read, so nobody can plant a name in it.
func TestVolumeUseReadsNoFile(t *testing.T) {
	for what, contents := range map[string]string{
		"huge":           strings.Repeat(" ", 1<<20) + "{}",
		"not JSON":       "\x00{{",
		"another driver": `{"driverName": "other.csi.example.com", "specVolID": "other"}`,
	} {
		r := newRig(t)
		r.claimed("pv-1")
		r.must(r.sim.WriteFile(publishedFor("pod-of-pv-1", "pv-1")+volumeData, []byte(contents)))
		r.must(r.sim.WriteFile(strings.TrimSuffix(csiStaging("pv-1"), `\globalmount`)+volumeData, []byte(contents)))
		r.must(r.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: "vol_data.json", Fires: winsim.MustNotFire}, time.Hour))
		wantUse(t, what, r.process(), 0, "pv-1")
		r.must(r.sim.CheckRules())
	}
}

func TestVolumeUseIsBounded(t *testing.T) {
	const partitions = 126
	r := newRig(t)
	for d := range 2 {
		disk := r.attach(winsim.DiskSpec{SizeBytes: (partitions + 1) << 30})
		simtest.Partition(t, r.sim, disk, partitions)
		r.sim.Settle()
		for i, volume := range r.sim.VolumesOfDisk(disk) {
			name := fmt.Sprintf("pv-%d-%d", d, i)
			r.must(r.sim.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "NTFS"}))
			simtest.Mount(t, r.sim, csiStaging(name), volume)
			r.publish("pod-of-"+name, name, csiStaging(name))
		}
	}
	use, leftOut, err := r.process().VolumeUse(t.Context())
	r.must(err)
	simtest.Want(t, "shown and left out", [2]int{len(use), leftOut}, [2]int{250, 2})
}

// A volume whose disk doesn't answer is left out. Whatever hangs, no second call waits for it.
func TestVolumeUseBesideHangs(t *testing.T) {
	for what, test := range map[string]struct {
		call string
		most int                                                              // calls on the volume that hang in all
		use  func(ctx context.Context, n *nodeops.Node, id csiproxy.VolumeID) // begins the call that hangs, if VolumeUse itself doesn't
	}{
		"the volume": {call: win.CallDiskFreeSpace, most: 1},
		"its handle": {call: win.CallOpen, most: 1},
		"another call": {call: win.CallVolumeInformation, use: func(ctx context.Context, n *nodeops.Node, id csiproxy.VolumeID) {
			_, _ = n.Volume.IsVolumeFormatted(ctx, id)
		}},
		"a call of the driver's": {call: win.CallVolumeInformation, use: func(ctx context.Context, n *nodeops.Node, id csiproxy.VolumeID) {
			_, _ = n.Driver(csiDriver).Volume.IsVolumeFormatted(ctx, id)
		}},
		"the disk": {},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				n, err := nodeops.New(r.sim, nodeops.Options{}, nodeops.Driver{
					Driver: scope.Driver{Name: csiDriver, Disks: []scope.DiskPattern{{Vendor: "Msft"}}}})
				r.must(err)
				volume, disk := r.claimed("pv-1")
				r.claimed("pv-2")
				object := strings.TrimSuffix(volume, `\`)
				hang := winsim.Match{Call: test.call, Object: object}
				if test.call == "" {
					hang = winsim.Match{Call: win.CallOpen, Object: win.PhysicalDrive(disk)}
				}
				r.must(r.sim.DelayUncancellable(hang, time.Hour))
				if test.use != nil {
					go test.use(t.Context(), n, csiproxy.VolumeID(volume))
					time.Sleep(2 * time.Second)
				}
				var hung, asked atomic.Int32
				r.sim.OnCall(func(c winsim.Call) {
					if !strings.Contains(c.Object, object) {
						return
					}
					if c.Name == test.call {
						hung.Add(1)
					}
					asked.Add(1)
				})
				for i, patience := range []time.Duration{1500 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond} {
					before, begin := asked.Load(), time.Now()
					wantUse(t, "while it hangs", n, 1, "pv-2")
					if took := time.Since(begin); took > patience {
						t.Errorf("attempt %d took %v", i, took)
					}
					if now := asked.Load(); i > 0 && test.call != "" && now != before {
						t.Errorf("attempt %d made %d calls on the volume", i, now-before)
					}
					time.Sleep(time.Minute)
				}
				if int(hung.Load()) > test.most {
					t.Errorf("%d calls hang", hung.Load())
				}
				r.sim.OnCall(nil)
				r.sim.ResetRules()
				time.Sleep(2 * time.Hour)
				wantUse(t, "once it answers", n, 0, "pv-1", "pv-2")
			})
		})
	}
}

// Blue's mount point of red's volume, in the place of its own volume, and its directory that can't be read hide nothing of red's.
func TestMetricsBesideAnotherDriver(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
		w.must(w.sim.Remove(other.staging))
		w.must(w.sim.MkdirAll(other.staging))
		w.must(w.sim.SetReparsePoint(other.staging, win.NewMountPoint(string(d.volume))))
		use, leftOut, err := w.node.VolumeUse(t.Context())
		w.must(err)
		if leftOut != 1 || len(use) != 1 || use[0].Driver != red || use[0].VolumeID != string(d.volume) {
			t.Errorf("the use is %+v, without %d", use, leftOut)
		}
		w.must(w.sim.Symlink(simtest.Kubelet+`\plugins\green`, simtest.Kubelet+`\plugins\nothing`, true))
		toNothing, _, err := w.node.Links(t.Context())
		w.must(err)
		w.must(w.sim.MkdirAll(dir + `\unreadable`))
		w.must(w.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: "unreadable"}, winerr.ErrorAccessDenied))
		blind, _, err := w.node.Links(t.Context())
		if toNothing == 0 || blind != toNothing || err != nil {
			t.Errorf("links to nothing beside a directory that can't be read: %d, %v, want %d", blind, err, toNothing)
		}
	})
}
