// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Two drivers stage at their own endpoints. Neither has the other one's disk; the administrators have both.
func TestDriversProcess(t *testing.T) {
	dir := simtest.SocketDir(t)
	p := startProcess(t, "main", "-endpoint-dir", dir, "-drivers", driversPath(t, `{"drivers": [
		{"name": "red.csi.example.com", "disks": [{"vendor": "REDINC"}]},
		{"name": "blue.csi.example.com", "disks": [{"vendor": "BLUEINC"}]}]}`))
	p.log.await("csi-proxy-blue.csi.example.com-volume-<version>") // the last ones
	sim := dialEndpoint(t, dir, simv1.EndpointName)
	clientOf := func(driver string) *client.Client {
		c := client.New(client.WithEndpointDir(dir), client.WithDriver(driver))
		t.Cleanup(func() { c.Close() })
		return c
	}
	vendors := map[string]string{"red.csi.example.com": "REDINC", "blue.csi.example.com": "BLUEINC"}
	for _, vendor := range vendors {
		_, err := simv1.Call[simv1.DiskNumber](t.Context(), sim, "AttachDisk",
			&simv1.DiskHardware{SizeBytes: 1 << 30, SerialNumber: vendor + "-1", Vendor: vendor})
		must(t, err)
	}
	for driver, vendor := range vendors {
		c := clientOf(driver)
		staging := `C:\var\lib\kubelet\plugins\kubernetes.io\csi\` + driver + `\1\globalmount`
		_, err := c.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{SerialNumber: vendor + "-1"}, StagingPath: staging})
		must(t, err)
		disks, err := c.Storage.ListDisks(t.Context(), csiproxy.Selector{})
		must(t, err)
		if len(disks) != 1 || disks[0].Vendor != vendor {
			t.Errorf("%s has the disks %+v", driver, disks)
		}
		for other, vendor := range vendors {
			if other == driver {
				continue
			}
			if _, err := c.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{Wait: -1,
				Disk: csiproxy.Selector{SerialNumber: vendor + "-1"}, StagingPath: staging + "-new"}); !errors.Is(err, csiproxy.ErrNotFound) {
				t.Errorf("%s stages the disk of %s: %v", driver, other, err)
			}
		}
		// The driver has no such group.
		if _, err := c.System.GetService(t.Context(), "MSiSCSI"); !errors.Is(err, csiproxy.ErrUnimplemented) && !errors.Is(err, csiproxy.ErrUnavailable) {
			t.Errorf("%s asks for a service: %v", driver, err)
		}
	}
	mounts, err := clientOf(admin.Driver).Storage.ListVolumes(t.Context())
	must(t, err)
	if len(mounts.Mounts) != 2 {
		t.Errorf("the administrators have %+v", mounts)
	}
	for driver := range vendors {
		own, err := clientOf(driver).Storage.ListVolumes(t.Context())
		must(t, err)
		for _, list := range []csiproxy.VolumeList{mounts, own} {
			if !slices.ContainsFunc(list.Mounts, func(m csiproxy.Mount) bool {
				return m.Volume.Driver == driver && strings.Contains(m.Path, driver)
			}) {
				t.Errorf("no volume of %s is in %+v", driver, list)
			}
		}
	}
	if err := pipe.Held(t.Context(), pipe.Address(dir, api.EndpointName("disk", "v1"))); err != nil {
		t.Errorf("a published endpoint is served: %v", err)
	}
}
