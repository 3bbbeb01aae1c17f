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

// newNode returns a node with so many raw disks and the delays of a quick cloud node.
func newNode(tb testing.TB, disks int) *simnode.Node {
	n := simnode.New(tb, simnode.WithRealisticDelays())
	for i := range disks {
		n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: serialNumber(i)})
	}
	for { // until they have arrived, beside the one that Windows runs from
		ids, err := n.Operations().Disk.ListDiskIDs(tb.Context())
		must(tb, err)
		if len(ids) == disks+1 {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func serialNumber(i int) string { return fmt.Sprintf("vol-%d", i) }

func stagingPath(i int) string {
	return fmt.Sprintf(kubelet+`\plugins\kubernetes.io\csi\ebs.csi.aws.com\vol-%d\globalmount`, i)
}

func stage(ctx context.Context, s csiproxy.StorageOperations, i int) error {
	_, err := s.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: serialNumber(i)}, StagingPath: stagingPath(i)})
	return err
}

func unstage(ctx context.Context, s csiproxy.StorageOperations, i int) error {
	_, err := s.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath(i)})
	return err
}

// driver is the driver of a node with so many disks.
type driver struct {
	tb      testing.TB
	storage csiproxy.StorageOperations
	disks   int
}

// newDriver returns the driver of a new node, which it calls over the endpoint.
func newDriver(tb testing.TB, disks int) driver {
	c := client.New(client.WithEndpointDir(newNode(tb, disks).EndpointDir()))
	tb.Cleanup(func() { c.Close() })
	return driver{tb, c.Storage, disks}
}

// each does something with all disks at once, and returns how long that takes.
func (d driver) each(f func(context.Context, csiproxy.StorageOperations, int) error) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for i := range d.disks {
		wg.Go(func() {
			if err := f(d.tb.Context(), d.storage, i); err != nil {
				d.tb.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

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
		name string
		// rounds returns what measures a round with so many disks.
		rounds func(b *testing.B, disks int) func() time.Duration
	}{
		{"raw", func(b *testing.B, disks int) func() time.Duration {
			return func() time.Duration { return newDriver(b, disks).each(stage) }
		}},
		{"with data", func(b *testing.B, disks int) func() time.Duration {
			d := newDriver(b, disks)
			d.each(stage) // which formats them
			return func() time.Duration {
				d.each(unstage)
				return d.each(stage)
			}
		}},
		{"unstage", func(b *testing.B, disks int) func() time.Duration {
			d := newDriver(b, disks)
			d.each(stage)
			return func() time.Duration {
				defer d.each(stage)
				return d.each(unstage)
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			one, all := c.rounds(b, 1), c.rounds(b, volumes)
			var alone, together []time.Duration
			for b.Loop() {
				alone, together = append(alone, one()), append(together, all())
			}
			b.ReportMetric(float64(median(together))/float64(median(alone)), "x-alone")
			b.ReportMetric(float64(median(alone)), "ns/one")
			b.ReportMetric(float64(median(together)), fmt.Sprintf("ns/%d", volumes))
			b.ReportMetric(0, "ns/op") // of both together says nothing
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// TestNobodyWaitsForOthers shows that 60 volumes that are staged or unstaged at once wait for Windows
// no longer than one alone: what BenchmarkNodeComesBack has beyond that is processor time.
func TestNobodyWaitsForOthers(t *testing.T) {
	took := map[int][2]time.Duration{}
	for _, volumes := range []int{1, 60} {
		synctest.Test(t, func(t *testing.T) {
			d := driver{t, newNode(t, volumes).Operations().Storage, volumes}
			took[volumes] = [2]time.Duration{d.each(stage), d.each(unstage)}
		})
	}
	if took[1] != took[60] {
		t.Errorf("staging and unstaging 60 volumes takes %v, and one %v", took[60], took[1])
	}
}
