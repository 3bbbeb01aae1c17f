// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dropin tests the module in driver/compat/csi-proxy/v2 as a driver uses it: by a replace in
// go.mod, and otherwise as the published library.
package dropin

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const (
	staging  = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\ebs.csi.aws.com\0123\globalmount`
	password = "a password"
	target   = `C:\var\lib\kubelet\pods\4567\volumes\kubernetes.io~csi\pv-1\mount`
)

// build builds the driver in testdata.
func build(t *testing.T, args ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "driver")
	out, err := exec.Command("go", append(append([]string{"build", "-o", program}, args...),
		"./testdata/driver")...).CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// newNode builds the driver. run runs a phase of it on a simulated node, which node shows between
// the runs.
func newNode(t *testing.T) (run func(phase string) string, node func(func(n *simnode.Node))) {
	program := build(t, "-tags=simulated")
	state := filepath.Join(t.TempDir(), "node")
	run = func(phase string) string {
		t.Helper()
		cmd := exec.Command(program, phase)
		cmd.Env = append(cmd.Environ(), "CSI_PROXY_SIMULATED_STATE="+state, "PASSWORD="+password)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", phase, err, &stderr)
		}
		return string(out)
	}
	node = func(f func(n *simnode.Node)) {
		t.Helper()
		n, err := simnode.Start(simnode.WithStateFile(state))
		must(t, err)
		f(n)
		must(t, n.Close())
	}
	return run, node
}

// A driver's program lives a volume's life on a simulated node.
func TestLife(t *testing.T) {
	run, node := newNode(t)
	node(func(n *simnode.Node) {
		n.SetBIOSSerial("ec2-0123")
		n.AttachDisk(simnode.Disk{Serial: "vol0abc1234def567890", SizeBytes: 10 << 30})
	})
	if out := run("stage"); !strings.HasPrefix(out, "disk 1, ") || !strings.HasSuffix(out, "machine ec2-0123\n") {
		t.Errorf("stage: %q", out)
	}
	node(func(n *simnode.Node) {
		if err := n.WriteFile(target+`\data`, []byte("kept")); err != nil {
			t.Error(err)
		}
	})
	run("unstage")
	node(func(n *simnode.Node) {
		if _, err := n.ReadDir(staging); err == nil {
			t.Error("the staging directory is there after unstage")
		}
		if disks := n.Disks(); len(disks) != 2 || !disks[1].Offline {
			t.Errorf("after unstage the disks are %+v", disks)
		}
	})
}

// The same for a share.
func TestLifeOfAShare(t *testing.T) {
	run, node := newNode(t)
	node(func(n *simnode.Node) {
		n.AddSMBShare(simnode.SMBShare{Server: "filer", Name: "data"})
		n.SetSMBUser("filer", "app", csiproxy.NewSecret(password))
	})
	run("stage-share")
	node(func(n *simnode.Node) {
		if err := n.WriteFile(staging+`\data`, []byte("kept")); err != nil {
			t.Error(err)
		}
		if data, err := n.ReadFile(`\\filer\data\data`); string(data) != "kept" {
			t.Errorf("on the share is %q, %v", data, err)
		}
	})
	run("unstage-share")
	node(func(n *simnode.Node) {
		if _, err := n.ReadDir(staging); err == nil {
			t.Error("the staging directory is there after unstage")
		}
		if list, err := n.Operations().Storage.ListVolumes(t.Context()); err != nil || len(list.Mounts) != 0 {
			t.Errorf("after unstage there is %+v, %v", list, err)
		}
	})
}

// The simulated node in a driver's process is reached from outside, before the driver's first call.
func TestEndpointsOfTheDriver(t *testing.T) {
	endpoints, err := pipe.MkdirTemp("dropin") // that of the test may be too long for a socket
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(endpoints)) })
	cmd := exec.CommandContext(t.Context(), build(t, "-tags=simulated"), "wait")
	cmd.Env = append(cmd.Environ(), "CSI_PROXY_SIMULATED_ENDPOINTS="+endpoints)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "waiting\n" {
		t.Fatalf("%q, %v", line, err)
	}
	c := client.New(client.WithEndpointDir(endpoints))
	defer c.Close()
	if ids, err := c.Disk.ListDiskIDs(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("the node has the disks %v, %v", ids, err)
	}
	if _, err := os.Stat(filepath.Join(endpoints, "csi-proxy-sim-v1.sock")); err != nil {
		t.Errorf("its control: %v", err)
	}
	must(t, stdin.Close())
	must(t, cmd.Wait())
}

// Where there is no Windows and no simulated node, a call is an error that says so. Importing the
// packages and making clients isn't one.
func TestWithoutWindows(t *testing.T) {
	cmd := exec.Command(build(t), "stage")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "simulated") || strings.Contains(string(out), "panic") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The driver builds for Windows, too, by its go.mod alone, and with the names of the published library.
func TestBuildsForWindows(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command("go", "vet", "github.com/kubernetes-csi/csi-proxy/v2/...", "./testdata/driver", ".")
		cmd.Env = append(cmd.Environ(), "GOOS=windows", "GOARCH="+arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arch, err, out)
		}
	}
}
