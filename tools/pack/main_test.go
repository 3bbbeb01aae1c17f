// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestPack(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"program": "MZ program", "a": "first", "b": "second"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var packed [2]bytes.Buffer
	for i := range packed {
		if err := pack(&packed[i], filepath.Join(dir, "program"), 0,
			[]string{"x/a=" + filepath.Join(dir, "a"), "b=" + filepath.Join(dir, "b")}); err != nil {
			t.Fatal(err)
		}
	}
	b := packed[0].Bytes()
	if !bytes.Equal(b, packed[1].Bytes()) || !bytes.HasPrefix(b, []byte("MZ program")) {
		t.Error("the packed program differs from run to run, or doesn't begin with the program")
	}
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"x/a": "first", "b": "second"} {
		f, err := r.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

// An archive of its own has a time and the modes of programs.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"program": 0o700, "text": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	if err := pack(&packed, "", 1767225600,
		[]string{"program=" + filepath.Join(dir, "program"), "text=" + filepath.Join(dir, "text")}); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.File {
		want := map[string]os.FileMode{"program": 0o755, "text": 0o644}[f.Name]
		if f.Mode() != want || f.Modified.Unix() != 1767225600 {
			t.Errorf("%s has mode %v and time %v", f.Name, f.Mode(), f.Modified)
		}
	}
}
