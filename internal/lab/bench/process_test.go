// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// build builds a program and returns its path.
func build(b *testing.B, pkg string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), filepath.Base(pkg))
	tags, err := os.ReadFile("../../../cmd/build-tags")
	must(b, err)
	if out, err := exec.Command("go", "build", "-tags", strings.TrimSpace(string(tags)), "-o", path, pkg).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

func buildDaemon(b *testing.B) string { return build(b, "../../../cmd/csi-proxy") }

// start starts a program that serves until it is told to stop.
func start(b *testing.B, program, arg string) (pid int, stop func()) {
	b.Helper()
	cmd := exec.Command(program, arg)
	must(b, cmd.Start())
	return cmd.Process.Pid, func() {
		must(b, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait() // the bare server ends with an error
	}
}

// startDaemon starts a daemon, and returns when it has answered a call.
func startDaemon(b *testing.B, program, dir string) (pid int, stop func()) {
	b.Helper()
	pid, stop = start(b, program, "-endpoint-dir="+dir)
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	for {
		if _, err := c.Volume.ListVolumesOnDisk(b.Context(), 0, 0); err == nil { // the volume group is the last to listen
			return pid, stop
		}
		time.Sleep(time.Millisecond)
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

// BenchmarkPathExists compares PathExists of the daemon with an empty call to a bare gRPC server,
// over Unix sockets, taking turns. Each is a program of its own. ns/op is the daemon's time alone, and the metric
// x-echo how many times longer it takes.
func BenchmarkPathExists(b *testing.B) {
	const path = kubelet + `\plugins\kubernetes.io\csi\pv\pvc-1`
	dir := shortDir(b)
	_, stopDaemon := startDaemon(b, buildDaemon(b), dir)
	defer stopDaemon()
	socket := filepath.Join(dir, "bare.sock")
	_, stopBare := start(b, build(b, "./bare"), socket)
	defer stopBare()

	conn := connect(b, filepath.Join(dir, "csi-proxy-filesystem-v1.sock"))
	must(b, conn.Invoke(b.Context(), "/v1.Filesystem/Mkdir", &filesystemv2alpha1.MkdirRequest{Path: path},
		new(filesystemv2alpha1.MkdirResponse)))
	exists := func() error { return pathExists(b.Context(), conn, path) }
	health := healthgrpc.NewHealthClient(connect(b, socket))
	_, err := health.Check(b.Context(), new(healthgrpc.HealthCheckRequest), grpc.WaitForReady(true))
	must(b, err)
	echo := func() error {
		_, err := health.Check(b.Context(), new(healthgrpc.HealthCheckRequest))
		return err
	}

	const turn = 10 // calls: a processor still looks for work for a moment after one
	measure := func(call func() error) (took time.Duration) {
		for range turn {
			took += timed(b, call)
		}
		return took
	}
	var ours, bare time.Duration
	for b.Loop() {
		ours += measure(exists)
		bare += measure(echo)
	}
	calls := float64(b.N) * turn
	b.ReportMetric(float64(ours)/float64(bare), "x-echo")
	b.ReportMetric(float64(ours)/calls, "ns/op")
	b.ReportMetric(float64(bare)/calls, "ns/echo")
}

// BenchmarkStart measures the time from the start of the daemon to its first answer, its memory then, and the size of its
// program.
func BenchmarkStart(b *testing.B) {
	program, dir := buildDaemon(b), shortDir(b)
	info, err := os.Stat(program)
	must(b, err)
	resident := 0.
	var took time.Duration
	for b.Loop() {
		began := time.Now()
		pid, stop := startDaemon(b, program, dir)
		took += time.Since(began)
		resident += residentKiB(b, pid)
		stop()
	}
	n := float64(b.N)
	b.ReportMetric(float64(took)/n, "ns/op")
	b.ReportMetric(resident/n/1024, "MiB/idle")
	b.ReportMetric(float64(info.Size()), "bytes/program")
}

// residentKiB is the resident memory of a process.
func residentKiB(b *testing.B, pid int) (kib float64) {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	_, err = fmt.Sscan(rest, &kib)
	must(b, err)
	return kib
}
