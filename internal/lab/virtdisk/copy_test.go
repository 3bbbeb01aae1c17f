// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package virtdisk

import (
	"bytes"
	"os"
	"testing"
)

// The module of the tests on Windows has the same file.
func TestCopy(t *testing.T) {
	ours, err := os.ReadFile("virtdisk_windows.go")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile("../../../test/windows/virtdisk/virtdisk_windows.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(ours, copied) {
		t.Error("test/windows/virtdisk has another file: run make generate")
	}
}
