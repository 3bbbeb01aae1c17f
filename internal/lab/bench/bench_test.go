// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-proxy/csi-proxy/simnode"
)

func connect(tb testing.TB, socket string) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

// processorTime is what this process has had; where that isn't known, how long it runs.
var processorTime = func() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}()

func timed(tb testing.TB, f func() error) time.Duration {
	start := time.Now()
	err := f()
	took := time.Since(start)
	if err != nil {
		tb.Fatal(err)
	}
	return took
}

// BenchmarkListDiskIDs shows that the work is linear in the number of disks: the number of
// calls to Windows for each disk is constant.
func BenchmarkListDiskIDs(b *testing.B) {
	for _, disks := range []int{1, 64, 1000} {
		b.Run(fmt.Sprintf("disks=%d", disks), func(b *testing.B) {
			node := simnode.New(b)
			for range disks - 1 { // Windows runs from one more
				node.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
			}
			operations := node.Operations().Disk
			before, cpu := total(node.Calls()), processorTime()
			for b.Loop() {
				ids, err := operations.ListDiskIDs(b.Context())
				if err != nil || len(ids) != disks {
					b.Fatalf("%d disks, %v", len(ids), err)
				}
			}
			perDisk := float64(b.N) * float64(disks)
			b.ReportMetric(float64(processorTime()-cpu)/perDisk, "cpu-ns/disk")
			b.ReportMetric(float64(total(node.Calls())-before)/perDisk, "calls/disk")
			report(b, float64(b.Elapsed().Nanoseconds())/perDisk, "ns/disk", 10_000)
		})
	}
}

// report prints a figure, and its aim if it has one.
func report(b *testing.B, figure float64, unit string, aim float64) {
	b.ReportMetric(figure, unit)
	if aim > 0 {
		b.ReportMetric(aim, unit+"-aim")
	}
}

func total(calls map[string]int) (n int) {
	for _, c := range calls {
		n += c
	}
	return n
}

// BenchmarkStage compares staging 64 volumes at once with staging one alone, with the delays of a
// quick cloud node: the metric x-alone is how many times longer it takes. Nothing in the product may
// make one disk wait for another.
func BenchmarkStage(b *testing.B) { atOnce(b, 1.5, nodeStage) }

// atOnce measures how many times longer than one alone 64 volumes take that are staged at once.
func atOnce(b *testing.B, aim float64, stage func(_ context.Context, n *simnode.Node, serial, path string) error) {
	const volumes = 64
	run := func(count int) time.Duration {
		n := simnode.New(b, simnode.WithRealisticDelays())
		for i := range count {
			n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: fmt.Sprintf("vol-%d", i)})
		}
		waitForDisks(b, n, count+1)
		start := time.Now()
		var wg sync.WaitGroup
		for i := range count {
			wg.Go(func() {
				if err := stage(b.Context(), n, fmt.Sprintf("vol-%d", i), stagingPath(i)); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	var alone, together time.Duration
	for b.Loop() {
		alone += run(1)
		together += run(volumes)
	}
	report(b, float64(together)/float64(alone), "x-alone", aim)
	b.ReportMetric(float64(alone.Milliseconds())/float64(b.N), "ms/one")
	b.ReportMetric(float64(together.Milliseconds())/float64(b.N), fmt.Sprintf("ms/%d", volumes))
}

func waitForDisks(b *testing.B, node *simnode.Node, want int) {
	for {
		ids, err := node.Operations().Disk.ListDiskIDs(b.Context())
		must(b, err)
		if len(ids) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
