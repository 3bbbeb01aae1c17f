// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"os"
	"testing"
)

// TestHasColours: colours are for terminals that show them, unless somebody wants none.
func TestHasColours(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, tt := range []struct {
		term, noColor string
		want          bool
	}{{"xterm", "", true}, {"xterm", "1", false}, {"dumb", "", false}} {
		t.Setenv("TERM", tt.term)
		t.Setenv("NO_COLOR", tt.noColor)
		if got := HasColours(terminal); got != tt.want || !IsTerminal(terminal) {
			t.Errorf("TERM=%s, NO_COLOR=%s: %t", tt.term, tt.noColor, got)
		}
		if HasColours(new(bytes.Buffer)) || IsTerminal(new(bytes.Buffer)) {
			t.Error("a buffer has colours")
		}
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("TERM", "xterm")
	if HasColours(file) || IsTerminal(file) {
		t.Error("a file has colours")
	}
}
