// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// childOf makes this program a process of a driver, which does what the variable names in a directory.
const (
	childOf = "CSINODE_TEST_CHILD"
	childIn = "CSINODE_TEST_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childOf) {
	case "":
		os.Exit(m.Run())
	case "publish":
		childPublish(os.Getenv(childIn))
	case "serve":
		childServe(os.Getenv(childIn))
	}
}

// childServer is a service on a simulated node of its process.
func childServer(dir string) *csinode.Server {
	n, err := simnode.Start()
	check(err)
	n.AttachDisk(simnode.Disk{Serial: "vol-1", SizeBytes: 1 << 30})
	s, err := csinode.New(csinode.Options{
		Name: "disk.example.com", NodeID: "node-1", Storage: n.Client().Storage, StateDir: filepath.Join(dir, "state"),
		Wait: time.Second,
		Source: func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
			return csinode.Source{Disk: csiproxy.Selector{SerialNumber: r.VolumeId}}, nil
		},
	})
	check(err)
	return s
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const targetsOfAChild = 40

// childPublish acknowledges each target on its standard output.
func childPublish(dir string) {
	ctx, s := context.Background(), childServer(dir)
	_, err := s.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1", StagingTargetPath: staging, VolumeCapability: multiWriter()})
	check(err)
	for i := range targetsOfAChild {
		at := target(fmt.Sprintf("pod-%d-%d", os.Getpid(), i))
		_, err := s.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId: "vol-1", StagingTargetPath: staging, TargetPath: at, VolumeCapability: multiWriter()})
		check(err)
		fmt.Println(at)
	}
}

func childServe(dir string) {
	s := childServer(dir)
	fmt.Println("ready")
	check(s.ListenAndServe(context.Background(), filepath.Join(dir, "new", "csi.sock")))
}

func child(t *testing.T, what, dir string) (*exec.Cmd, *bufio.Scanner) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childOf+"="+what, childIn+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// Two processes with one directory, as in a rolling update, lose no target that either has
// acknowledged: the second waits until the first has ended.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	one, outOfOne := child(t, "publish", dir)
	other, outOfOther := child(t, "publish", dir)
	var acknowledged []string
	for _, out := range []*bufio.Scanner{outOfOne, outOfOther} {
		for out.Scan() {
			acknowledged = append(acknowledged, out.Text())
		}
	}
	must(t, one.Wait())
	must(t, other.Wait())
	if len(acknowledged) != 2*targetsOfAChild {
		t.Fatalf("%d targets were acknowledged", len(acknowledged))
	}
	files, err := filepath.Glob(filepath.Join(dir, "state", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("records %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	must(t, err)
	lost := 0
	for _, at := range acknowledged {
		text, err := json.Marshal(at)
		must(t, err)
		if !strings.Contains(string(data), string(text)) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acknowledged targets are lost", lost, len(acknowledged))
	}
}

// A process that doesn't get the directory says so, and one that is killed has it no more, nor its
// socket.
func TestAfterAKill(t *testing.T) {
	temp := os.TempDir()
	if len(temp) > 70 {
		temp = "/tmp"
	}
	dir, err := os.MkdirTemp(temp, "csi") // that of the test is too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "new", "csi.sock")
	before, out := child(t, "serve", dir)
	if !out.Scan() {
		t.Fatal("the first process serves nothing")
	}
	answers(t, path)

	inState := func(o *csinode.Options) { o.StateDir = filepath.Join(dir, "state") }
	n := simnode.New(t)
	options := csinode.Options{Name: "disk.example.com", NodeID: "node-1", Storage: n.Client().Storage,
		Source: func(context.Context, *csi.NodeStageVolumeRequest) (csinode.Source, error) {
			return csinode.Source{}, nil
		}}
	inState(&options)
	csinode.SetTakeoverTimeout(t, 0)
	if _, err := csinode.New(options); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("with the directory of another process: %v", err)
	}
	elsewhere, _ := newServer(t, nil)
	if err := elsewhere.ListenAndServe(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("at the socket of another process: %v", err)
	}
	answers(t, path)

	must(t, before.Process.Kill())
	if err := before.Wait(); err == nil {
		t.Error("the process has ended by itself")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the killed process has left no socket, so this shows nothing: %v", err)
	}
	s, err := csinode.New(options)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ListenAndServe(ctx, path) }()
	answers(t, path)
	stop()
	must(t, <-ended)
}

// What isn't a socket stays.
func TestListenAtAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("kept"), 0o600))
	if _, err := csinode.Listen(t.Context(), file); err == nil {
		t.Error("a file was taken for a socket")
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
}

// answers fails the test unless a driver answers at a socket.
func answers(t *testing.T, path string) {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	conn, err := grpc.NewClient("passthrough:///csi", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	must(t, err)
	defer func() { must(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
	must(t, err)
}
