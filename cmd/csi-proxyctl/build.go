// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker in a release build:
// -ldflags "-X main.version=v1.2.3 -X main.commit=0123abc".
var version, commit string

// currentBuild describes the build of this program, from the linker's values or, if
// they are empty, from what the go command recorded.
func currentBuild() string {
	version, commit := version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(version, info.Main.Version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				commit = cmp.Or(commit, setting.Value)
			}
		}
	}
	return fmt.Sprintf("%s, commit %s, %s, %s/%s", cmp.Or(version, "unknown"), cmp.Or(commit, "unknown"),
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// version is what --version prints, where people look for a command.
func (p *program) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which csi-proxyctl this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			p.started = true
			_, err := fmt.Fprintln(p.stdout, "csi-proxyctl", currentBuild())
			return err
		},
	}
}
