// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/server/exporter"
)

func TestBuildOf(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123abc"}},
	}
	for name, test := range map[string]struct {
		version, commit string
		info            *debug.BuildInfo
		want            exporter.Build
	}{
		"linker":   {"v1.2.3", "fedcba", recorded, exporter.Build{Version: "v1.2.3", Commit: "fedcba"}},
		"recorded": {"", "", recorded, exporter.Build{Version: "v0.1.0", Commit: "0123abc"}},
		"neither":  {"", "", nil, exporter.Build{Version: "unknown", Commit: "unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.GoVersion = runtime.Version()
			if diff := cmp.Diff(test.want, buildOf(test.version, test.commit, test.info)); diff != "" {
				t.Errorf("build (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVersionFlag(t *testing.T) {
	var stdout, stderr strings.Builder
	if code := run(t.Context(), []string{"-version"}, &stdout, &stderr, nil); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, part := range []string{"csi-proxy ", "commit ", runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("stdout is %q, want %q in it", &stdout, part)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr is %q", &stderr)
	}
}

// What installs and upgrades the daemon goes by the report, and by the error for flags
// that aren't the daemon's.
func TestCheckFlag(t *testing.T) {
	keepKlog(t)
	var stdout, stderr strings.Builder
	endpoints := endpointDir(t)
	if runtime.GOOS != "windows" { // where the pipe may be a real daemon's
		held, err := net.Listen("unix", pipe.Address(endpoints, "csi-proxy-disk-v1beta2"))
		must(t, err)
		defer held.Close()
	}
	args := []string{"-check", "-o=json", "-windows-service=false", "-node=simulated", "-grace-period=10s", "-logtostderr=false",
		"-endpoint-dir=" + endpoints,
		"-log_file=" + filepath.Join("logs", "a.log")}
	if code := run(t.Context(), args, &stdout, &stderr, nil); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var report winservice.Report
	must(t, json.Unmarshal([]byte(stdout.String()), &report))
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			if !slices.Contains(report.Endpoints, api.EndpointName(group, version)) {
				t.Errorf("%s %s isn't reported", group, version)
			}
		}
	}
	if report.Version == "" || report.LogDirectory != "logs" || report.StopTimeout() != 15*time.Second ||
		len(report.Privileges) != 0 {
		t.Errorf("%+v", report)
	}

	if runtime.GOOS != "windows" && (len(report.Taken) != 1 || !strings.Contains(report.Taken[0], "csi-proxy-disk-v1beta2") ||
		!strings.Contains(report.Taken[0], fmt.Sprintf("process %d", os.Getpid()))) {
		t.Errorf("taken are %q", report.Taken)
	}

	stdout.Reset()
	if code := run(t.Context(), []string{"-check", "-windows-service", "-unknown"}, &stdout, &stderr,
		nil); code != exitUsage || stdout.Len() > 0 {
		t.Errorf("exit code %d, stdout %q", code, &stdout)
	}
	if !strings.Contains(stderr.String(), "-unknown") {
		t.Errorf("stderr is %q", &stderr)
	}
}
