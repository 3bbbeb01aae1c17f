// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Where only drivers and administrators have endpoints, the program reaches the whole node, and with -driver what
// the driver sees.
func TestDriverFlag(t *testing.T) {
	const driver = "red.csi.example.com"
	sys := simtest.Open(t, winsim.Delays{})
	simtest.Attach(t, sys, winsim.DiskSpec{Serial: "red-1", VendorID: "REDINC"})
	simtest.Attach(t, sys, winsim.DiskSpec{Serial: "nobodys-1"})
	node, err := nodeops.New(sys, nodeops.Options{},
		nodeops.Driver{Driver: scope.Driver{Name: driver, Disks: []scope.DiskPattern{{Vendor: "REDINC"}}}})
	simtest.Must(t, err)
	dir := simtest.SocketDir(t)
	claim, err := pipe.Claim(dir)
	simtest.Must(t, err)
	t.Cleanup(func() { simtest.Must(t, claim.Close()) })
	for name, operations := range map[string]nodeops.Operations{admin.Driver: node.Operations, driver: node.Driver(driver)} {
		t.Cleanup(serveOf(t, claim, name, operations))
	}
	for args, all := range map[string]bool{"disk list": true, "--driver " + driver + " disk list": false} {
		var stdout, stderr strings.Builder
		if code := run(t.Context(), append([]string{"--endpoint-dir", dir}, strings.Fields(args)...), strings.NewReader(""), &stdout, &stderr); code != 0 {
			t.Errorf("%s: exit code %d: %s", args, code, &stderr)
		}
		if !strings.Contains(stdout.String(), "red-1") || strings.Contains(stdout.String(), "nobodys-1") != all {
			t.Errorf("%s: %s", args, &stdout)
		}
	}
	for args, want := range map[string]string{
		"--driver other.example.com disk list":   "the daemon runs: check that its file of drivers has other.example.com",
		"--driver " + driver + " doctor":         "--driver: leave it out",
		"--driver " + driver + " support-bundle": "--driver: leave it out",
		"--driver " + driver + " storage stage C:\\var\\lib\\kubelet\\plugins\\" + driver + "\\a --disk 9 --wait 1ms": "no disk has the number 9 after a wait of 1ms; driver " + driver +
			" has disk 1",
		"--driver " + driver + " disk stats 9": "driver " + driver + " has disk 1 (by its patterns in the file of drivers)",
	} {
		var stdout, stderr strings.Builder
		if code := run(t.Context(), append([]string{"--endpoint-dir", dir}, strings.Fields(args)...), strings.NewReader(""), &stdout, &stderr); code == 0 ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, &stdout, &stderr)
		}
	}
}

// serveOf serves operations at the endpoints of a driver until stop is called.
func serveOf(t *testing.T, claim *pipe.Claimed, driver string, operations nodeops.Operations) (stop func()) {
	d, err := daemon.New(daemon.Config{Driver: driver, Operations: rpc.Operations(operations),
		Listen: func(name string) (net.Listener, error) { return claim.Listen(t.Context(), name) }})
	simtest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	return func() { cancel(); simtest.Must(t, <-ended) }
}

// Whether a new daemon works is asked at its own endpoints, whatever the daemon before had.
func TestHealthyWithDrivers(t *testing.T) {
	node, err := nodeops.New(simtest.Open(t, winsim.Delays{}), nodeops.Options{})
	simtest.Must(t, err)
	dir := simtest.SocketDir(t)
	claim, err := pipe.Claim(dir)
	simtest.Must(t, err)
	t.Cleanup(func() { simtest.Must(t, claim.Close()) })
	p := &program{endpointDir: dir}
	daemons := []string{"", admin.Driver, ""} // none, with -drivers, without
	for i := range daemons {
		stop := func() {}
		if i > 0 {
			stop = serveOf(t, claim, daemons[i], node.Operations)
		}
		for _, driver := range []string{"", admin.Driver} {
			var endpoints []string
			for _, group := range api.Groups() {
				for _, version := range api.Versions(group) {
					endpoints = append(endpoints, api.DriverEndpointName(driver, group, version))
				}
			}
			if err := p.healthy(t.Context(), endpoints); (err == nil) != (i > 0 && driver == daemons[i]) {
				t.Errorf("daemon %d, %q, has the endpoints of %q: %v", i, daemons[i], driver, err)
			}
		}
		if err := p.healthy(t.Context(), nil); (err == nil) != (i > 0) {
			t.Errorf("daemon %d, %q: %v", i, daemons[i], err)
		}
		stop()
	}
}
