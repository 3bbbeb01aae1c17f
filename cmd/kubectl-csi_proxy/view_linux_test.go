// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/fleet"
)

// TestView: only on a terminal healthy nodes are counted, and not with --all.
func TestView(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if v := (&reader{}).view(terminal, fleet.Status{}); !v.Brief {
		t.Error("on a terminal all nodes are listed")
	}
	if v := (&reader{all: true}).view(terminal, fleet.Status{}); v.Brief {
		t.Error("with --all nodes are only counted")
	}
	if v := (&reader{}).view(new(bytes.Buffer), fleet.Status{}); v.Brief || v.Colours {
		t.Errorf("where the output is a pipe: %+v", v)
	}
}
