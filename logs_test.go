// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// logLine is a call that writes a line of the daemon's log.
var logLine = regexp.MustCompile(`\b[lL]og(?:ger)?\.(?:Info|Warn|Error|Debug|LogAttrs)\((?:ctx, slog\.Level\w+, )?"([^"]+)"`)

func TestLogLinesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Join(strings.Fields(string(text)), " ")
	found := 0
	for _, dir := range []string{"internal", "cmd/csi-proxy"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if path == filepath.Join("internal", "host", "deployment") {
				return filepath.SkipDir // csi-proxyctl prints its lines
			}
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, call := range logLine.FindAllSubmatch(source, -1) {
				found++
				line, _, _ := strings.Cut(string(call[1]), "; to fix that") // the docs say it in their words
				if !strings.Contains(docs, line) {
					t.Errorf("%s logs %q, which docs/monitoring.md doesn't explain", path, line)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 50 {
		t.Errorf("only %d log lines were found", found)
	}
}
