// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy_test

import (
	"os"
	"path/filepath"
	"testing"
)

// copies are the files of the product that modules of tests have, too. These modules need the published
// client with its old libraries, so they can't import the product. They have no links, which Git for
// Windows doesn't make by default.
var copies = map[string][]string{
	"internal/lab/conformance/drivers/disks.go":   {"test/windows/drivers"},
	"internal/lab/conformance/drivers/drivers.go": {"test/windows/drivers"},
	"internal/lab/conformance/drivers/names.go":   {"test/windows/drivers"},
	"internal/lab/virtdisk/virtdisk_windows.go":   {"test/windows/virtdisk"},
	"NOTICE": {"driver/compat/csi-proxy/v2"}, // a module takes the licence of its repository along, and no more
}

// Each copy is as its original is. -update copies them.
func TestCopies(t *testing.T) {
	for original, directories := range copies {
		want := readText(t, original)
		for _, directory := range directories {
			path := filepath.Join(directory, filepath.Base(original))
			if *update {
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || readText(t, path) != want {
				t.Errorf("%s isn't a copy of %s (%v): go test . -run TestCopies -update", path, original, err)
			}
		}
	}
}
