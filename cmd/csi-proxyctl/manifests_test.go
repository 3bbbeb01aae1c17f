// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"os"
	"testing"
)

// TestManifests parses the command lines of csi-proxyctl in the manifests of deploy, as the
// tests in test/kubernetes/cluster have written them down, and runs none of them.
func TestManifests(t *testing.T) {
	content, err := os.ReadFile("../../test/kubernetes/cluster/testdata/command-lines.json")
	must(t, err)
	var lines []struct {
		Program string
		Args    []string
		In      string
	}
	must(t, json.Unmarshal(content, &lines))
	parsed := 0
	for _, line := range lines {
		if line.Program != "csi-proxyctl" {
			continue
		}
		parsed++
		p := &program{stdout: io.Discard, stderr: io.Discard}
		command, args, err := p.root().Find(line.Args)
		if err == nil {
			err = command.ParseFlags(args)
		}
		if err == nil {
			err = command.ValidateArgs(command.Flags().Args())
		}
		if err != nil || command.HasSubCommands() {
			t.Errorf("%q of %s: %v", line.Args, line.In, err)
		}
	}
	if parsed < 4 {
		t.Errorf("only %d command lines of csi-proxyctl", parsed)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
