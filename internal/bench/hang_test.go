// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	filesystemv1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const kubelet = `C:\var\lib\kubelet`

func pathExists(ctx context.Context, conn *grpc.ClientConn, path string) error {
	return conn.Invoke(ctx, "/v1.Filesystem/PathExists", &filesystemv1.PathExistsRequest{Path: path}, new(filesystemv1.PathExistsResponse))
}

// BenchmarkHang measures how a driver slows down other callers if it makes 1,000 calls on a
// path for which Windows never answers, repeats them every second, and sends no deadline.
// The metric x-p99 is the p99 of the others' calls as a ratio to that under the same load
// while Windows answers.
func BenchmarkHang(b *testing.B) {
	node := simnode.New(b)
	if err := node.MkdirAll(kubelet + `\pods`); err != nil {
		b.Fatal(err)
	}
	node.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
	files := filepath.Join(node.EndpointDir(), "csi-proxy-filesystem-v1.sock")
	disks := filepath.Join(node.EndpointDir(), "csi-proxy-disk-v1.sock")
	sim := simv1.NewSimClient(connect(b, filepath.Join(node.EndpointDir(), simv1.EndpointName+".sock")))

	var answered atomic.Int64
	// everybody makes so many calls from four clients, and returns the p99.
	everybody := func() time.Duration {
		const calls = 400
		var mu sync.Mutex
		var took []time.Duration
		var clients sync.WaitGroup
		for c := range 4 {
			file, disk := connect(b, files), connect(b, disks)
			clients.Go(func() {
				for i := range calls {
					took1 := timed(b, func() error {
						if i%8 == 0 {
							return disk.Invoke(b.Context(), "/v1.Disk/ListDiskIDs", new(diskv1.ListDiskIDsRequest), new(diskv1.ListDiskIDsResponse))
						}
						return pathExists(b.Context(), file, fmt.Sprintf(`%s\pods\%d`, kubelet, c))
					})
					mu.Lock()
					took = append(took, took1)
					mu.Unlock()
				}
			})
		}
		clients.Wait()
		slices.Sort(took)
		return took[len(took)*99/100]
	}

	hung := connect(b, files)
	// besideDriver measures everybody while the driver makes its calls.
	besideDriver := func() time.Duration {
		ctx, cancel := context.WithCancel(b.Context())
		var driver sync.WaitGroup
		for i := range 1000 {
			driver.Go(func() {
				wait := time.Duration(i) * time.Millisecond
				for {
					select {
					case <-time.After(wait):
					case <-ctx.Done():
						return
					}
					_ = pathExists(ctx, hung, kubelet+`\hangs`)
					answered.Add(1)
					wait = time.Second
				}
			})
		}
		time.Sleep(2500 * time.Millisecond) // until the daemon knows that Windows doesn't answer
		p99 := everybody()
		cancel()
		driver.Wait()
		return p99
	}

	var without, with time.Duration
	for b.Loop() {
		without += besideDriver()
		_, err := sim.AddRule(b.Context(), &simv1.AddRuleRequest{Rule: &simv1.Rule{
			Call: "NtCreateFile", Object: "hangs", Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)}, Uncancellable: true,
		}})
		if err != nil {
			b.Fatal(err)
		}
		answered.Store(0)
		with += besideDriver()
		if _, err := sim.ClearRules(b.Context(), &simv1.ClearRulesRequest{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(with)/float64(without), "x-p99")
	b.ReportMetric(float64(without.Microseconds())/float64(b.N), "µs/p99-without")
	b.ReportMetric(float64(with.Microseconds())/float64(b.N), "µs/p99-with")
	b.ReportMetric(float64(answered.Load()), "repeats-answered")
}

// BenchmarkClients measures the throughput of PathExists with 32 clients against that
// with 8: the metric x-8 must not be far below 1.
func BenchmarkClients(b *testing.B) {
	node := simnode.New(b)
	if err := node.MkdirAll(kubelet + `\pods`); err != nil {
		b.Fatal(err)
	}
	files := filepath.Join(node.EndpointDir(), "csi-proxy-filesystem-v1.sock")
	const calls = 1600
	dial := func(clients int) (conns []*grpc.ClientConn) {
		for range clients {
			conn := connect(b, files)
			if err := pathExists(b.Context(), conn, kubelet); err != nil {
				b.Fatal(err)
			}
			conns = append(conns, conn)
		}
		return conns
	}
	run := func(conns []*grpc.ClientConn) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		for _, conn := range conns {
			wg.Go(func() {
				for range calls / len(conns) {
					if err := pathExists(b.Context(), conn, kubelet+`\pods`); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(start)
	}
	few, lots := dial(8), dial(32)
	var eight, many time.Duration
	for b.Loop() { // in turns, since the speed of machines drifts
		eight += run(few)
		many += run(lots)
	}
	b.ReportMetric(float64(eight)/float64(many), "x-8")
	b.ReportMetric(calls*float64(b.N)/eight.Seconds(), "calls/s-with-8")
	b.ReportMetric(calls*float64(b.N)/many.Seconds(), "calls/s-with-32")
}
