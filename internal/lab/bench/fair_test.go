// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Environment of the process that floods a daemon: the directory of its endpoints, and what
// to call.
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

// floodClients is how many clients of one process flood a daemon.
const floodClients = 300

// flood calls a daemon from many clients for as long as the process lives. It has a low
// priority: what it costs by itself isn't what is measured.
func flood(dir, call string) {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19); err != nil {
		panic(err)
	}
	f := fairCalls[call]
	for range floodClients {
		go func() {
			c := client.New(client.WithEndpointDir(dir))
			for {
				_ = f(context.Background(), c) // also when it is refused
			}
		}()
	}
	select {}
}

// BenchmarkFair measures what one process with hundreds of clients takes from another client. The
// metric x-p99 is the p99 of the other client's calls as a ratio to that while the same process
// floods another daemon.
func BenchmarkFair(b *testing.B) {
	binary := build(b)
	for _, call := range slices.Sorted(maps.Keys(fairCalls)) {
		b.Run(call, func(b *testing.B) {
			ours, others := startNode(b, binary), startNode(b, binary)
			c := client.New(client.WithEndpointDir(ours))
			defer c.Close()
			var beside, apart []time.Duration
			for b.Loop() { // by turns, since the speed of machines drifts
				apart = append(apart, besideFlood(b, c, others, call)...)
				beside = append(beside, besideFlood(b, c, ours, call)...)
			}
			slices.Sort(apart)
			slices.Sort(beside)
			b.ReportMetric(float64(p99(beside))/float64(p99(apart)), "x-p99")
			b.ReportMetric(float64(p99(apart).Microseconds()), "µs/p99-apart")
			b.ReportMetric(float64(beside[len(beside)/2])/float64(apart[len(apart)/2]), "x-p50")
		})
	}
}

// besideFlood measures calls of a client while a process floods the daemon in dir.
func besideFlood(b *testing.B, c *client.Client, dir, call string) (took []time.Duration) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), floodedDir+"="+dir, floodedCall+"="+call)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until all clients are there
	for range 300 {
		took = append(took, timed(b, func() error { return fairCalls[call](b.Context(), c) }))
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	_ = cmd.Wait() // killed
	return took
}

// startNode starts a daemon on a node with some disks, of which half have staged volumes, and
// returns the directory of its endpoints.
func startNode(b *testing.B, binary string) string {
	b.Helper()
	dir := shortDir(b)
	p := start(b, binary, dir)
	b.Cleanup(func() { stop(b, p) })
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, simv1.EndpointName+".sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
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
	return dir
}
