// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker in a release build:
// -ldflags "-X main.version=v1.2.3 -X main.commit=0123abc".
var version, commit string

// build is a build of this program.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// currentBuild returns the build of this program, from the linker's values or, if
// they are empty, from what the go command recorded.
func currentBuild() build {
	version, commit := version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(version, info.Main.Version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				commit = cmp.Or(commit, setting.Value)
			}
		}
	}
	return build{cmp.Or(version, "unknown"), cmp.Or(commit, "unknown"), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

func (b build) String() string {
	return fmt.Sprintf("%s, commit %s, %s, %s", b.Version, b.Commit, b.Go, b.Platform)
}

// version is what --version prints, where people look for a command.
func (p *program) version() *cobra.Command {
	return p.leaf("version", "Show the version of csi-proxyctl", func(context.Context, []string) (reply, error) {
		return line(currentBuild(), "csi-proxyctl version "+currentBuild().String()), nil
	})
}
