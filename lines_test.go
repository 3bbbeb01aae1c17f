// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// longLines are the directories whose lines may still be longer. None is to be added.
var longLines = []string{"test/kubelet"}

// generated matches what generators write into their files.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// A line of code fits on a screen that is split in two: it has 120 characters at most, unless
// a raw string makes it longer.
func TestLinesFit(t *testing.T) {
	const limit = 120
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(path)
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "bin" || d.Name() == "vendor" ||
			slices.Contains(longLines, slash)) {
			return filepath.SkipDir
		}
		text := ""
		if filepath.Ext(path) == ".go" {
			text = readText(t, path)
		}
		if generated.MatchString(text) {
			return nil
		}
		raw := false
		for i, line := range strings.Split(text, "\n") {
			inRaw := raw || strings.Contains(line, "`")
			raw = raw != (strings.Count(line, "`")%2 == 1)
			directive := strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "// ") // such as //sys
			if n := utf8.RuneCountInString(line); n > limit && !inRaw && !directive {
				t.Errorf("%s:%d has %d characters; wrap it at %d", path, i+1, n, limit)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
