// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

var jsonBlock = regexp.MustCompile("(?ms)^```json\n(.*?)^```$")

// The entries of docs/drivers.md are taken by the daemon, each gives its driver the disks that it is for, and
// none gives it another one's. The hardware is that of the table below the entries.
func TestDriversOfDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/drivers.md")
	must(t, err)
	blocks := jsonBlock.FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/drivers.md has %d blocks of JSON", len(blocks))
	}
	file := filepath.Join(t.TempDir(), "drivers.json")
	must(t, os.WriteFile(file, blocks[0][1], 0o600))
	o, err := parseFlags([]string{"-drivers=" + file}, io.Discard)
	must(t, err)
	must(t, o.check())

	sim := simtest.Open(t, winsim.Delays{})
	node, err := nodeops.New(sim, o.Options, o.ofDrivers...)
	must(t, err)
	want := make(map[string][]csiproxy.DiskNumber)
	for _, d := range []struct {
		driver, vendor, product string
		bus                     win.BusType
	}{
		{"ebs.csi.aws.com", "NVMe", "Amazon Elastic B", win.BusTypeNVMe},
		{"ebs.csi.aws.com", "NVMe", "Amazon Elastic Block Store", win.BusTypeNVMe},
		{"ebs.csi.aws.com", "AWS     ", "PVDISK          ", win.BusTypeSCSI},
		{"", "NVMe", "Amazon EC2 NVMe ", win.BusTypeNVMe}, // a local disk
		{"disk.csi.azure.com", "Msft    ", "Virtual Disk    ", win.BusTypeSAS},
		{"disk.csi.azure.com", "NVMe", "MSFT NVMe Accele", win.BusTypeNVMe},
		{"disk.csi.azure.com", "NVMe", "Virtual_Disk NVME Premium", win.BusTypeNVMe},
		{"", "NVMe", "Microsoft NVMe D", win.BusTypeNVMe}, // a local disk
		{"", "Msft    ", "Virtual Disk    ", win.BusTypeFileBackedVirtual},
		{"pd.csi.storage.gke.io", "Google  ", "PersistentDisk  ", win.BusTypeSCSI},
		{"pd.csi.storage.gke.io", "NVMe", "nvme_card-pd", win.BusTypeNVMe},
		{"", "NVMe", "nvme_card", win.BusTypeNVMe}, // a local disk
		{"csi.vsphere.vmware.com", "VMware  ", "Virtual disk    ", win.BusTypeSAS},
	} {
		n := simtest.Attach(t, sim, winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: d.product, BusType: d.bus})
		want[d.driver] = append(want[d.driver], n)
	}
	for _, d := range o.drivers.Drivers {
		ids, err := node.Driver(d.Name).Disk.ListDiskIDs(t.Context())
		must(t, err)
		delete(ids, 0) // that of Windows, which fits Azure's pattern and is never changed
		if got := slices.Sorted(maps.Keys(ids)); !slices.Equal(got, want[d.Name]) {
			t.Errorf("%s has the disks %v, want %v", d.Name, got, want[d.Name])
		}
		// The section of the driver says by which pipes it works: it needs their groups.
		_, section, found := strings.Cut(string(page), "\n[")
		for found && !strings.Contains(section[:min(len(section), 400)], "`"+d.Name+"`") {
			_, section, found = strings.Cut(section, "\n[")
		}
		pipes, _, _ := strings.Cut(section, "\n\n")
		for _, pipe := range regexp.MustCompile("`csi-proxy-([a-z]+)-v").FindAllStringSubmatch(pipes, -1) {
			if !slices.Contains(d.Groups, pipe[1]) {
				t.Errorf("%s has the groups %q, and works by the pipe %s", d.Name, d.Groups, pipe[0])
			}
		}
	}
}
