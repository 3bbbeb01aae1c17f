// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	filesystemv1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// daemon is the package of the daemon.
const daemon = "../../../cmd/csi-proxy"

// build builds a program and returns its path.
func build(b *testing.B, pkg string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

// start starts the daemon and returns when it has answered a call.
func start(b *testing.B, binary, dir string) *os.Process {
	b.Helper()
	cmd := exec.Command(binary, "-endpoint-dir="+dir)
	must(b, cmd.Start())
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	for {
		_, err := c.Volume.ListVolumesOnDisk(b.Context(), 0, 0) // the volume group is the last to listen
		if err == nil {
			return cmd.Process
		}
		time.Sleep(time.Millisecond)
	}
}

func stop(b *testing.B, p *os.Process) {
	must(b, p.Signal(syscall.SIGTERM))
	if _, err := p.Wait(); err != nil {
		b.Fatal(err)
	}
}

// shortDir is a directory with a short path, since the paths of sockets must be short.
func shortDir(b *testing.B) string {
	b.Helper()
	dir, err := pipe.MkdirTemp("bench")
	must(b, err)
	b.Cleanup(func() { os.RemoveAll(dir) })
	return dir
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

// startNode starts a daemon on a node.
func startNode(b *testing.B) server {
	b.Helper()
	dir := shortDir(b)
	p := start(b, build(b, daemon), dir)
	b.Cleanup(func() { stop(b, p) })
	return server{dir, p.Pid}
}

// bareEndpoint is where the bare gRPC server serves.
const bareEndpoint = "bare.sock"

// startBare starts a bare gRPC server.
func startBare(b *testing.B) server {
	b.Helper()
	dir := shortDir(b)
	cmd := exec.Command(build(b, "./bare"), filepath.Join(dir, bareEndpoint))
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	conn := connect(b, filepath.Join(dir, bareEndpoint))
	_, err := healthgrpc.NewHealthClient(conn).Check(b.Context(), new(healthgrpc.HealthCheckRequest),
		grpc.WaitForReady(true))
	must(b, err)
	return server{dir, cmd.Process.Pid}
}

// BenchmarkPathExists compares PathExists of the daemon with an empty call to a bare gRPC server,
// over Unix sockets, taking turns. Each is a program of its own. The metric x-echo is how many times
// longer it takes, and x-echo-cpu how many times the processor time, of both ends. A part of it is
// the simulated node's: x-echo-no-node is without what that takes in process.
func BenchmarkPathExists(b *testing.B) {
	const path = kubelet + `\plugins\kubernetes.io\csi\pv\pvc-1`
	ours, bareServer := startNode(b), startBare(b)
	conn := connect(b, filepath.Join(ours.dir, "csi-proxy-filesystem-v1.sock"))
	if err := conn.Invoke(b.Context(), "/v1.Filesystem/Mkdir", &filesystemv1.MkdirRequest{Path: path},
		new(filesystemv1.MkdirResponse)); err != nil {
		b.Fatal(err)
	}
	exists := func() error { return pathExists(b.Context(), conn, path) }
	echo := healthgrpc.NewHealthClient(connect(b, filepath.Join(bareServer.dir, bareEndpoint)))

	const turn = 10 // calls: a processor still looks for work for a moment after one
	var took, cpu [2]time.Duration
	measure := func(i int, s server, call func() error) {
		before := processorTime() + s.cpu()
		for range turn {
			took[i] += timed(b, call)
		}
		cpu[i] += processorTime() + s.cpu() - before
	}
	for b.Loop() {
		measure(0, ours, exists)
		measure(1, bareServer, func() error {
			_, err := echo.Check(b.Context(), new(healthgrpc.HealthCheckRequest))
			return err
		})
	}
	calls := float64(b.N) * turn
	node := openInNode(b, path)
	report(b, float64(took[0])/float64(took[1]), "x-echo", 1.35)
	b.ReportMetric((float64(took[0])-calls*float64(node))/float64(took[1]), "x-echo-no-node")
	b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "x-echo-cpu")
	b.ReportMetric(float64(took[0].Microseconds())/calls, "µs/PathExists")
	b.ReportMetric(float64(took[1].Microseconds())/calls, "µs/echo")
	b.ReportMetric(float64(node.Nanoseconds())/1000, "µs/node")
}

// openInNode returns how long the simulated node takes for the open and the close of PathExists.
func openInNode(b *testing.B, path string) time.Duration {
	sys, err := winsim.Open(winsim.Config{})
	must(b, err)
	defer sys.Close()
	must(b, sys.MkdirAll(path))
	look := win.OpenOptions{Access: win.FileReadAttributes | win.Synchronize, Share: win.ShareRead | win.ShareWrite,
		Disposition: win.FileOpen, Options: win.FileOpenReparsePoint | win.FileOpenForBackup}
	dir, err := sys.OpenFile(b.Context(), kubelet, look)
	must(b, err)
	defer dir.Close()
	const opens = 10_000
	start := time.Now()
	for range opens {
		f, err := dir.OpenAt(b.Context(), strings.TrimPrefix(path, kubelet+`\`), look)
		must(b, err)
		f.Close()
	}
	return time.Since(start) / opens
}

// BenchmarkStart is the time from the start of the process to its first answer.
func BenchmarkStart(b *testing.B) {
	binary, dir := build(b, daemon), shortDir(b)
	for b.Loop() {
		p := start(b, binary, dir)
		b.StopTimer()
		stop(b, p)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/start")
}

// BenchmarkIdle is the memory of the idle daemon.
func BenchmarkIdle(b *testing.B) {
	binary, dir := build(b, daemon), shortDir(b)
	var resident float64
	for b.Loop() {
		p := start(b, binary, dir)
		resident += residentKiB(b, p.Pid)
		stop(b, p)
	}
	b.ReportMetric(resident/float64(b.N)/1024, "MiB/idle")
}

// residentKiB is the resident memory of a process.
func residentKiB(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			must(b, err)
			return kib
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
