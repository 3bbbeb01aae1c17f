// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const stagingDir = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\ebs.csi.aws.com`

// nodeStage is NodeStageVolume of EBS's driver.
func nodeStage(ctx context.Context, n *simnode.Node, serial, path string) error {
	return EBSStage(ctx, n.Operations(), serial, path)
}

func stageVolume(ctx context.Context, n *simnode.Node, serial, path string) error {
	_, err := n.Operations().Storage.StageVolume(ctx,
		csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: serial}, StagingPath: path})
	return err
}

// BenchmarkStageVolume compares StageVolume with the calls that EBS's driver makes, with the
// delays of a quick cloud node: of a raw disk, of one with data that is offline, and of one
// that is staged already. x-time is how many times the wall time of the driver's sequence it
// takes. Most of the time of the first two is Windows': the format, and the arrival of the volume.
func BenchmarkStageVolume(b *testing.B) {
	states := []struct {
		name    string
		prepare func(n *simnode.Node, path string) error
	}{
		{"raw", func(*simnode.Node, string) error { return nil }},
		{"offline", func(n *simnode.Node, path string) error {
			if err := stageVolume(b.Context(), n, "vol-0", path); err != nil {
				return err
			}
			_, err := n.Operations().Storage.UnstageVolume(b.Context(), csiproxy.UnstageVolumeRequest{StagingPath: path})
			return err
		}},
		{"staged", func(n *simnode.Node, path string) error { return stageVolume(b.Context(), n, "vol-0", path) }},
	}
	for _, state := range states {
		b.Run(state.name, func(b *testing.B) {
			measure := func(f func(context.Context, *simnode.Node, string, string) error) time.Duration {
				n := simnode.New(b, simnode.WithRealisticDelays())
				n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: "vol-0"})
				waitForDisks(b, n, 2)
				path := stagingDir + `\vol-0\globalmount`
				must(b, state.prepare(n, path))
				return timed(b, func() error { return f(b.Context(), n, "vol-0", path) })
			}
			var ours, theirs time.Duration
			for b.Loop() {
				theirs += measure(nodeStage)
				ours += measure(stageVolume)
			}
			n := float64(b.N)
			b.ReportMetric(float64(ours)/float64(theirs), "x-time")
			b.ReportMetric(float64(ours.Milliseconds())/n, "ms/StageVolume")
			b.ReportMetric(float64(theirs.Milliseconds())/n, "ms/sequence")
		})
	}
}

// BenchmarkStageVolumeAtOnce is BenchmarkStage with StageVolume.
func BenchmarkStageVolumeAtOnce(b *testing.B) { atOnce(b, 1.25, stageVolume) }

// BenchmarkStageVolumeBesideOthers stages a disk with data that is offline, on nodes with other
// disks. The time is without delays.
func BenchmarkStageVolumeBesideOthers(b *testing.B) {
	for _, c := range []struct {
		others int
		aim    float64
	}{{0, 67}, {20, 75}, {500, 300}} {
		b.Run(fmt.Sprintf("others=%d", c.others), func(b *testing.B) {
			n := simnode.New(b)
			for i := range c.others + 1 {
				n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Offline: true, Serial: fmt.Sprintf("vol-%d", i)})
			}
			unstage := func() error {
				_, err := n.Operations().Storage.UnstageVolume(b.Context(),
					csiproxy.UnstageVolumeRequest{StagingPath: stagingPath(0)})
				return err
			}
			stage := func() error { return stageVolume(b.Context(), n, "vol-0", stagingPath(0)) }
			timed(b, stage) // which formats it
			calls, took := 0, time.Duration(0)
			for b.Loop() {
				timed(b, unstage)
				before := total(n.Calls())
				took += timed(b, stage)
				calls += total(n.Calls()) - before
			}
			report(b, float64(calls)/float64(b.N), "calls", c.aim)
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs/StageVolume")
		})
	}
}

// BenchmarkVolumes shows that what else is on the node costs GetVolume nothing, and that ListVolumes is
// linear in the number of published volumes: calls to Windows and time for each are constant.
func BenchmarkVolumes(b *testing.B) {
	for _, volumes := range []int{10, 100, 500} {
		n := simnode.New(b)
		operations := n.Operations().Storage
		stageAll(b, n, volumes, false)
		b.Run(fmt.Sprintf("GetVolume/volumes=%d", volumes), func(b *testing.B) {
			perObject(b, n, 1, 25, func() error {
				_, err := operations.GetVolume(b.Context(), stagingPath(0))
				return err
			})
		})
		b.Run(fmt.Sprintf("ListVolumes/volumes=%d", volumes), func(b *testing.B) {
			perObject(b, n, volumes, 50, func() error {
				list, err := operations.ListVolumes(b.Context())
				if err == nil && len(list.Mounts) != 2*volumes {
					err = fmt.Errorf("%d mounts", len(list.Mounts))
				}
				return err
			})
		})
	}
}

// BenchmarkWatchDisks measures the first value of a watch, for which each disk is asked, as it is
// every five seconds.
func BenchmarkWatchDisks(b *testing.B) {
	for _, disks := range []int{10, 100, 500} {
		b.Run(fmt.Sprintf("disks=%d", disks), func(b *testing.B) {
			n := simnode.New(b)
			for range disks - 1 { // Windows runs from one more
				n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
			}
			perObject(b, n, disks, 0, func() error {
				for changes, err := range n.Operations().Storage.WatchDisks(b.Context(), csiproxy.Selector{}) {
					if err == nil && len(changes.Added) != disks {
						err = fmt.Errorf("%d disks", len(changes.Added))
					}
					return err
				}
				return nil
			})
		})
	}
}

// BenchmarkStageOneAfterAnother stages and publishes many volumes. The metric x-first is how long it
// took to stage the last tenth of them beside the first tenth: with all disks on the node from the
// beginning, and with each disk attached right before it is staged.
func BenchmarkStageOneAfterAnother(b *testing.B) {
	for _, c := range []struct {
		name   string
		attach bool
	}{{"all there", false}, {"as attached", true}} {
		b.Run(c.name, func(b *testing.B) {
			var first, last time.Duration
			for b.Loop() {
				tenths := stageAll(b, simnode.New(b), 500, c.attach)
				first, last = first+tenths[0], last+tenths[9]
			}
			report(b, float64(last)/float64(first), "x-first", 1.2)
		})
	}
}

// stageAll stages and publishes volumes, and returns how long it took to stage each tenth of them.
// With attach, each disk is attached right before it is staged.
func stageAll(b *testing.B, n *simnode.Node, volumes int, attach bool) (took [10]time.Duration) {
	disk := func(i int) simnode.Disk {
		return simnode.Disk{SizeBytes: 1 << 30, Serial: fmt.Sprintf("vol-%d", i)}
	}
	for i := 0; i < volumes && !attach; i++ {
		n.AttachDisk(disk(i))
	}
	for i := range volumes {
		if attach {
			n.AttachDisk(disk(i))
		}
		took[10*i/volumes] += timed(b, func() error { return stageVolume(b.Context(), n, disk(i).Serial, stagingPath(i)) })
		target := fmt.Sprintf(`C:\var\lib\kubelet\pods\pod-%d\volumes\kubernetes.io~csi\pv\mount`, i)
		timed(b, func() error { return n.Operations().Storage.PublishVolume(b.Context(), stagingPath(i), target) })
	}
	return took
}

func stagingPath(i int) string { return fmt.Sprintf(`%s\vol-%d\globalmount`, stagingDir, i) }

// perObject measures f, which does something for each of a number of objects.
func perObject(b *testing.B, n *simnode.Node, objects int, aim float64, f func() error) {
	before := total(n.Calls())
	for b.Loop() {
		must(b, f())
	}
	each := float64(b.N) * float64(objects)
	report(b, float64(total(n.Calls())-before)/each, "calls/each", aim)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/1000/each, "µs/each")
}
