// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Docs are wrapped at 100 columns. Tables and blocks of code can't be, nor can a line that
// is one long word, such as a link.
func TestDocsAreWrapped(t *testing.T) {
	const columns = 100
	docs := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "bin", "dist", "vendor"}, d.Name()) {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		docs++
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		code := false
		for i, line := range strings.Split(string(b), "\n") {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "```") {
				code = !code
			}
			if n := utf8.RuneCountInString(line); n > columns && !code && !strings.HasPrefix(trimmed, "|") && strings.Contains(trimmed, " ") {
				t.Errorf("%s:%d has %d columns; wrap it at %d", path, i+1, n, columns)
			}
		}
		return nil
	})
	if err != nil || docs < 10 {
		t.Errorf("%d docs, %v", docs, err)
	}
}
