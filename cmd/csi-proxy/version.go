// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/csi-proxy/csi-proxy/internal/serve/server/exporter"
)

// Set by the linker in a release build:
// -ldflags "-X main.version=v1.2.3 -X main.commit=0123abc".
var version, commit string

// currentBuild returns the build of this program.
func currentBuild() exporter.Build {
	info, _ := debug.ReadBuildInfo() // nil in a program without modules
	return buildOf(version, commit, info)
}

// buildOf returns the build that the linker's values describe, or if they are
// empty what the go command recorded of the main module and its repository.
func buildOf(version, commit string, info *debug.BuildInfo) exporter.Build {
	b := exporter.Build{Version: version, Commit: commit, GoVersion: runtime.Version()}
	if info != nil {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				b.Commit = cmp.Or(b.Commit, setting.Value)
			}
		}
	}
	b.Version = cmp.Or(b.Version, "unknown")
	b.Commit = cmp.Or(b.Commit, "unknown")
	return b
}

func describeBuild(b exporter.Build) string {
	return fmt.Sprintf("csi-proxy %s, commit %s, %s, %s/%s", b.Version, b.Commit, b.GoVersion, runtime.GOOS,
		runtime.GOARCH)
}
