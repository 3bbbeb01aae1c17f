// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pack appends files to a program as a ZIP archive, which the program finds at
// its own end:
//
//	pack program.exe name=file… >packed.exe
//
// The same files give the same bytes.
package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pack program name=file…")
		os.Exit(2)
	}
	if err := pack(os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(out io.Writer, program string, files []string) error {
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if _, err := out.Write(b); err != nil {
		return err
	}
	archive := zip.NewWriter(out)
	archive.SetOffset(int64(len(b)))
	for _, file := range files {
		name, source, ok := strings.Cut(file, "=")
		if !ok {
			return fmt.Errorf("%s is not name=file", file)
		}
		if err := add(archive, name, source); err != nil {
			return err
		}
	}
	return archive.Close()
}

// add adds a file without its time.
func add(archive *zip.Writer, name, source string) (err error) {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
