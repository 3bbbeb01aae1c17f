// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Environment of the processes that the benchmark starts of itself, which flood a daemon: the
// directory of its endpoints, and what to call.
const floodedDir, floodedCall = "BENCH_FLOODED_DIR", "BENCH_FLOODED_CALL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(floodedDir); dir != "" {
		flood(dir, os.Getenv(floodedCall))
	}
	os.Exit(m.Run())
}

// fairCalls are what the flood and the other client call.
var fairCalls = map[string]func(context.Context, *client.Client) error{
	"PathExists": func(ctx context.Context, c *client.Client) error {
		_, err := c.Filesystem.PathExists(ctx, kubelet)
		return err
	},
	"ListDiskIDs": func(ctx context.Context, c *client.Client) error {
		_, err := c.Disk.ListDiskIDs(ctx)
		return err
	},
	"ListDisks": func(ctx context.Context, c *client.Client) error {
		_, err := c.Storage.ListDisks(ctx, storage.Selector{})
		return err
	},
	"ListVolumes": func(ctx context.Context, c *client.Client) error {
		_, err := c.Storage.ListVolumes(ctx)
		return err
	},
	"WatchDisks": func(ctx context.Context, c *client.Client) error {
		for _, err := range c.Storage.WatchDisks(ctx, storage.Selector{}) {
			return err
		}
		return nil
	},
}

// bare is the call for which a bare gRPC server is in place of the daemon, and the name of its
// program. bareEndpoint is where it serves.
const bare, bareEndpoint = "bare", "bare.sock"

// callOf returns a call of a client of its own.
func callOf(dir, call string) func(context.Context) error {
	if f, ok := fairCalls[call]; ok {
		c := client.New(client.WithEndpointDir(dir))
		return func(ctx context.Context) error { return f(ctx, c) }
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, bareEndpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	c := healthgrpc.NewHealthClient(conn)
	return func(ctx context.Context) error {
		_, err := c.Check(ctx, &healthgrpc.HealthCheckRequest{})
		return err
	}
}

// floodClients is how many clients of one process flood a daemon.
const floodClients = 300

// flood calls a daemon from many clients for as long as the process lives. It has a low
// priority: what it costs by itself isn't what is measured. It writes a byte for each answer.
func flood(dir, call string) {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		panic(err)
	}
	for range floodClients {
		go func() {
			f := callOf(dir, call)
			for {
				_ = f(context.Background()) // also when it is refused
				_, _ = os.Stdout.Write([]byte{0})
			}
		}()
	}
	select {}
}

// BenchmarkFair measures what one process with hundreds of clients takes from another client. The
// metric x-p99 is the p99 of the other client's calls as a ratio to that while the same process
// floods another daemon. What the machine does besides hardly changes calls-first: how many calls
// the daemon has made during one of the other client's, at the p99, by the processor time that it
// had. With a bare gRPC server in place of the daemon, both say what is gRPC's and Go's part.
func BenchmarkFair(b *testing.B) {
	for _, call := range append(slices.Sorted(maps.Keys(fairCalls)), bare) {
		b.Run(call, func(b *testing.B) {
			ours, others := startServer(b, call), startServer(b, call)
			f := callOf(ours.dir, call)
			var beside, apart, first []time.Duration
			var answers int
			before := ours.cpu()
			for b.Loop() { // by turns, since the speed of machines drifts
				took, _, _ := besideFlood(b, f, ours, others, call)
				apart = append(apart, took...)
				took, worked, n := besideFlood(b, f, ours, ours, call)
				beside, first, answers = append(beside, took...), append(first, worked...), answers+n+2*len(took)
			}
			each := float64(ours.cpu()-before) / float64(answers)
			slices.Sort(apart)
			slices.Sort(beside)
			slices.Sort(first)
			report(b, float64(p99(beside))/float64(p99(apart)), "x-p99", 3)
			b.ReportMetric(float64(p99(apart).Microseconds()), "µs/p99-apart")
			b.ReportMetric(float64(beside[len(beside)/2])/float64(apart[len(apart)/2]), "x-p50")
			b.ReportMetric(float64(p99(first))/each, "calls-first")
			b.ReportMetric(each/1000, "cpu-µs/call")
		})
	}
}

// besideFlood measures calls to a daemon while a process floods it, or another one: how long they
// took, and how long the daemon worked meanwhile. answers is how many the flood has got.
func besideFlood(b *testing.B, f func(context.Context) error, called, flooded server, call string) (
	took, worked []time.Duration, answers int) {
	b.Helper()
	var answered bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), floodedDir+"="+flooded.dir, floodedCall+"="+call)
	cmd.Stdout, cmd.Stderr = &answered, os.Stderr
	must(b, cmd.Start())
	time.Sleep(500 * time.Millisecond) // until all clients are there
	for range 300 {
		before := called.cpu()
		took = append(took, timed(b, func() error { return f(b.Context()) }))
		worked = append(worked, called.cpu()-before)
		time.Sleep(time.Millisecond)
	}
	must(b, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	return took, worked, answered.Len()
}

// server is a process that is called.
type server struct {
	dir string // of its endpoints
	pid int
}

// cpu is the processor time that the process has had: see CPUCLOCK_SCHED of Linux.
func (s server) cpu() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^s.pid<<3|2), &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

func init() { processorTime = server{pid: os.Getpid()}.cpu }

// startServer starts what answers a call: the daemon, or a bare gRPC server.
func startServer(b *testing.B, call string) server {
	if call != bare {
		return startNode(b)
	}
	dir := shortDir(b)
	cmd := exec.Command(build(b, "./bare"), filepath.Join(dir, bareEndpoint))
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	for f := callOf(dir, bare); f(b.Context()) != nil; {
		time.Sleep(time.Millisecond)
	}
	return server{dir, cmd.Process.Pid}
}

// startNode starts a daemon on a node with some disks, of which half have staged volumes, and
// returns the directory of its endpoints.
func startNode(b *testing.B) server {
	b.Helper()
	dir := shortDir(b)
	p := start(b, build(b, daemon), dir)
	b.Cleanup(func() { stop(b, p) })
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, simv1.EndpointName+".sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(b, err)
	defer conn.Close()
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	for i := range 8 {
		serial := fmt.Sprintf("serial%d", i)
		if _, err := simv1.Call[simv1.DiskNumber](b.Context(), conn, "AttachDisk",
			&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: serial}); err != nil {
			b.Fatal(err)
		}
		if i%2 == 0 {
			continue
		}
		if _, err := c.Storage.StageVolume(b.Context(), storage.StageVolumeRequest{
			Disk: storage.Selector{SerialNumber: serial}, StagingPath: fmt.Sprintf(`%s\staged%d`, kubelet, i),
		}); err != nil {
			b.Fatal(err)
		}
	}
	return server{dir, p.Pid}
}
