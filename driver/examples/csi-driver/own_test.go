// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/driver"
)

// Where CSI Proxy names the driver in its -drivers, the driver with -own-endpoints has its disks there, and without
// finds no CSI Proxy.
func TestOwnEndpoints(t *testing.T) {
	bin, dir := t.TempDir(), shortDir(t)
	build(t, filepath.Join("..", "..", ".."), bin, "./cmd/csi-proxy")
	drivers, endpoints := filepath.Join(dir, "drivers.json"), filepath.Join(dir, "run")
	if err := os.WriteFile(drivers, []byte(`{"drivers": [{"name": "`+driver.Name+`", "disks": [{"serialNumber": "example-*"}]}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(bin, "csi-proxy"), "-node=simulated", "-endpoint-dir="+endpoints, "-drivers="+drivers)
	opened := func(args ...string) *openedNode {
		t.Helper()
		o, err := parseFlags(append(args, "-endpoint-dir="+endpoints, "-state-dir="+dir))
		if err != nil {
			t.Fatal(err)
		}
		n, err := open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		return n
	}
	own := opened("-own-endpoints")
	var disks []csiproxy.Disk
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) { // until CSI Proxy is there
		err := own.hardware.Attach(t.Context(), "example-1", 1<<30, false)
		if err == nil {
			err = own.hardware.Attach(t.Context(), "other-1", 1<<30, false)
		}
		if err == nil {
			disks, err = own.storage.ListDisks(t.Context(), csiproxy.Selector{})
		}
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal(err)
		}
	}
	if len(disks) != 1 || disks[0].SerialNumber != "example-1" || disks[0].Driver != driver.Name {
		t.Errorf("the driver has the disks %+v", disks)
	}
	if disks, err := opened().storage.ListDisks(t.Context(), csiproxy.Selector{}); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("at the shared endpoints: %+v, %v", disks, err)
	}
	if _, err := parseFlags([]string{"-own-endpoints", "-via=in-process", "-state-dir=" + dir}); err == nil {
		t.Error("the library takes endpoints")
	}
}
