// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestDiskPattern(t *testing.T) {
	adapter := uint32(3)
	disk := func(vendor, product string) asked {
		return asked{adapter: 3, hasAdapter: true, target: "iqn.example:vol-1", Hardware: opendisk.Hardware{
			Descriptor: win.DeviceDescriptor{BusType: win.BusTypeSAS, VendorID: vendor, ProductID: product, SerialNumber: " vol-1 "}}}
	}
	usual := disk("Msft    ", "Virtual Disk    ")
	for _, test := range []struct {
		name    string
		pattern DiskPattern
		disk    asked
		fits    bool
	}{
		{"vendor and product", DiskPattern{Vendor: "msft", Product: " Virtual disk"}, usual, true},
		{"another product", DiskPattern{Vendor: "Msft", Product: "Virtual"}, usual, false},
		{"beginning", DiskPattern{Product: "Virtual*"}, usual, true},
		{"another beginning", DiskPattern{Product: "Physical*"}, usual, false},
		{"bus", DiskPattern{Bus: csiproxy.BusSAS}, usual, true},
		{"another bus", DiskPattern{Bus: csiproxy.BusNVMe, Vendor: "Msft"}, usual, false},
		{"serial number", DiskPattern{SerialNumber: "VOL-*"}, usual, true},
		{"another serial number", DiskPattern{SerialNumber: "vol"}, usual, false},
		{"adapter", DiskPattern{Adapter: &adapter}, usual, true},
		{"no adapter", DiskPattern{Adapter: &adapter}, asked{}, false},
		{"target", DiskPattern{Target: "iqn.example:*"}, usual, true},
		{"no target", DiskPattern{Target: "iqn.example:*"}, asked{}, false},
		{"a product that was cut", DiskPattern{Product: "Amazon Elastic Block Store"}, disk("NVMe", "Amazon Elastic B"), true},
		{"a product that wasn't", DiskPattern{Product: "Amazon Elastic Block Store"}, disk("NVMe", "Amazon Elastic Block Store"), true},
		{"another product of 16 characters", DiskPattern{Product: "Amazon Elastic Block Store"}, disk("NVMe", "Amazon Elastic C"), false},
		{"a product cut at a blank", DiskPattern{Product: "Amazon EC2 NVMe Instance Storage"}, disk("NVMe", "Amazon EC2 NVMe "), true},
		{"a shorter product", DiskPattern{Product: "Amazon Elastic Block Store"}, disk("NVMe", "Amazon"), false},
	} {
		if got := test.disk.fits(test.pattern); got != test.fits {
			t.Errorf("%s: %v, want %v", test.name, got, test.fits)
		}
	}
}

func TestServers(t *testing.T) {
	d := Driver{Servers: []string{"Files.example.com", ".file.core.windows.net"}}
	for path, own := range map[string]bool{
		`\\files.EXAMPLE.com\share\directory`:     true,
		`//files.example.com/share`:               true,
		`\\account.file.core.windows.net\share`:   true,
		`\\file.core.windows.net\share`:           false,
		`\\account.file.core.windows.net.evil\s`:  false,
		`\\files\share`:                           false,
		`\\evilfiles.example.com\share`:           false,
		`\\files.example.com.\share`:              false,
		`\\localhost\C$`:                          false,
		`C:\files.example.com\share`:              false,
		`\\?\UNC\files.example.com\share\passage`: false,
	} {
		if got := d.HasShare(path); got != own {
			t.Errorf("%s: %v, want %v", path, got, own)
		}
	}
}

func TestPortals(t *testing.T) {
	d := Driver{Portals: []csiproxy.ISCSIPortal{{Address: "[FE80:0::1]"}, {Address: "Storage.example.com", Port: 3261}}}
	for p, own := range map[win.ISCSIPortal]bool{
		{Address: "fe80::1", Port: 3260}:             true,
		{Address: "fe80::1", Port: 3261}:             false,
		{Address: "fe80::2", Port: 3260}:             false,
		{Address: "storage.EXAMPLE.com", Port: 3261}: true,
		{Address: "storage.example.com", Port: 3260}: false,
	} {
		if got := d.hasPortal(p); got != own {
			t.Errorf("%v: %v, want %v", p, got, own)
		}
	}
}

// A portal belongs to a driver by its text. Any other portal is known to be nobody's if it is an IP address that no driver has in
// another zone.
func TestOwnerOfPortal(t *testing.T) {
	drivers := []Driver{{Name: "own", Portals: []csiproxy.ISCSIPortal{{Address: "10.0.0.1"}, {Address: "FD00::1"}, {Address: "fe80::1%12"}, {Address: "storage.example.com"}}},
		{Name: "other", Portals: []csiproxy.ISCSIPortal{{Address: "10.0.0.2"}}}}
	table, err := New(nil, drivers, slog.New(slog.DiscardHandler))
	simtest.Must(t, err)
	for address, want := range map[string]string{
		"10.0.0.1": "own true", "10.0.0.2": "other true", "10.0.0.3": " true", "fd00::1": "own true", "fd00::1%5": " false", "fe80::1": " false",
		"fe80::1%12": "own true", "fe80::1%13": " false", "fe80::2%12": " true", "Storage.example.com": "own true", "host.example.com": " false", "": " false",
	} {
		name, isKnown := table.OwnerOfPortal(win.ISCSIPortal{Address: address, Port: 3260})
		simtest.Want(t, address, fmt.Sprint(name, " ", isKnown), want)
	}
	name, isKnown := table.OwnerOfPortal(win.ISCSIPortal{Address: "10.0.0.1", Port: 860})
	simtest.Want(t, "another port", fmt.Sprint(name, " ", isKnown), " true")
}

// Disks that fit several drivers, ever new ones, take one line of the log and no memory.
func TestDisksOfSeveralDriversAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	table, err := New(nil, []Driver{{Name: "a", Disks: []DiskPattern{{Product: "Disk*"}}}, {Name: "b", Disks: []DiskPattern{{Vendor: "V"}}}},
		slog.New(slog.NewTextHandler(&log, nil)))
	simtest.Must(t, err)
	for i := range 100 {
		owner, err := table.ownerOf(asked{Hardware: opendisk.Hardware{
			Descriptor: win.DeviceDescriptor{VendorID: "V", ProductID: "Disk 1", SerialNumber: fmt.Sprint(i)}}})
		if owner != "" || err != nil {
			t.Errorf("the disk belongs to %q (%v)", owner, err)
		}
	}
	known := 0
	table.several.Range(func(any, any) bool { known++; return true })
	simtest.Want(t, "remembered", known, 1)
	simtest.Want(t, "lines", strings.Count(log.String(), "several drivers"), 1)
}
