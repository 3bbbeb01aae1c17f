// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What is copied from here has to compile elsewhere. Go lets this module import the
// product's internal packages, since its path begins with the product's.
func TestNothingInternalIsImported(t *testing.T) {
	const product = "github.com/csi-proxy/csi-proxy/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{join .Imports "\n"}}{{"\n"}}{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for imported := range strings.Lines(string(out)) {
		if strings.HasPrefix(imported, product+"internal/") {
			t.Errorf("imports %s", imported)
		}
	}
}
