// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Each problem of drivers is found, at its place, and beside the others.
func TestCheck(t *testing.T) {
	red := func(d Driver) Driver { d.Name = "red"; return d }
	disks := func(name string, patterns ...DiskPattern) Driver { return Driver{Name: name, Disks: patterns} }
	servers := func(name string, servers ...string) Driver { return Driver{Name: name, Servers: servers} }
	at := func(address string) csiproxy.ISCSIPortal { return csiproxy.ISCSIPortal{Address: address} }
	nvme, amazon := DiskPattern{Bus: "nvme"}, DiskPattern{Bus: csiproxy.BusNVMe, Product: "Amazon*"}
	for _, test := range []struct {
		name    string
		drivers []Driver
		want    []string // INDEX FIELD INDEX [warning] TEXT
	}{
		{"nothing wrong", []Driver{red(Driver{Disks: []DiskPattern{nvme}, Servers: []string{"store", ".red.example.com"},
			Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}, Services: []string{"one"}}), servers("blue", "files.example.com", "red.example.com")}, nil},
		{"all at once", []Driver{red(Driver{Disks: []DiskPattern{{}, {Bus: "nvm"}, nvme}, Servers: []string{"*.example.com", ""},
			Portals: []csiproxy.ISCSIPortal{at("hello world"), at("::%]")}, Services: []string{`a\b`}}), servers("blue", ".")}, []string{
			`0 disks 0 the pattern is empty, and would match all disks`,
			`0 disks 1 unknown bus nvm; did you mean NVMe?; the buses are 1394,`,
			`0 smbServers 0 *.example.com can't be a server`,
			`0 smbServers 1 the name of a server is empty`,
			`0 iscsiPortals 0 the address is neither an IP address nor the name of a host: it has the character ' '`,
			`0 iscsiPortals 1 the zone of the IPv6 address is no name: it has the character ']'`,
			`0 services 0 the name has a slash`,
			`1 smbServers 0 the name of a server is empty`}},
		{"patterns that match all", []Driver{disks("red", DiskPattern{Vendor: "*"}, DiskPattern{Product: " "}, DiskPattern{Target: "**"})},
			[]string{`0 disks 0 the pattern is empty`, `0 disks 1 the pattern is empty`, `0 disks 2 the pattern is empty`}},
		{"patterns that match none", []Driver{disks("red", DiskPattern{SerialNumber: "v*1"}, DiskPattern{Bus: csiproxy.BusNVMe, Target: "iqn*"})},
			[]string{`0 disks 0 v*1: a * may only be the last character`, `0 disks 1 the pattern matches no disk: only a disk on the bus iSCSI has a target`}},
		{"a host name", []Driver{red(Driver{Portals: []csiproxy.ISCSIPortal{at("Storage.example.com")}})},
			[]string{`0 iscsiPortals 0 warning Windows lists the sessions of a disk by IP address, so no disk belongs to the driver by the host name Storage.example.com`}},
		{"a name twice", []Driver{servers("red", "a"), servers("RED", "b")}, []string{`1 name 0 duplicate driver name: driver "red" has it (0 name 0)`}},
		{"a server twice", []Driver{servers("red", "Files"), servers("blue", "files")},
			[]string{`1 smbServers 0 duplicate server files: driver "red" has it (0 smbServers 0)`}},
		{"a server twice in one driver", []Driver{servers("red", "files", "b", "FILES")},
			[]string{`0 smbServers 2 duplicate server FILES: the driver itself has it (0 smbServers 0)`}},
		{"a portal twice", []Driver{red(Driver{Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}}),
			{Name: "blue", Portals: []csiproxy.ISCSIPortal{{Address: "::ffff:10.0.0.1", Port: 3260}}}},
			[]string{`1 iscsiPortals 0 duplicate portal 10.0.0.1:3260: driver "red" has it (0 iscsiPortals 0)`}},
		{"a portal in a zone", []Driver{red(Driver{Portals: []csiproxy.ISCSIPortal{at("fd00::1")}}),
			{Name: "blue", Portals: []csiproxy.ISCSIPortal{at("FD00:0::1%5"), at("fd00::2%5")}}},
			[]string{`1 iscsiPortals 0 duplicate portal [fd00::1%5]:3260: driver "red" has it (0 iscsiPortals 0)`}},
		{"a portal by NAT64", []Driver{red(Driver{Portals: []csiproxy.ISCSIPortal{at("10.0.0.1"), at("64:ff9b:1::a00:1")}}),
			{Name: "blue", Portals: []csiproxy.ISCSIPortal{at("64:ff9b::10.0.0.1")}}},
			[]string{`1 iscsiPortals 0 duplicate portal [64:ff9b::a00:1]:3260: driver "red" has it (0 iscsiPortals 0)`}},
		{"a server by NAT64", []Driver{servers("red", "10.0.0.1"), servers("blue", "64-FF9B--a00-1.ipv6-literal.net")},
			[]string{`1 smbServers 0 duplicate server 64-FF9B--a00-1.ipv6-literal.net: driver "red" has it (0 smbServers 0)`}},
		{"a short name", []Driver{servers("red", "files.example.com"), servers("blue", "Files", "file", "files2.example.com")},
			[]string{`0 smbServers 0 warning files.example.com and Files of driver "blue" may be one server; write both names in full (1 smbServers 0)`}},
		{"services of the node", []Driver{red(Driver{Services: []string{"kubelet", "CSI-Proxy", "kubelet2"}})}, []string{
			`0 services 0 the service kubelet can't belong to a driver: all drivers depend on it`,
			`0 services 1 the service CSI-Proxy can't belong to a driver`}},
		{"a service twice", []Driver{red(Driver{Services: []string{"one"}}), {Name: "blue", Services: []string{"ONE"}}},
			[]string{`1 services 0 duplicate service ONE: driver "red" has it (0 services 0)`}},
		{"an end of names", []Driver{servers("red", ".example.com"), servers("blue", "x.Example.com", ".a.example.com", "xexample.com")},
			[]string{`0 smbServers 0 .example.com includes the server x.Example.com of driver "blue" (1 smbServers 0)`,
				`0 smbServers 0 .example.com includes the server .a.example.com of driver "blue" (1 smbServers 1)`}},
		{"a pattern that swallows another, first", []Driver{disks("red", nvme), disks("blue", amazon)},
			[]string{`0 disks 0 all disks that match the pattern {"bus": "NVMe", "product": "Amazon*"} of driver "blue" match this one too, ` +
				`and would belong to neither driver; make this pattern narrower (1 disks 0)`}},
		{"a pattern that swallows another, second", []Driver{disks("red", DiskPattern{Vendor: "X"}, amazon), disks("blue", nvme)},
			[]string{`1 disks 0 warning a disk can match this pattern and the pattern {"vendor": "X"} of driver "red"`,
				`1 disks 0 all disks that match the pattern {"bus": "NVMe", "product": "Amazon*"} of driver "red" match this one too`}},
		{"the same pattern", []Driver{disks("red", amazon), disks("blue", amazon)}, []string{`1 disks 0 all disks that match the pattern`}},
		{"patterns of one driver", []Driver{disks("red", amazon, nvme, amazon)}, nil},
		{"patterns that a disk can both match", []Driver{disks("red", DiskPattern{Vendor: "X"}), disks("blue", DiskPattern{Product: "Y"})},
			[]string{`1 disks 0 warning a disk can match this pattern and the pattern {"vendor": "X"} of driver "red"; such a disk would belong to neither driver (0 disks 0)`}},
		{"patterns that exclude each other", []Driver{disks("red", amazon, DiskPattern{Vendor: "Msft", Product: "Virtual Disk"}),
			disks("blue", DiskPattern{Product: "Google*"}, DiskPattern{Bus: csiproxy.BusSAS, Product: "Amazon*"})}, nil},
		{"a faulty pattern swallows nothing", []Driver{disks("red", DiskPattern{}), disks("blue", amazon)}, []string{`0 disks 0 the pattern is empty`}},
		{"all iSCSI disks beside portals", []Driver{disks("red", DiskPattern{Bus: csiproxy.BusISCSI}),
			{Name: "blue", Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}}},
			[]string{`0 disks 0 all disks of the portals of driver "blue" match this pattern, and would belong to neither driver; make this pattern narrower (1 iscsiPortals 0)`}},
		{"iSCSI disks beside portals", []Driver{disks("red", DiskPattern{Bus: csiproxy.BusISCSI, Vendor: "X"}, DiskPattern{Vendor: "X"}, amazon),
			{Name: "blue", Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}}},
			[]string{`0 disks 0 warning a disk of the portals of driver "blue" can match this pattern; such a disk would belong to neither ` +
				`driver, or to this one if its target redirects logins to an address in nobody's iscsiPortals; give the driver iscsiPortals ` +
				`instead of this pattern (1 iscsiPortals 0)`}},
		{"iSCSI disks by their target beside portals", []Driver{disks("red", DiskPattern{Target: "iqn.*"}),
			{Name: "blue", Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}}},
			[]string{`0 disks 0 warning a disk of the portals of driver "blue" can match this pattern`}},
		{"portals before a pattern", []Driver{{Name: "blue", Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}},
			disks("red", DiskPattern{Bus: csiproxy.BusISCSI, Vendor: "X"})},
			[]string{`1 disks 0 warning a disk of the portals of driver "blue" can match this pattern`}},
		{"own portals", []Driver{{Name: "red", Disks: []DiskPattern{{Bus: csiproxy.BusISCSI}}, Portals: []csiproxy.ISCSIPortal{at("10.0.0.1")}}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems, isRefused := Check(test.drivers), false
			for i, p := range problems {
				got := fmt.Sprintf("%d %s %d ", p.Driver, p.Field, p.Index)
				if p.IsWarning {
					got += "warning "
				}
				isRefused = isRefused || !p.IsWarning
				got += p.Text
				if p.Other != nil {
					got += fmt.Sprintf(" (%d %s %d)", p.Other.Driver, p.Other.Field, p.Other.Index)
				}
				if i >= len(test.want) || !strings.HasPrefix(got, test.want[i]) {
					t.Errorf("problem %d: %s", i, got)
				}
			}
			if len(problems) != len(test.want) {
				t.Errorf("%d problems, want %d: %q", len(problems), len(test.want), test.want)
			}
			if _, err := New(nil, test.drivers, slog.New(slog.DiscardHandler)); (err != nil) != isRefused {
				t.Errorf("the table: %v", err)
			}
		})
	}
}

// The services of Windows that all drivers depend on belong to none. A part of their names is no such service.
func TestServicesOfNode(t *testing.T) {
	for _, service := range []string{"mrxsmb20", "RDBSS", "hns", "vds", "smphost", "Dnscache", "mountmgr", "volmgr", "kube-proxy", "netlogon",
		"npfs", "bindflt", "wcifs", "cimfs", "vhdmp", "HTTP", "srv2", "srvnet", "WinNAT", "csiproxy", "rke2", "k3s", "rancher-wins"} {
		if checkService(service) == nil {
			t.Errorf("%s may belong to a driver", service)
		}
	}
	for _, service := range []string{"mrx", "vds2", "ec2launch", "hns vmcompute"} {
		if err := checkService(service); err != nil {
			t.Errorf("%s: %v", service, err)
		}
	}
}

func TestProblemsAreBounded(t *testing.T) {
	drivers := make([]Driver, 2)
	for i := range drivers {
		drivers[i].Name = fmt.Sprint("driver", i)
		for range 50 {
			drivers[i].Disks = append(drivers[i].Disks, DiskPattern{Bus: csiproxy.BusNVMe})
		}
	}
	if got := len(Check(drivers)); got != maxProblems {
		t.Errorf("%d problems, want %d", got, maxProblems)
	}
}

// A server has one name: an IP address in its shortest form, or a name that nobody reads as an IP address.
func TestServersHaveOneName(t *testing.T) {
	for server, want := range map[string]string{
		"192.0.2.1": "", "files.example.com": "", "1.example.com": "", ".1.example.com": "", "host1": "", "0xhost": "", "files.0xg": "",
		"2001-db8--1.ipv6-literal.net": "", "FE80--1.IPv6-literal.net": "", "x.ipv6-literal.net.example.com": "",
		"192.0.2.01": "ends with a number", "3221225985": "ends with a number", "0xC0000201": "ends with a number", "192.0.2": "ends with a number",
		"192.0.0x2.0X1": "ends with a number", "030000001001": "ends with a number", "192.0.2.256": "ends with a number", ".2.1": "ends with a number",
		"192.0.2.09": "ends with a number", "host.99999999999999999999999": "ends with a number",
		"2001-db8-0-0-0-0-0-1.ipv6-literal.net": "shortest form", "2001-0db8--1.ipv6-literal.net": "shortest form", "fe80--1s5.ipv6-literal.net": "shortest form",
		"--ffff-192.0.2.1.ipv6-literal.net": "shortest form", "--ffff-c000-201.ipv6-literal.net": "shortest form", ".ipv6-literal.net": "shortest form",
		"1.ipv6-literal.net": "shortest form", "192.0.2.1.ipv6-literal.net": "shortest form",
	} {
		err := validateServer(server)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", server, err, want)
		}
	}
}

// Whether patterns overlap is what trying them on disks tells.
func TestPatternsOverlap(t *testing.T) {
	zero, one := uint32(0), uint32(1)
	var disks []asked
	for _, vendor := range []string{"", "a", "ab", "abz", "abcdefgh", "abcdefghi", "abcdefghiz", "abcdefghz", "z"} {
		for _, serialNumber := range []string{"", "sab", "saz", "sz"} {
			for _, disk := range []asked{{}, {target: "iqn.1"}, {target: "iqn.1z"}, {target: "iqn.z"}} {
				for _, bus := range []win.BusType{win.BusTypeISCSI, win.BusTypeNVMe} {
					for adapter := range uint32(2) {
						if disk.target != "" && bus != win.BusTypeISCSI {
							continue
						}
						disk.Hardware = opendisk.Hardware{Descriptor: win.DeviceDescriptor{BusType: bus, VendorID: vendor, SerialNumber: serialNumber}}
						disk.adapter, disk.hasAdapter = adapter, true
						disks = append(disks, disk)
					}
				}
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	pattern := func() DiskPattern {
		return DiskPattern{
			Bus:          csiproxy.Bus(pick("", "", "", "iSCSI", "NVMe")),
			Vendor:       pick("", "", "", "*", "a*", "A", "ab", "ab*", "abcdefgh", "abcdefghi", "abcdefgh*", "abcdefghi*"),
			SerialNumber: pick("", "", "", "s*", "sab", "sa*", "*"),
			Target:       pick("", "", "", "*", "iqn.1", "iqn.*", "IQN.1*"),
			Adapter:      []*uint32{nil, nil, nil, &zero, &one}[random.IntN(5)],
		}
	}
	count := map[string]int{}
	for range 2000 {
		p, q := pattern(), pattern()
		if p.validate() != nil || q.validate() != nil {
			continue
		}
		overlap, within := false, true
		for _, disk := range disks {
			overlap = overlap || disk.fits(p) && disk.fits(q)
			within = within && (!disk.fits(p) || disk.fits(q))
		}
		if got := p.overlaps(q); got != overlap {
			t.Errorf("%v overlaps %v: %v, want %v", p, q, got, overlap)
		}
		if got := p.isWithin(q); got != within {
			t.Errorf("%v is within %v: %v, want %v", p, q, got, within)
		}
		count[fmt.Sprint(overlap, within)]++
	}
	if len(count) != 3 || count["true true"] < 50 {
		t.Errorf("overlap and within: %v", count)
	}
}

// While an iSCSI disk's session has no connection, a pattern doesn't say whose the disk is if another driver has portals: the target
// there may copy the texts of another driver's disks.
func TestOwnerWithoutConnection(t *testing.T) {
	portals := []csiproxy.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}}
	bus, target := []DiskPattern{{Bus: csiproxy.BusISCSI, Vendor: "X"}}, []DiskPattern{{Target: "iqn.*"}}
	for name, test := range map[string]struct {
		drivers []Driver
		portals []win.ISCSIPortal
		want    string
		kind    error
	}{
		"beside portals":           {[]Driver{{Name: "red", Disks: bus}, {Name: "blue", Portals: portals}}, nil, "", csiproxy.ErrUnavailable},
		"its target's name":        {[]Driver{{Name: "blue", Portals: portals}, {Name: "red", Disks: target}}, nil, "", csiproxy.ErrUnavailable},
		"beside no portals":        {[]Driver{{Name: "red", Disks: target}, {Name: "blue"}}, nil, "red", nil},
		"beside its own portals":   {[]Driver{{Name: "red", Disks: bus, Portals: portals}}, nil, "red", nil},
		"connected there":          {[]Driver{{Name: "red", Disks: bus}, {Name: "blue", Portals: portals}}, []win.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}}, "", nil},
		"connected somewhere else": {[]Driver{{Name: "red", Disks: bus}, {Name: "blue", Portals: portals}}, []win.ISCSIPortal{{Address: "10.0.0.2", Port: 3260}}, "red", nil},
	} {
		disk := asked{isBesideTargets: true, target: "iqn.example:1", portals: test.portals}
		disk.Descriptor.BusType, disk.Descriptor.VendorID = win.BusTypeISCSI, "X"
		owner, err := (&Table{drivers: test.drivers, log: slog.New(slog.DiscardHandler)}).ownerOf(disk)
		if owner != test.want || csiproxy.KindOf(err) != test.kind {
			t.Errorf("%s: owner %q, %v, want %q, %v", name, owner, err, test.want, test.kind)
		}
	}
}

// The file of drivers is refused if two drivers have one portal by two names, or if a driver may stop what all depend on.
func TestAliases(t *testing.T) {
	portal := func(address string) []csiproxy.ISCSIPortal {
		return []csiproxy.ISCSIPortal{{Address: address, Port: 3260}}
	}
	for name, drivers := range map[string][]Driver{
		"IPv4 mapped":        {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("::ffff:10.0.0.1")}},
		"IPv4-compatible":    {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("::10.0.0.1")}},
		"6to4":               {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("2002:a00:1::a00:1")}},
		"ISATAP":             {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("fe80::5efe:10.0.0.1")}},
		"ISATAP, global":     {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("2001:db8::200:5efe:10.0.0.1")}},
		"6to4 server":        {{Name: "a", Servers: []string{"10.0.0.1"}}, {Name: "b", Servers: []string{"2002-a00-1--1.ipv6-literal.net"}}},
		"bus":                {{Name: "a", Disks: []DiskPattern{{Bus: "SAS"}}}, {Name: "b", Disks: []DiskPattern{{Bus: "\u017FAS"}}}},
		"short IPv4":         {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("10.1")}},
		"number":             {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("167772161")}},
		"hexadecimal":        {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("0x0a000001")}},
		"leading zeros":      {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Portals: portal("010.0.0.1")}},
		"dot at the end":     {{Name: "a", Portals: portal("san.example.com")}, {Name: "b", Portals: portal("san.example.com.")}},
		"case":               {{Name: "a", Portals: portal("san.example.com")}, {Name: "b", Portals: portal("SAN.example.com")}},
		"services MSiSCSI":   {{Name: "a", Portals: portal("10.0.0.1")}, {Name: "b", Services: []string{"MSiSCSI"}}},
		"LanmanWorkstation":  {{Name: "a", Servers: []string{"x"}}, {Name: "b", Services: []string{"LanmanWorkstation"}}},
		"containerd":         {{Name: "b", Services: []string{"containerd"}}},
		"RpcSs":              {{Name: "b", Services: []string{"RpcSs"}}},
		"Winmgmt":            {{Name: "b", Services: []string{"Winmgmt"}}},
		"kubelet with blank": {{Name: "b", Services: []string{"kubelet "}}},
	} {
		isFault := func(p Problem) bool { return !p.IsWarning }
		if !slices.ContainsFunc(Check(drivers), isFault) {
			t.Errorf("%s is accepted", name)
		}
	}
}
