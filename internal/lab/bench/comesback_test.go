// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// BenchmarkNodeComesBack measures a node that comes back: one driver stages, or unstages, 60 volumes
// at once, over the endpoint, on two processors, with the delays of a quick cloud node. The metric
// x-alone is how many times longer that takes than one volume alone, by the medians of all rounds. The
// simulated node and the driver are in the same process.
//
// Unstaging 60 volumes has 55 ms of delays, as one volume has; the rest is processor time. So beside
// other work that needs processors, the figure says little, unless the measurement goes first (chrt -f 1).
func BenchmarkNodeComesBack(b *testing.B) {
	const volumes = 60
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, c := range []struct {
		name    string
		raw     bool // each round is on new nodes
		unstage bool // not staging is measured, but unstaging
		aim     float64
	}{
		{"raw", true, false, 1.15}, {"with data", false, false, 1.15}, {"unstage", false, true, 1.5},
	} {
		b.Run(c.name, func(b *testing.B) {
			var one, all *returned
			begin := func() { one, all = newReturned(b, 1), newReturned(b, volumes) }
			begin()
			if !c.raw {
				one.round()
				all.round()
			}
			var alone, together []time.Duration
			for b.Loop() {
				if c.raw && len(alone) > 0 {
					begin()
				}
				stage, unstage := one.round()
				stageAll, unstageAll := all.round()
				if c.unstage {
					stage, stageAll = unstage, unstageAll
				}
				alone, together = append(alone, stage), append(together, stageAll)
			}
			report(b, float64(median(together))/float64(median(alone)), "x-alone", c.aim)
			b.ReportMetric(float64(median(alone).Milliseconds()), "ms/one")
			b.ReportMetric(float64(median(together).Milliseconds()), fmt.Sprintf("ms/%d", volumes))
		})
	}
}

// TestNobodyWaitsForOthers shows that 60 volumes that are staged or unstaged at once wait for Windows
// no longer than one alone: what BenchmarkNodeComesBack has beyond that is processor time.
func TestNobodyWaitsForOthers(t *testing.T) {
	took := map[int][2]time.Duration{}
	for _, volumes := range []int{1, 60} {
		synctest.Test(t, func(t *testing.T) {
			n := simnode.New(t, simnode.WithRealisticDelays())
			for i := range volumes {
				n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: fmt.Sprintf("vol-%d", i)})
			}
			time.Sleep(time.Second) // until they have arrived
			operations := n.Operations().Storage
			took[volumes] = [2]time.Duration{
				atOnceTook(t, volumes, func(i int) error {
					_, err := operations.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
						Disk: csiproxy.Selector{SerialNumber: fmt.Sprintf("vol-%d", i)}, StagingPath: stagingPath(i)})
					return err
				}),
				atOnceTook(t, volumes, func(i int) error {
					_, err := operations.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath(i)})
					return err
				}),
			}
		})
	}
	if took[1] != took[60] {
		t.Errorf("staging and unstaging 60 volumes takes %v, and one %v", took[60], took[1])
	}
}

// atOnceTook runs f for so many volumes at once, and returns how long that takes.
func atOnceTook(tb testing.TB, volumes int, f func(i int) error) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for i := range volumes {
		wg.Go(func() {
			if err := f(i); err != nil {
				tb.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// returned is a simulated node with raw disks, and its driver.
type returned struct {
	b      *testing.B
	driver *client.Client
	disks  int
}

func newReturned(b *testing.B, disks int) *returned {
	n := simnode.New(b, simnode.WithRealisticDelays())
	for i := range disks {
		n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: fmt.Sprintf("vol-%d", i)})
	}
	waitForDisks(b, n, disks+1)
	driver := client.New(client.WithEndpointDir(n.EndpointDir()))
	b.Cleanup(func() { driver.Close() })
	return &returned{b, driver, disks}
}

// round stages and unstages all disks, and returns how long each takes.
func (r *returned) round() (stage, unstage time.Duration) {
	return r.each(clientStage), r.each(clientUnstage)
}

// each runs f for all disks at once, and returns how long that takes.
func (r *returned) each(f func(context.Context, *client.Client, int) error) time.Duration {
	return atOnceTook(r.b, r.disks, func(i int) error { return f(r.b.Context(), r.driver, i) })
}

func clientStage(ctx context.Context, c *client.Client, i int) error {
	_, err := c.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: fmt.Sprintf("vol-%d", i)}, StagingPath: stagingPath(i)})
	return err
}

func clientUnstage(ctx context.Context, c *client.Client, i int) error {
	_, err := c.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath(i)})
	return err
}
