// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/server/exporter"
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
