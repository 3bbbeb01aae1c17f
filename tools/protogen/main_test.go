// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is checked in is what the generator makes of the .proto files.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := generate(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	// The descriptors, and the pages of the reference.
	if want := 1 + len(pages) + len(goVersions) + len(controlAPIs); len(files) != want {
		t.Errorf("%d files generated, want %d", len(files), want)
	}
	for name, content := range files {
		checkedIn, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(checkedIn, content) {
			t.Errorf("%s differs from what is generated now", name)
		}
	}
	stale, err := staleFiles(root, files)
	if err != nil {
		t.Fatal(err)
	}
	if len(stale) > 0 {
		t.Errorf("no longer generated: %q", stale)
	}
}

// A link to a heading of a page of the reference leads to one place.
func TestDistinct(t *testing.T) {
	if err := distinct("# Page\n\n## disk\n\n### Rescan\n\nRescan rescans.\n"); err != nil {
		t.Error(err)
	}
	if distinct("## disk\n\n### Rescan\n\n### rescan\n") == nil {
		t.Error("two headings that have one name in links are no error")
	}
}
