// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/pe"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unicode/utf16"
)

func TestVersionNumbers(t *testing.T) {
	for v, want := range map[string][4]uint16{
		"v1.20.300":               {1, 20, 300},
		"v1.2.3-rc.4":             {1, 2, 3},
		"v0.1.0-7-g0123abc-dirty": {0, 1, 0},
		"0123abc-dirty":           {},
		"unknown":                 {},
		"v65535.0.0":              {65535},
	} {
		if got, err := versionNumbers(v); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", v, got, err, want)
		}
	}
	if got, err := versionNumbers("v1.65536.0"); err == nil {
		t.Errorf("v1.65536.0: %v", got)
	}
}

func TestStamp(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			dir := t.TempDir()
			linked := filepath.Join(dir, "linked.exe")
			build := exec.Command("go", "build", "-ldflags=-s -w", "-o", linked, "./testdata/empty")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=windows", "GOARCH="+arch)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p := properties{version: "v1.2.3-rc.4", commit: "0123abc", description: "does nothing"}
			program, again := filepath.Join(dir, "made", "program.exe"), filepath.Join(dir, "again", "program.exe")
			for _, file := range []string{program, again} {
				if err := stamp(linked, file, p); err != nil {
					t.Fatal(err)
				}
			}
			stamped, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			if other, err := os.ReadFile(again); err != nil || !bytes.Equal(stamped, other) {
				t.Errorf("stamping again makes another file (%v)", err)
			}
			if _, err := buildinfo.ReadFile(program); err != nil {
				t.Errorf("the build information: %v", err)
			}
			wantResource(t, program, stamped)
		})
	}
}

// wantResource checks the version resource of TestStamp's program with what isn't
// of the library that has written it.
func wantResource(t *testing.T, program string, stamped []byte) {
	t.Helper()
	file, err := pe.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const resources = 2 // IMAGE_DIRECTORY_ENTRY_RESOURCE
	directory := file.OptionalHeader.(*pe.OptionalHeader64).DataDirectory[resources]
	section := file.Section(".rsrc")
	if section == nil || directory.VirtualAddress != section.VirtualAddress || directory.Size == 0 {
		t.Fatalf("resource directory %+v, section %+v", directory, section)
	}
	data, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	// VS_FIXEDFILEINFO: signature, structure version, file version, product version
	fixed := []byte{0xbd, 0x04, 0xef, 0xfe, 0, 0, 1, 0, 2, 0, 1, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 3, 0}
	if !bytes.Contains(data, fixed) {
		t.Error("the fixed file information isn't there")
	}
	for _, text := range []string{"v1.2.3-rc.4", "commit 0123abc", "does nothing", "program.exe", "CSI Proxy"} {
		var encoded []byte
		for _, unit := range append(utf16.Encode([]rune(text)), 0) {
			encoded = binary.LittleEndian.AppendUint16(encoded, unit)
		}
		if !bytes.Contains(data, encoded) {
			t.Errorf("%q isn't there", text)
		}
	}
}
