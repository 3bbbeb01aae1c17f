// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"std/LICENSE":       "the licence of Go\n",
		"std/PATENTS":       "about patents",
		"a/LICENSE.txt":     "licence a",
		"a/licenses.go":     "package a",
		"b/COPYING":         "licence b",
		"b/NOTICE":          "notice b",
		"unlicensed/NOTICE": "all rights",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	directory := func(module string) (string, error) { return filepath.Join(root, module), nil }

	var out bytes.Buffer
	b, a := &debug.Module{Path: "b", Version: "v1.0.0"}, &debug.Module{Path: "a", Version: "v2.0.0"}
	if err := write(&out, []*debug.Module{b, a, b}, directory); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, part := range strings.Split(out.String(), strings.Repeat("=", 80)+"\n")[1:] {
		order = append(order, strings.TrimSpace(part))
	}
	want := []string{"a v2.0.0", "licence a", "b v1.0.0", "licence b\n\nnotice b", "Go and its standard library",
		"the licence of Go\n\nabout patents"}
	if strings.Join(order, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", order, want)
	}

	if err := write(&out, []*debug.Module{{Path: "unlicensed"}}, directory); err == nil ||
		!strings.Contains(err.Error(), "unlicensed") {
		t.Errorf("of a module without a licence: %v", err)
	}
}
