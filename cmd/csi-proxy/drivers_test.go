// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
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
      "reformat": true,
      "groups": ["disk", "volume", "filesystem", "storage", "smb", "iscsi", "system"],
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
				Dirs: []string{`C:\var\lib\kubelet\red`}, Reformat: true},
			{Driver: scope.Driver{Name: "blue.csi.example.com", Disks: []scope.DiskPattern{{Vendor: "BLUEINC"}}}},
		}
		if diff := cmp.Diff(want, o.ofDrivers); diff != "" {
			t.Errorf("drivers (-want +got):\n%s", diff)
		}
		var groups [][]string
		var maxCalls []int
		for _, d := range o.drivers.Drivers {
			groups, maxCalls = append(groups, d.Groups), append(maxCalls, d.MaxCalls)
			if d.PipeSecurity != pipe.DriverSecurityDescriptor() {
				t.Errorf("the pipes of %s are guarded by %q", d.Name, d.PipeSecurity)
			}
		}
		if diff := cmp.Diff([][]string{{"disk", "volume", "filesystem", "storage", "smb", "iscsi", "system"}, {"disk", "system"}}, groups); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
		if !slices.Equal(maxCalls, []int{2, 7}) {
			t.Errorf("calls at most: %v", maxCalls)
		}
	}
}

// faultsOf returns the lines of all that is wrong with a file of drivers, without the file's name, which begins each.
func faultsOf(t *testing.T, text string, args ...string) string {
	t.Helper()
	path := driversPath(t, text)
	o, err := parseFlags(slices.Concat([]string{"-node=simulated", "-drivers=" + path}, args), io.Discard)
	must(t, err)
	var faults *driversError
	switch err := o.check(); {
	case err == nil:
		return strings.ReplaceAll(strings.Join(o.warnings, "\n"), "-drivers="+path+":", "")
	case !errors.As(err, &faults):
		t.Fatalf("%.200s: %v", text, err)
	}
	lines := faults.Lines()
	if !strings.HasPrefix(lines[0], "-drivers="+path+": there ") {
		t.Errorf("the heading is %s", lines[0])
	}
	for i := range lines[1:] {
		var ok bool
		if lines[i+1], ok = strings.CutPrefix(lines[i+1], path+":"); !ok {
			t.Errorf("the file isn't named: %s", lines[i+1])
		}
	}
	return strings.Join(lines[1:], "\n")
}

// What is wrong with the file is said, with its place, the driver, and what is possible.
func TestDriversFileFaults(t *testing.T) {
	keepKlog(t)
	something := `, "directories": ["C:\\var\\lib\\kubelet\\a"]`
	named := func(rest string) string { return `{"drivers": [{"name": "a.example.com"` + rest + `}]}` }
	two := func(a, b string) string {
		return `{"drivers": [{"name": "a.example.com", ` + a + "},\n{" + `"name": "b.example.com", ` + b + `}]}`
	}
	for text, want := range map[string]string{
		``:                       "1:1: the file is empty",
		`[]`:                     "1:1: the file must be an object, not a list",
		"{\n\"drivers\": {}}":    "2:12: drivers must be a list, not an object",
		"drivers:\n- name: a":    "1:1: the file isn't JSON: invalid character 'd'",
		"{\n\"drivers\": [],\n}": "3:1: the file isn't JSON: invalid character '}'",
		`{}`:                     "1:1: the file names no driver",
		`{"drivers": []}`:        "1:13: the file names no driver",
		`{"drivers": [{"name": "a", "disks": [{"vendor": "X"}]}], "Drivers": [{"name": "b"}]}`: `1:58: unknown key "Drivers"; did you mean drivers?`,
		named(`, "disks": [{"vendor": "X", "vendor": "Y"}]`):                                   `1:66: driver "a.example.com": the key "vendor" is there already, in line 1`,
		named(`, "disk": []` + something):                                                      `1:40: driver "a.example.com": unknown key "disk"; did you mean disks?`,
		named(`, "disks": [{"bus": 17, "vendor": "X"}]`):                                       `1:58: driver "a.example.com": bus must be a text, not the number 17`,
		named(something) + `{}`:                                                                "there is more than one JSON value in the file",
		`{"drivers": [{"directories": ["C:\\var\\lib\\kubelet\\a"]}]}`:                         `1:14: driver 1: the name must be that of the CSIDriver`,
		`{"drivers": [{"name": "a\\b"` + something + `}]}`:                                     `1:23: driver "a\\b": the name must be that of the CSIDriver`,
		`{"drivers": [{"name": "kubernetes.io"` + something + `}]}`:                            `driver "kubernetes.io": a driver can't be named kubernetes.io: plugins\kubernetes.io`,
		`{"drivers": [{"name": "kubernetes.io\\csi"` + something + `}]}`:                       `the name must be that of the CSIDriver`,
		`{"drivers": [{"name": "` + strings.Repeat("a", 250) + `"` + something + `}]}`:         "the name is too long for the name of a pipe",
		`{"drivers": [{"name": "Administrators"` + something + `}]}`:                           `driver "Administrators": the name is taken by the endpoints of administrators`,
		named(``): `1:14: driver "a.example.com": the file gives the driver nothing: give it disks,`,
		named(`, "groups": ["disks"]` + something):                                  `driver "a.example.com": unknown group "disks"; did you mean disk?`,
		named(`, "groups": ["sim"]` + something):                                    `unknown group "sim"; the groups are disk,`,
		named(`, "groups": []` + something):                                         `groups is empty, and would leave the driver no endpoint`,
		named(`, "groups": ["disk"]`):                                               "1:51: driver \"a.example.com\": the group disk is of no use without disks or iscsiPortals",
		named(`, "groups": ["filesystem", "smb"]`):                                  "the group smb is of no use without smbServers",
		named(`, "groups": ["storage", "iscsi"]`):                                   "the group iscsi is of no use without iscsiPortals",
		named(`, "services": ["x"]`):                                                "services need the group system, which no driver has by default",
		named(`, "groups": ["filesystem"], "services": ["x"]`):                      "services are of no use without the group system: add it to groups",
		named(`, "groups": ["filesystem"], "smbServers": ["x"]`):                    "smbServers are of no use without the group smb or storage: add it to groups",
		named(`, "groups": ["system"], "iscsiPortals": ["192.0.2.1"]`):              "iscsiPortals are of no use without the group iscsi or storage",
		named(`, "groups": ["smb"], "smbServers": ["x"], "disks": [{"bus":"SAS"}]`): "disks are of no use without the group disk or volume or storage",
		named(`, "groups": ["disk"], "disks": [{"bus":"SAS"}]` + something):         "directories are of no use without the group volume or filesystem or smb or storage",
		named(`, "disks": [{"bus": "nvm"}]`):                                        `1:50: driver "a.example.com": unknown bus nvm; did you mean NVMe?`,
		named(`, "disks": [{"adapter": -1, "bus": "SAS"}]`):                         "adapter must be a whole number, 0 or more, not the number -1",
		named(`, "maxCalls": -1` + something):                                       "maxCalls must be a whole number, 0 or more, not the number -1",
		named(`, "smbServers": ["*.example.com"]`):                                  "*.example.com can't be a server",
		named(`, "iscsiPortals": [""]`):                                             `portal "": the address is empty`,
		named(`, "iscsiPortals": ["192.0.2.1", "hello world"]`):                     `1:70: driver "a.example.com": portal "hello world": the address is neither`,
		named(`, "iscsiPortals": ["192.0.2.1:0"]`):                                  `portal "192.0.2.1:0": the port is no number from 1 to 65535`,
		named(`, "reformat": true, "disks": [{"bus":"SAS"}]`):                       `1:52: driver "a.example.com": reformat is of no use without directories and the group volume`,
		named(`, "reformat": true, "groups": ["filesystem"]` + something):           "reformat is of no use without directories and the group volume",
		named(`, "directories": ["D:\\data"]`):                                      `directory "D:\\data": the path is not inside of`,
		named(`, "directories": ["C:\\var\\lib\\kubelet\\plugins"]`):                `1:56: driver "a.example.com": directory "C:\\var\\lib\\kubelet\\plugins": plugins holds the directories of all drivers`,
		two(`"smbServers": [".example.com"]`, `"smbServers": ["x.Example.com"]`):    `1:55: driver "a.example.com": .example.com includes the server x.Example.com of driver "b.example.com" (line 2)`,
		two(`"iscsiPortals": ["192.0.2.1"]`, `"iscsiPortals": ["192.0.2.1:3260"]`):  `2:44: driver "b.example.com": duplicate portal 192.0.2.1:3260: driver "a.example.com" has it (line 1)`,
		two(`"smbServers": ["192.0.2.1"]`, `"smbServers": ["192.0.2.01"]`):          `2:42: driver "b.example.com": 192.0.2.01 can't be a server: it ends with a number`,
		two(`"iscsiPortals": ["fd00::1"]`, `"iscsiPortals": ["[fd00::1%5]:3260"]`):  `2:44: driver "b.example.com": duplicate portal [fd00::1%5]:3260: driver "a.example.com" has it (line 1)`,
		named(`, "groups": ["system"], "services": ["Kubelet"]`):                    `driver "a.example.com": the service Kubelet can't belong to a driver: all drivers depend on it`,
		two(`"disks": [{"bus": "NVMe"}]`, `"disks": [{"bus": "NVMe", "product": "Amazon*"}]`): `1:50: driver "a.example.com": all disks that match the pattern {"bus": "NVMe", "product": "Amazon*"} of driver ` +
			`"b.example.com" match this one too, and would belong to neither driver; make this pattern narrower (line 2)`,
		two(`"directories": ["C:\\var\\lib\\kubelet\\x"]`, `"directories": ["C:\\var\\lib\\kubelet\\X\\y"]`): `2:43: driver "b.example.com": directory "C:\\var\\lib\\kubelet\\X\\y": driver "a.example.com" has the directory C:\var\lib\kubelet\x`,
		// Warnings.
		two(`"disks": [{"vendor": "X"}]`, `"disks": [{"product": "Y"}]`): `2:37: driver "b.example.com": a disk can match this pattern and the pattern {"vendor": "X"} of driver "a.example.com"; such a disk would belong to neither driver (line 1)`,
		named(`, "iscsiPortals": ["storage.example.com"]`):               `1:57: driver "a.example.com": Windows lists the sessions of a disk by IP address`,
	} {
		if got := faultsOf(t, text); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%.200s:\n%s\nwant\n%s", text, got, want)
		}
	}
	for _, text := range []string{named(something), named(`, "groups": ["filesystem"]`), named(`, "groups": ["storage"], "smbServers": ["x"]`)} {
		if got := faultsOf(t, text); got != "" {
			t.Errorf("%s: %s", text, got)
		}
	}
	for text, want := range map[string]string{strings.Repeat(" ", maxDriversFile) + `{}`: "the file is longer than"} {
		o, err := parseFlags([]string{"-node=simulated", "-drivers=" + driversPath(t, text)}, io.Discard)
		must(t, err)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want %s", text, err, want)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	o, err := parseFlags([]string{"-node=simulated", "-drivers=" + missing}, io.Discard)
	must(t, err)
	if err := o.check(); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("without the file: %v", err)
	}
}

// All problems are found at once, in their order, the refusals before the warnings, and each is a line on standard error.
func TestAllDriversFileFaults(t *testing.T) {
	keepKlog(t)
	const text = `{
  "drivers": [
    {"name": "red", "disk": [{"bus": "NVMe"}], "smbServers": ["files", ""]},
    {"nmae": "blue", "directories": ["C:\\var\\lib\\kubelet\\PLUGIN~1"], "iscsiPortals": ["host"]},
    {"name": "green", "groups": ["filesystem"], "maxCalls": "2"}
  ],
  "sharedEndpoint": true
}`
	want := `3:21: driver "red": unknown key "disk"; did you mean disks?
3:72: driver "red": the name of a server is empty
4:5: driver 2: the name must be that of the CSIDriver, of letters, digits, dots and hyphens
4:6: driver 2: unknown key "nmae"; did you mean name?
4:38: driver 2: directory "C:\\var\\lib\\kubelet\\PLUGIN~1": "PLUGIN~1" may be the short (8.3) name of another directory; write its long name
5:61: driver "green": maxCalls must be a whole number, 0 or more, not a text
7:3: unknown key "sharedEndpoint"; did you mean sharedEndpoints?
4:91: warning: driver 2: Windows lists the sessions of a disk by IP address`
	if got := faultsOf(t, text); !strings.HasPrefix(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	path := driversPath(t, text)
	var stdout, stderr strings.Builder
	if code := run(t.Context(), []string{"-check", "-node=simulated", "-drivers=" + path}, &stdout, &stderr, nil); code != exitUsage || stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q", code, &stdout)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if len(lines) != 10 || lines[0] != "csi-proxy: -drivers="+path+": there are 7 problems" || !strings.HasPrefix(lines[1], path+":3:21: ") ||
		lines[9] != "docs/drivers.md describes the file." {
		t.Errorf("%d lines: %s", len(lines), &stderr)
	}
}

// -check reports the endpoints that are served with the file: the published ones are off, unless it has them.
func TestCheckOfDrivers(t *testing.T) {
	keepKlog(t)
	for sharedEndpoints, ofNode := range map[string]string{"": admin.Driver, `"sharedEndpoints": false,`: admin.Driver, `"sharedEndpoints": true,`: ""} {
		var stdout, stderr strings.Builder
		file := driversPath(t, strings.Replace(twoDrivers, "{", "{"+sharedEndpoints, 1))
		if code := run(t.Context(), []string{"-check", "-o=json", "-node=simulated", "-endpoint-dir=" + endpointDir(t), "-drivers=" + file}, &stdout, &stderr,
			nil); code != exitOK {
			t.Fatalf("exit code %d: %s", code, &stderr)
		}
		var report winservice.Report
		must(t, json.Unmarshal([]byte(stdout.String()), &report))
		var want []string
		for driver, groups := range map[string][]string{ofNode: api.Groups(), "blue.csi.example.com": {"disk", "system"},
			"red.csi.example.com": {"disk", "volume", "filesystem", "storage", "smb", "iscsi", "system"}} {
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
			return os.WriteFile(o.driversPath, []byte(`{"drivers": [{"name": "a.example.com", "smbServers": ["x"]}]}`), 0o600)
		},
			admin.DriversFileChanged, "has changed since the daemon read it"},
		{func() error {
			return os.WriteFile(o.driversPath, []byte(`{"drivers": [{"name": "a", "disks": [{}]}]}`), 0o600)
		},
			admin.DriversFileWrong, "the pattern is empty"},
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
