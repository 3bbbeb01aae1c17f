// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	filesystemv1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
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

// echo serves the smallest possible gRPC call at a socket.
func echo(tb testing.TB) (socket string) {
	tb.Helper()
	socket = filepath.Join(tb.TempDir(), "echo.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	go serveBare(l)
	tb.Cleanup(func() { l.Close() })
	return socket
}

// serveBare serves the smallest possible gRPC call.
func serveBare(l net.Listener) error {
	s := grpc.NewServer()
	healthgrpc.RegisterHealthServer(s, health.NewServer())
	return s.Serve(l)
}

// processorTime is what this process has had; where that isn't known, how long it runs.
var processorTime = func() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}()

// BenchmarkPathExists compares a round trip of PathExists over a Unix socket with
// an empty call to a bare gRPC server, taking turns: the metric x-echo is how many
// times longer it takes, and x-echo-cpu how many times the processor time, of both ends.
func BenchmarkPathExists(b *testing.B) {
	ctx := b.Context()
	node := simnode.New(b)
	const path = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\pv\pvc-1`
	if err := node.MkdirAll(path); err != nil {
		b.Fatal(err)
	}
	served := connect(b, filepath.Join(node.EndpointDir(), "csi-proxy-filesystem-v1.sock"))
	empty := healthgrpc.NewHealthClient(connect(b, echo(b)))

	exists := func() error {
		response := new(filesystemv1.PathExistsResponse)
		err := served.Invoke(ctx, "/v1.Filesystem/PathExists", &filesystemv1.PathExistsRequest{Path: path}, response)
		if err == nil && !response.Exists {
			err = fmt.Errorf("%s doesn't exist", path)
		}
		return err
	}
	call := func() error {
		_, err := empty.Check(ctx, &healthgrpc.HealthCheckRequest{})
		return err
	}
	const turn = 10 // calls: a processor still looks for work for a moment after one
	var ours, bare, oursCPU, bareCPU time.Duration
	measure := func(took, cpu *time.Duration, call func() error) {
		before := processorTime()
		for range turn {
			*took += timed(b, call)
		}
		*cpu += processorTime() - before
	}
	for b.Loop() {
		measure(&ours, &oursCPU, exists)
		measure(&bare, &bareCPU, call)
	}
	report(b, float64(ours)/float64(bare), "x-echo", 1.15)
	b.ReportMetric(float64(oursCPU)/float64(bareCPU), "x-echo-cpu")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N)/turn, "µs/PathExists")
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N)/turn, "µs/echo")
}

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

// report prints a figure and its aim, if it has one: see docs/performance.md.
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
		if err != nil {
			b.Fatal(err)
		}
		if len(ids) == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
