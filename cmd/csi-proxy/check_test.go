// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// checked runs -check, and returns what it prints.
func checked(t *testing.T, code int, args ...string) string {
	t.Helper()
	keepKlog(t)
	var stdout, stderr strings.Builder
	if got := run(t.Context(), append([]string{"-check"}, args...), &stdout, &stderr, nil); got != code {
		t.Fatalf("%q: exit code %d, want %d: %s%s", args, got, code, &stdout, &stderr)
	}
	return stdout.String() + stderr.String()
}

// People get a summary with what each driver gets, and programs the same as JSON.
func TestCheckSummary(t *testing.T) {
	file := driversPath(t, `{"drivers": [
		{"name": "red", "disks": [{"vendor": "RED*", "adapter": 0}], "smbServers": ["files"], "directories": ["C:\\work\\red"], "reformat": true, "maxCalls": 3},
		{"name": "blue", "groups": ["iscsi", "system"], "iscsiPortals": ["[fd00::1]", "storage:860"], "services": ["agent"]}]}`)
	args := []string{"-node=simulated", "-endpoint-dir=" + endpointDir(t), "-working-dir=C:\\work", "-drivers=" + file}
	got := checked(t, exitOK, args...)
	for _, want := range []string{
		"csi-proxy (devel) starts with these flags.\n\npaths           C:\\var\\lib\\kubelet\n                C:\\work\n",
		"\nendpoints       csi-proxy-administrators-GROUP-VERSION, for administrators; those with the published names are off\n",
		"\ndriver red\n  endpoints       csi-proxy-red-GROUP-VERSION\n  groups          disk: " + strings.Join(api.Versions("disk"), ", ") + "\n",
		"                  smb: v1, v1beta2, v1beta1, v1alpha1\n",
		"  disks           {\"vendor\": \"RED*\", \"adapter\": 0}\n" +
			"  directories     C:\\var\\lib\\kubelet\\plugins\\red\n                  C:\\var\\lib\\kubelet\\plugins\\kubernetes.io\\csi\\red\n                  C:\\work\\red\n" +
			"  SMB servers     files\n  iSCSI portals   none\n  services        none\n  may empty       its volumes in C:\\work\\red\n  calls           at most 3 at once\n",
		"\ndriver blue\n", "  disks           none\n", "  iSCSI portals   [fd00::1]:3260\n                  storage:860\n  services        agent\n  calls           at most 1024 at once\n",
		"\n\nwarning: -drivers=" + file + `:3:81: driver "blue": Windows lists the sessions`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the summary has no %q:\n%s", want, got)
		}
	}
	var report winservice.Report
	must(t, json.Unmarshal([]byte(checked(t, exitOK, append(args, "-o=json")...)), &report))
	for i := range report.Drivers {
		if d := &report.Drivers[i]; len(d.Endpoints) == 0 || !strings.HasPrefix(d.Endpoints[0], "csi-proxy-"+d.Name+"-") {
			t.Errorf("%s has the endpoints %q", d.Name, d.Endpoints)
		}
		report.Drivers[i].Endpoints = nil
	}
	if diff := cmp.Diff([]winservice.DriverReport{
		{Name: "red", Groups: []string{"disk", "volume", "filesystem", "storage", "smb"}, Disks: []string{`{"vendor": "RED*", "adapter": 0}`},
			Directories: []string{`C:\var\lib\kubelet\plugins\red`, `C:\var\lib\kubelet\plugins\kubernetes.io\csi\red`, `C:\work\red`},
			Servers:     []string{"files"}, ReformatDirs: []string{`C:\work\red`}, MaxCalls: 3},
		{Name: "blue", Groups: []string{"iscsi", "system"},
			Directories: []string{`C:\var\lib\kubelet\plugins\blue`, `C:\var\lib\kubelet\plugins\kubernetes.io\csi\blue`},
			Portals:     []string{"[fd00::1]:3260", "storage:860"}, Services: []string{"agent"}, MaxCalls: 1024},
	}, report.Drivers); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
	if len(report.Warnings) != 1 {
		t.Errorf("warnings: %q", report.Warnings)
	}
	if got := checked(t, exitOK, "-node=simulated", "-endpoint-dir="+endpointDir(t), `-working-dir=C:\mnt`, `-reformat-dir=C:\mnt`); !strings.Contains(got,
		"may empty       volumes in C:\\mnt\n") {
		t.Errorf("with -reformat-dir:\n%s", got)
	}
	if got := checked(t, exitOK, "-node=simulated", "-endpoint-dir="+endpointDir(t)); !strings.Contains(got, "endpoints       csi-proxy-GROUP-VERSION, at which every driver") ||
		strings.Contains(got, "driver red") || strings.Contains(got, "warning") {
		t.Errorf("without drivers:\n%s", got)
	}
}

// The command line of a node's service is checked on any system, as the service manager or a manifest has it.
func TestCheckServiceLine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows is asked then, and its pipes may be taken")
	}
	file := driversPath(t, `{"drivers": [{"name": "red", "disks": [{"vendor": "RED"}], "pipeSecurity": "D:P(A;;GA;;;SY)"}]}`)
	for _, args := range [][]string{
		{`"C:\Program Files\csi proxy\csi-proxy.exe" -windows-service -kubelet-path="D:\var lib" -log_file=C:\var\log\x.log -logtostderr=false -pipe-security D:P(A;;GA;;;SY)`},
		{"--", `C:\k\csi-proxy.exe`, "-windows-service", `-kubelet-path=D:\var lib`, `-log_file=C:\var\log\x.log`, "-logtostderr=false", "-pipe-security", "D:P(A;;GA;;;SY)"},
		{"-windows-service", `-kubelet-path=D:\var lib`, `-log_file=C:\var\log\x.log`, "-logtostderr=false", "-pipe-security", "D:P(A;;GA;;;SY)"},
	} {
		var report winservice.Report
		must(t, json.Unmarshal([]byte(checked(t, exitOK, append([]string{"-o=json", "-drivers=" + file}, args...)...)), &report))
		if report.LogDirectory != `C:\var\log` || len(report.Drivers) != 1 || report.Drivers[0].Directories[0] != `D:\var lib\plugins\red` {
			t.Errorf("%q: %+v", args, report)
		}
		if !slices.Contains(report.Privileges, "SeManageVolumePrivilege") || len(report.Taken) > 0 {
			t.Errorf("%q: privileges %q, taken %q", args, report.Privileges, report.Taken)
		}
		if len(report.Warnings) != 2 || !strings.Contains(report.Warnings[0], "-pipe-security: the security descriptor isn't checked") ||
			!strings.Contains(report.Warnings[1], `driver "red": the security descriptor isn't checked`) {
			t.Errorf("%q: warnings %q", args, report.Warnings)
		}
	}
	// A flag before the line replaces the line's.
	if got := checked(t, exitOK, "-drivers="+file, `C:\k\csi-proxy.exe -drivers=C:\k\drivers.json`); !strings.Contains(got, "driver red") {
		t.Errorf("with a copy of the file:\n%s", got)
	}
	for line, want := range map[string]string{
		`C:\k\csi-proxy.exe -drivers=C:\k\drivers.json`:    "name a copy of the file before the command line",
		`C:\k\csi-proxy.exe -windows-servic`:               "unknown flag -windows-servic; did you mean -windows-service?",
		`C:\k\csi-proxy.exe -kubelet-path C:\my kubelet`:   `unknown argument "kubelet"`,
		`C:\k\csi-proxy.exe -require-privacy false`:        "write -require-privacy=false",
		`C:\k\csi-proxy.exe -kubelet-path=/var/lib`:        "a slash (/)",
		`C:\k\csi-proxy.exe other.exe`:                     `unknown argument "other.exe"`,
		`start`:                                            `unknown argument "start": csi-proxy takes flags only`,
		`C:\k\csi-proxy.exe -windows-service -max-calls=0`: "-max-calls=0: it must be 1 or more",
	} {
		if got := checked(t, exitUsage, line); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	wantUsageError(t, `C:\k\csi-proxy.exe -windows-service`)
	wantUsageError(t, "-o=json")
	wantUsageError(t, "-check -o=xml")
}

func TestSplitCommandLine(t *testing.T) {
	for line, want := range map[string][]string{
		``:                                {``},
		`csi-proxy.exe`:                   {`csi-proxy.exe`},
		` C:\k\a.exe  -b	c `:              {`C:\k\a.exe`, `-b`, `c`},
		`"C:\Program Files\a.exe" "-b c"`: {`C:\Program Files\a.exe`, `-b c`},
		`"C:\dir\" -b`:                    {`C:\dir\`, `-b`},
		`C:\a"b c`:                        {`C:\a"b`, `c`},
		`a -b="c d"e "" f`:                {`a`, `-b=c de`, ``, `f`},
		// From the page that is the source.
		`a "a b c" d e`:     {`a`, `a b c`, `d`, `e`},
		`a "ab\"c" "\\" d`:  {`a`, `ab"c`, `\`, `d`},
		`a a\\\b d"e f"g h`: {`a`, `a\\\b`, `de fg`, `h`},
		`a a\\\"b c d`:      {`a`, `a\"b`, `c`, `d`},
		`a a\\\\"b c" d e`:  {`a`, `a\\b c`, `d`, `e`},
		`a "a""b" c\`:       {`a`, `a"b`, `c\`},
		`a -pipe-security "D:P(A;;GA;;;SY)" -x=C:\`: {`a`, `-pipe-security`, `D:P(A;;GA;;;SY)`, `-x=C:\`},
	} {
		if got := splitCommandLine(line); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// A working directory that is too wide is a warning, and one in a system path is refused.
func TestCheckWorkingDirs(t *testing.T) {
	got := checked(t, exitOK, "-node=simulated", "-endpoint-dir="+endpointDir(t), `-working-dir=C:\`, `-working-dir=D:\work`)
	if want := `warning: -working-dir=C:\: it holds C:\Windows, C:\Program Files, `; !strings.Contains(got, want) || strings.Contains(got, `D:\work: it holds`) {
		t.Errorf("the summary has no %q:\n%s", want, got)
	}
	got = checked(t, exitUsage, "-node=simulated", `-working-dir=C:\Program Files\data`)
	if want := "csi-proxy touches nothing in"; !strings.Contains(got, want) {
		t.Errorf("no %q:\n%s", want, got)
	}
}
