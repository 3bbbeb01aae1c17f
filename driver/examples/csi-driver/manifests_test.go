// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"testing"
)

// TestManifests parses the driver's command lines in the manifests of deploy, as the tests
// in test/kubernetes/cluster have written them down.
func TestManifests(t *testing.T) {
	content, err := os.ReadFile("../../../test/kubernetes/cluster/testdata/command-lines.json")
	if err != nil {
		t.Fatal(err)
	}
	var lines []struct {
		Program string
		Args    []string
		In      string
	}
	if err := json.Unmarshal(content, &lines); err != nil {
		t.Fatal(err)
	}
	parsed := 0
	for _, line := range lines {
		if line.Program != "csi-driver" {
			continue
		}
		parsed++
		if o, err := parseFlags(line.Args); err != nil || o.nodeID != "node-1" {
			t.Errorf("%q of %q: node %q, %v", line.Args, line.In, o.nodeID, err)
		}
	}
	if parsed < 2 {
		t.Errorf("only %d command lines of the driver", parsed)
	}
}
