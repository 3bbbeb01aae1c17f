// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestManifests parses the daemon's command lines in the manifests of deploy, as the tests
// in test/kubernetes/cluster have written them down.
func TestManifests(t *testing.T) {
	content, err := os.ReadFile("../../test/kubernetes/cluster/testdata/command-lines.json")
	must(t, err)
	var lines []struct {
		Program string
		Args    []string
		In      string
		Drivers json.RawMessage // the file of -drivers
	}
	must(t, json.Unmarshal(content, &lines))
	parsed, withDrivers := 0, 0
	for _, line := range lines {
		args := line.Args
		if line.Program == "csi-proxyctl" {
			// The flags for a service come after --.
			_, after, ok := strings.Cut(strings.Join(args, "\n"), "\n--\n")
			if !ok {
				continue
			}
			args = strings.Split(after, "\n")
		} else if line.Program != "csi-proxy" {
			continue
		}
		parsed++
		if line.Drivers != nil {
			withDrivers++
			file := filepath.Join(t.TempDir(), "drivers.json")
			must(t, os.WriteFile(file, line.Drivers, 0o600))
			args = append(args, "-drivers="+file) // the last one counts, and is what service install adds
		}
		o, err := parseFlags(args, io.Discard)
		if err != nil {
			t.Errorf("%q of %q: %v", args, line.In, err)
			continue
		}
		if err := o.check(); err != nil {
			t.Errorf("%q of %q: %v", args, line.In, err)
		}
	}
	if parsed < 5 || withDrivers < 3 {
		t.Errorf("only %d command lines of the daemon, %d of them with drivers", parsed, withDrivers)
	}
}
