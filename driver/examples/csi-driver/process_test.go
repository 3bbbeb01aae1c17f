// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/onsi/ginkgo/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-proxy/csi-proxy/client"
)

// startProcesses starts the daemon and the driver as they are built. It returns
// where the driver serves, and a client of the daemon.
func startProcesses(t *testing.T) (address string, c *client.Client) {
	bin, dir := t.TempDir(), shortDir(t)
	build(t, filepath.Join("..", "..", ".."), bin, "./cmd/csi-proxy")
	build(t, ".", bin, ".")

	endpoints, socket := filepath.Join(dir, "run"), filepath.Join(dir, "csi.sock")
	start(t, filepath.Join(bin, "csi-proxy"), "-node=simulated", "-endpoint-dir="+endpoints,
		"-sim-state="+filepath.Join(dir, "node.db"))
	c = client.New(client.WithEndpointDir(endpoints))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	start(t, filepath.Join(bin, "csi-driver"), "-endpoint=unix://"+socket, "-endpoint-dir="+endpoints,
		"-node-id="+nodeID, "-state-dir="+filepath.Join(dir, "state"))
	awaitReady(t, "unix:"+socket, c)
	return "unix:" + socket, c
}

// shortDir returns a directory for sockets, whose paths have to be short.
func shortDir(t *testing.T) string {
	temp := os.TempDir()
	if len(temp) > 30 && runtime.GOOS != "windows" {
		temp = "/tmp"
	}
	dir, err := os.MkdirTemp(temp, "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func build(t *testing.T, dir, bin, pkg string) {
	tags, err := os.ReadFile(filepath.Join("..", "..", "..", "cmd", "build-tags"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", strings.TrimSpace(string(tags)), "-o", bin+"/", pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// start starts a program, and ends it with the test, in order and without an error.
// csi-sanity shows what it logs for specs that fail.
func start(t *testing.T, program string, args ...string) {
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = ginkgo.GinkgoWriter, ginkgo.GinkgoWriter
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ends: %v", filepath.Base(program), err)
		}
	})
}

// dial returns a connection that ends with the test.
func dial(t *testing.T, address string) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// awaitReady waits until the driver answers and CSI Proxy is served: the driver's answer doesn't
// tell that.
func awaitReady(t *testing.T, address string, c *client.Client) {
	identity := csi.NewIdentityClient(dial(t, address))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := identity.Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(fmt.Errorf("the driver at %s: %w", address, err))
	}
	for {
		err := c.Storage.Ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}
