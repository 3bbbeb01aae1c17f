// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// driversPath returns a file for -drivers.
func driversPath(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drivers.json")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// twoDrivers is a file with all fields.
const twoDrivers = `{
  "drivers": [
    {
      "name": "red.csi.example.com",
      "disks": [{"bus": "SCSI", "vendor": "RED*", "product": "Disk", "adapter": 0}, {"serialNumber": "vol*"},
        {"iscsiTarget": "iqn.2026-01.com.example:*"}],
      "directories": ["C:\\var\\lib\\kubelet\\red"],
      "smbServers": ["files.example.com", ".red.example.com"],
      "iscsiPortals": ["10.11.0.1", "10.11.0.2:3261", "[fd00::1]:3260", "fd00::2"],
      "services": ["red-service"],
      "maxCalls": 2
    },
    {"name": "blue.csi.example.com", "groups": ["disk", "system"], "disks": [{"vendor": "BLUEINC"}]}
  ]
}`

func TestDriversFile(t *testing.T) {
	keepKlog(t)
	for _, beginning := range []string{"", "\xef\xbb\xbf"} { // which PowerShell writes
		o, err := parseFlags([]string{"-node=simulated", "-max-calls=7", "-drivers=" + driversPath(t, beginning+twoDrivers)}, io.Discard)
		must(t, err)
		must(t, o.check())
		zero := uint32(0)
		want := []nodeops.Driver{
			{Driver: scope.Driver{Name: "red.csi.example.com",
				Disks: []scope.DiskPattern{{Bus: csiproxy.BusSCSI, Vendor: "RED*", Product: "Disk", Adapter: &zero},
					{SerialNumber: "vol*"}, {Target: "iqn.2026-01.com.example:*"}},
				Servers: []string{"files.example.com", ".red.example.com"},
				Portals: []csiproxy.ISCSIPortal{{Address: "10.11.0.1", Port: 3260}, {Address: "10.11.0.2", Port: 3261},
					{Address: "fd00::1", Port: 3260}, {Address: "fd00::2", Port: 3260}},
				Services: []string{"red-service"}},
				Dirs: []string{`C:\var\lib\kubelet\red`}},
			{Driver: scope.Driver{Name: "blue.csi.example.com", Disks: []scope.DiskPattern{{Vendor: "BLUEINC"}}}},
		}
		if diff := cmp.Diff(want, o.ofDrivers); diff != "" {
			t.Errorf("drivers (-want +got):\n%s", diff)
		}
		var groups [][]string
		var maxCalls []int
		for _, d := range o.drivers.Drivers {
			groups, maxCalls = append(groups, d.Groups), append(maxCalls, d.MaxCalls)
			if d.PipeSecurity != pipe.DefaultSecurityDescriptor() {
				t.Errorf("the pipes of %s are guarded by %q", d.Name, d.PipeSecurity)
			}
		}
		if diff := cmp.Diff([][]string{{"disk", "volume", "filesystem", "storage", "smb", "iscsi"}, {"disk", "system"}}, groups); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		if !slices.Equal(maxCalls, []int{2, 7}) {
			t.Errorf("calls at most: %v", maxCalls)
		}
	}
}

// What is wrong with the file is said, with the driver and what is possible.
func TestDriversFileFaults(t *testing.T) {
	keepKlog(t)
	named := func(rest string) string { return `{"drivers": [{"name": "a.example.com"` + rest + `}]}` }
	two := func(a, b string) string {
		return `{"drivers": [{"name": "a.example.com", ` + a + `}, {"name": "b.example.com", ` + b + `}]}`
	}
	for text, want := range map[string]string{
		``:                       "it is empty",
		`[]`:                     "line 1: the file must be an object, not a JSON array",
		"{\n\"drivers\": {}}":    "line 2: drivers must be a list, not a JSON object",
		"drivers:\n- name: a":    "line 1: it isn't JSON: invalid character 'd'",
		"{\n\"drivers\": [],\n}": "line 3: it isn't JSON: invalid character '}'",
		`{"drivers": [`:          "it isn't JSON: it ends too soon",
		`{}`:                     "it names no driver",
		`{"drivers": [{"name": "a", "disks": [{"vendor": "X"}]}], "Drivers": [{"name": "b"}]}`: `an object has the key "Drivers" twice`,
		`{"drivers": [{"name": "a", "disks": [{"vendor": "X", "vendor": "Y"}]}]}`:              `an object has the key "vendor" twice`,
		`{"drivers": [{"name": "Administrators"}]}`:                                            `driver "Administrators": the name is taken`,
		named(`, "directories": ["C:\\var\\lib\\kubelet\\pods"]`):                              "the directories of the pods are no driver's",
		named(`, "directories": ["C:\\var\\lib\\kubelet\\Pods\\x"]`):                           "the directories of the pods are no driver's",
		`{"drivers": []}`:                                                         "it names no driver",
		named(`, "disk": []`):                                                     `unknown field "disk"`,
		named(`, "disks": [{"bus": 17}]`):                                         "line 1: drivers.disks.bus must be a text, not a JSON number",
		named(``) + `{}`:                                                          "there is more than one JSON object in it",
		named(``) + `]`:                                                           "there is more than one JSON object in it",
		`{"drivers": [{"disks": []}]}`:                                            `driver "": the name must be that of the CSIDriver`,
		`{"drivers": [{"name": "a\\b"}]}`:                                         `driver "a\\b": the name must be that of the CSIDriver`,
		`{"drivers": [{"name": "a/b"}]}`:                                          `driver "a/b": the name must be that of the CSIDriver`,
		`{"drivers": [{"name": ".."}]}`:                                           "..",
		`{"drivers": [{"name": "administrators"}]}`:                               `driver "administrators": the name is taken`,
		`{"drivers": [{"name": "` + strings.Repeat("a", 250) + `"}]}`:             "the name is too long for the name of a pipe",
		named(`, "groups": ["disks"]`):                                            `driver "a.example.com": there is no group "disks"; did you mean disk?`,
		named(`, "groups": []`):                                                   `driver "a.example.com": groups is empty`,
		named(`, "disks": [{"bus": "nvm"}]`):                                      `driver a.example.com: there is no bus nvm; there are 1394, ATA,`,
		named(`, "disks": [{"serialNumber": "v*1"}]`):                             "v*1: a * may only be the last character",
		named(`, "disks": [{"iscsiTarget": "**"}]`):                               "a pattern for disks is empty",
		named(`, "disks": [{"adapter": -1}]`):                                     "drivers.disks.adapter must be a whole number, 0 or more, not a JSON number -1",
		named(`, "smbServers": ["*.example.com"]`):                                "driver a.example.com: *.example.com can't be a server",
		named(`, "smbServers": ["\\\\files\\data"]`):                              `can't be a server: name one, as files.example.com, or the end of`,
		named(`, "smbServers": ["..example.com"]`):                                "..example.com can't be a server",
		named(`, "groups": ["sim"]`):                                              `there is no group "sim"`,
		named(`, "maxCalls": -1`):                                                 "maxCalls is negative",
		named(`, "disks": [{}]`):                                                  "a pattern for disks is empty, and would fit all of them",
		named(`, "disks": [{"vendor": "*"}]`):                                     "a pattern for disks is empty, and would fit all of them",
		named(`, "disks": [{"product": " "}]`):                                    "a pattern for disks is empty, and would fit all of them",
		named(`, "smbServers": [""]`):                                             "the name of a server is empty",
		named(`, "smbServers": ["."]`):                                            "the name of a server is empty",
		named(`, "iscsiPortals": [""]`):                                           "the address of a portal is empty",
		named(`, "iscsiPortals": [":3260"]`):                                      "the address of a portal is empty",
		named(`, "iscsiPortals": ["10.0.0.1:x"]`):                                 `portal "10.0.0.1:x": the port is no number from 1 to 65535`,
		named(`, "iscsiPortals": ["10.0.0.1:65536"]`):                             `portal "10.0.0.1:65536": the port is no number from 1 to 65535`,
		named(`, "directories": ["D:\\data"]`):                                    `driver a.example.com: allow directory D:\data`,
		named(`, "directories": ["C:\\var\\lib\\kubelet\\..\\.."]`):               `kubelet\..\..`,
		named(`, "directories": ["C:\\var\\lib\\kubelet-other\\data"]`):           "the path is not inside of",
		two(`"smbServers": ["files"]`, `"smbServers": ["FILES"]`):                 "driver a.example.com: its servers include FILES of driver b.example.com",
		two(`"smbServers": [".example.com"]`, `"smbServers": ["x.Example.com"]`):  "driver a.example.com: its servers include x.Example.com of driver b.example.com",
		two(`"smbServers": ["x.Example.com"]`, `"smbServers": [".example.com"]`):  "driver b.example.com: its servers include x.Example.com of driver a.example.com",
		two(`"smbServers": [".a.example.com"]`, `"smbServers": [".example.com"]`): "driver b.example.com: its servers include .a.example.com of driver a.example.com",
		two(`"iscsiPortals": ["10.0.0.1"]`, `"iscsiPortals": ["10.0.0.1:3260"]`):  "is driver a.example.com's already",
		two(`"services": ["one"]`, `"services": ["ONE"]`):                         "the service one is driver a.example.com's already",
		`{"drivers": [{"name": "a.example.com"}, {"name": "A.example.com"}]}`:     "the name a.example.com is driver a.example.com's already",
		strings.Repeat(" ", maxDriversFile) + `{}`:                                "it is longer than",
	} {
		o, err := parseFlags([]string{"-node=simulated", "-drivers=" + driversPath(t, text)}, io.Discard)
		must(t, err)
		err = o.check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v, want %s", text, err, want)
		} else if !strings.HasPrefix(err.Error(), "-drivers=") {
			t.Errorf("%.200s: the file isn't named: %v", text, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	o, err := parseFlags([]string{"-node=simulated", "-drivers=" + missing}, io.Discard)
	must(t, err)
	if err := o.check(); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("without the file: %v", err)
	}
}

// -check reports the endpoints that are served with the file: the published ones are off, unless it has them.
func TestCheckOfDrivers(t *testing.T) {
	keepKlog(t)
	for sharedEndpoints, ofNode := range map[string]string{"": admin.Driver, `"sharedEndpoints": false,`: admin.Driver, `"sharedEndpoints": true,`: ""} {
		var stdout, stderr strings.Builder
		file := driversPath(t, strings.Replace(twoDrivers, "{", "{"+sharedEndpoints, 1))
		if code := run(t.Context(), []string{"-check", "-node=simulated", "-endpoint-dir=" + endpointDir(t), "-drivers=" + file}, &stdout, &stderr,
			nil); code != exitOK {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		var report winservice.Report
		must(t, json.Unmarshal([]byte(stdout.String()), &report))
		var want []string
		for driver, groups := range map[string][]string{ofNode: api.Groups(), "blue.csi.example.com": {"disk", "system"},
			"red.csi.example.com": {"disk", "volume", "filesystem", "storage", "smb", "iscsi"}} {
			for _, group := range groups {
				for _, version := range api.Versions(group) {
					want = append(want, api.DriverEndpointName(driver, group, version))
				}
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, report.Endpoints); diff != "" {
			t.Errorf("%s: endpoints (-want +got):\n%s", sharedEndpoints, diff)
		}
	}
}

// The daemon reads its file once. What has become of it since is said by the metrics and by what status asks.
func TestChangedDrivers(t *testing.T) {
	o := testOptions(t)
	o.driversPath = driversPath(t, twoDrivers)
	must(t, o.loadDrivers())
	log, stop := start(t, o, openNode)
	log.await("ready")
	for _, test := range []struct {
		change func() error
		state  int
		ready  string
	}{
		{func() error { return nil }, admin.DriversFileAsRead, "ok\n"},
		{func() error {
			return os.WriteFile(o.driversPath, []byte(`{"drivers": [{"name": "a.example.com"}]}`), 0o600)
		},
			admin.DriversFileChanged, "has changed since the daemon has read it"},
		{func() error {
			return os.WriteFile(o.driversPath, []byte(`{"drivers": [{"name": "a", "disks": [{}]}]}`), 0o600)
		},
			admin.DriversFileWrong, "a pattern for disks is empty"},
		{func() error { return os.WriteFile(o.driversPath, []byte(twoDrivers), 0o600) }, admin.DriversFileAsRead, "ok\n"},
		{func() error { return os.Remove(o.driversPath) }, admin.DriversFileWrong, "can't start again with its file of drivers"},
	} {
		must(t, test.change())
		page, err := admin.Get(t.Context(), o.endpointDir, admin.Metrics)
		must(t, err)
		if want := fmt.Sprintf("\n%s{file=%q} %d\n", admin.DriversFile, o.driversPath, test.state); !strings.Contains(page, want) {
			t.Errorf("no line %s", want)
		}
		ready, err := admin.Get(t.Context(), o.endpointDir, admin.Readyz)
		must(t, err)
		if !strings.Contains(ready, test.ready) || strings.HasPrefix(ready, "ok, but ") != (test.state != admin.DriversFileAsRead) {
			t.Errorf("ready is %q, want %q", ready, test.ready)
		}
	}
	must(t, stop())
}
