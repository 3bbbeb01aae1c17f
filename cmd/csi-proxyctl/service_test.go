// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestDaemonArgs(t *testing.T) {
	for args, want := range map[string]string{
		"":                        "-windows-service",
		"-v=2 -working-dir C:\\w": "-windows-service -v=2 -working-dir C:\\w",
		"-v=2 -windows-service":   "-v=2 -windows-service",
		"--windows-service --v=2": "--windows-service --v=2",
	} {
		if got := daemonArgs(strings.Fields(args)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, want %s", args, got, want)
		}
	}
}
