// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// Print compiles the C sources beside it for Windows and prints what they state:
// layout.txt has sizes, offsets and values, samples.txt has structures byte for byte.
//
//	go -C internal/windows/win/testdata/abi run print.go
//
// It needs x86_64-w64-mingw32-gcc, of Debian's gcc-mingw-w64-x86-64-win32, or another
// compiler in CC: "clang --target=aarch64-w64-mingw32 -isystem
// /usr/share/mingw-w64/include" prints the same for arm64.
package main

import (
	"bytes"
	"cmp"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	log.SetFlags(0)
	sources, err := filepath.Glob("*.c")
	if err != nil || len(sources) == 0 {
		log.Fatal("no C sources here: ", err)
	}
	dir, err := os.MkdirTemp("", "abi")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var layout, samples bytes.Buffer
	for _, source := range sources {
		object := filepath.Join(dir, source+".o")
		compiler := strings.Fields(cmp.Or(os.Getenv("CC"), "x86_64-w64-mingw32-gcc"))
		cmd := exec.Command(compiler[0], append(compiler[1:], "-Wall", "-Werror", "-c", "-o", object, source)...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			log.Fatalf("%s: %v", cmd, err)
		}
		if err := describe(object, &layout, &samples); err != nil {
			log.Fatalf("%s: %v", source, err)
		}
	}
	for name, text := range map[string][]byte{"layout.txt": layout.Bytes(), "samples.txt": samples.Bytes()} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// describe prints the lines of an object file and the data that they name.
func describe(object string, layout, samples *bytes.Buffer) error {
	f, err := pe.Open(object)
	if err != nil {
		return err
	}
	defer f.Close()
	section := func(name string) ([]byte, error) {
		s := f.Section(name)
		if s == nil {
			return nil, fmt.Errorf("no section %s", name)
		}
		return s.Data()
	}
	lines, err := section("lines")
	if err != nil {
		return err
	}
	const textSize, lineSize = 88, 96
	for ; len(lines) >= lineSize; lines = lines[lineSize:] {
		text, _, _ := bytes.Cut(lines[:textSize], []byte{0})
		number := binary.LittleEndian.Uint64(lines[textSize:])
		kind, name, _ := strings.Cut(string(text), " ")
		data := map[string]string{"sample": "sample." + name, "guid": ".rdata$" + name}[kind]
		switch {
		case kind == "": // the section is padded
		case data != "":
			b, err := section(data)
			if err != nil {
				return err
			}
			if uint64(len(b)) < number {
				return fmt.Errorf("%s: %d of %d bytes", name, len(b), number)
			}
			fmt.Fprintf(samples, "%s %x\n", name, b[:number])
		case kind == "value":
			fmt.Fprintf(layout, "%s %#x\n", text, number)
		default:
			fmt.Fprintf(layout, "%s %d\n", text, number)
		}
	}
	return nil
}
