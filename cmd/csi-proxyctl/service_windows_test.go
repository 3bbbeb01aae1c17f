// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// TestMain makes the test program a daemon that is run with -check.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-check" {
		report := winservice.Report{Privileges: []string{"SeBackupPrivilege"}, StopSeconds: 30}
		for _, group := range api.Groups() {
			for _, version := range api.Versions(group) {
				report.Endpoints = append(report.Endpoints, api.EndpointName(group, version))
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ran runs the program, which must exit with a code, and returns what it prints.
func ran(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	if got := run(t.Context(), args, strings.NewReader(""), &out, &errs); got != code {
		t.Fatalf("%q: exit code %d, want %d: %s", args, got, code, &errs)
	}
	return out.String(), errs.String()
}

func TestService(t *testing.T) {
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CREATE_SERVICE)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		t.Skip("only an administrator may install services")
	}
	must(t, err)
	windows.CloseServiceHandle(m)

	// The tests of other packages run at the same time.
	name := fmt.Sprintf("csi-proxy-wintest-ctl-%d", os.Getpid())
	daemon := filepath.Join(t.TempDir(), "csi-proxy.exe")
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	if err := os.WriteFile(daemon, self, 0o700); err != nil { // it isn't started
		t.Fatal(err)
	}
	t.Cleanup(func() { ran(t, 0, "service", "uninstall", "--name", name) })
	status := func() (s serviceJSON) {
		t.Helper()
		stdout, _ := ran(t, 0, "service", "status", "--name", name, "-o", "json")
		must(t, json.Unmarshal([]byte(stdout), &s))
		return s
	}

	ran(t, 3, "service", "status", "--name", name)
	want := serviceJSON{
		Name:     name,
		State:    "stopped",
		Start:    "automatic",
		ExitCode: uint32(windows.ERROR_SERVICE_NEVER_STARTED),
		Account:  "LocalSystem",
		Settings: winservice.Settings{
			CommandLine: daemon + ` -logtostderr=false -windows-service "-log_file=C:\a log"`,
		},
	}
	// internal/host/winservice tests them
	settings := cmpopts.IgnoreFields(winservice.Settings{}, "Start", "Recovery")
	ran(t, 0, "service", "install", "--name", name, daemon,
		"--", "-logtostderr=false", "-windows-service", `-log_file=C:\a log`)
	if diff := cmp.Diff(want, status(), settings); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	want.CommandLine = daemon + ` -windows-service -log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false`
	ran(t, 0, "service", "install", "--name", name, daemon)
	if diff := cmp.Diff(want, status(), settings); diff != "" {
		t.Errorf("status of the changed service (-want +got):\n%s", diff)
	}

	drivers := filepath.Join(t.TempDir(), "drivers.json")
	must(t, os.WriteFile(drivers, []byte("drivers"), 0o600))
	ran(t, 0, "service", "install", "--name", name, daemon, "--drivers", drivers)
	kept, err := filepath.Glob(filepath.Join(filepath.Dir(daemon), "csi-proxy.drivers-*.json"))
	must(t, err)
	if len(kept) != 1 || !strings.HasSuffix(status().CommandLine, " -drivers="+kept[0]) {
		t.Errorf("the files %q, and the command line %s", kept, status().CommandLine)
	}

	ran(t, 0, "service", "uninstall", "--name", name)
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(daemon), "csi-proxy.drivers-*")); len(left) != 0 || err != nil {
		t.Errorf("after the service: %q, %v", left, err)
	}
	ran(t, 3, "service", "status", "--name", name)
}
