// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

func TestDescribe(t *testing.T) {
	got := describe(&debug.BuildInfo{
		GoVersion: "go1.26.0",
		Path:      "example.org/Main/cmd/program",
		Main:      debug.Module{Path: "example.org/Main", Version: "(devel)"},
		Deps: []*debug.Module{
			{Path: "example.org/A", Version: "v1.0.0"},
			{Path: "example.org/A", Version: "v1.0.0"}, // of a packed program
			{Path: "example.org/b", Version: "v2.0.0",
				Replace: &debug.Module{Path: "example.org/c", Version: "v3.0.0+incompatible"}},
		},
	}, "v1.2.3", sha256.Sum256(nil))

	main := got.Metadata.Component
	if main.Name != "program" || main.Version != "v1.2.3" ||
		main.PackageURL != "pkg:golang/example.org/main@v1.2.3#cmd/program" {
		t.Errorf("the program is %+v", main)
	}
	var purls []string
	for _, c := range *got.Components {
		purls = append(purls, c.PackageURL)
	}
	want := []string{"pkg:golang/std@1.26.0", "pkg:golang/example.org/a@v1.0.0",
		"pkg:golang/example.org/c@v3.0.0%2Bincompatible"}
	if !slices.Equal(purls, want) {
		t.Errorf("the components are %q, want %q", purls, want)
	}
	if d := *got.Dependencies; len(d) != 1 || d[0].Ref != main.BOMRef || !slices.Equal(*d[0].Dependencies, want) {
		t.Errorf("the dependencies are %+v", d)
	}
}

// The program is this one.
func TestWrite(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, again bytes.Buffer
	for _, b := range []*bytes.Buffer{&out, &again} {
		if err := write(b, program, nil, "v1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Error("writing again gives another text")
	}
	again.Reset()
	if err := write(&again, program, []string{program}, "v1.2.3"); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("a program with itself packed into it has other modules (%v)", err)
	}
	list := filepath.Join(t.TempDir(), "tests.modules")
	if err := os.WriteFile(list, []byte("example.org/listed v1.2.3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again.Reset()
	if err := write(&again, program, []string{list}, "v1.2.3"); err != nil ||
		!strings.Contains(again.String(), "pkg:golang/example.org/listed@v1.2.3") {
		t.Errorf("the listed module is missing (%v)", err)
	}
	var got cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(&out, cyclonedx.BOMFileFormatJSON).Decode(&got); err != nil {
		t.Fatal(err)
	}
	contents, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(contents)
	if hashes := *got.Metadata.Component.Hashes; len(hashes) != 1 || hashes[0].Value != hex.EncodeToString(sum[:]) {
		t.Errorf("the hashes are %v", hashes)
	}
	if len(*got.Components) == 0 || (*got.Components)[0].Version != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("the components are %v", *got.Components)
	}
}
