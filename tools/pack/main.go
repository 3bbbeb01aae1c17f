// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pack makes a ZIP archive, or appends one to a program, which finds the files at
// its own end:
//
//	pack [-created seconds] name=file… >archive.zip
//	pack -program program.exe name=file… >packed.exe
//
// The same files and flags give the same bytes.
package main

import (
	"archive/zip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	program := flag.String("program", "", "the program that the archive is appended to")
	created := flag.Int64("created", 0, "the time of the files, in seconds since 1970; 0 for none")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: pack [flag]... name=file…")
		os.Exit(2)
	}
	if err := pack(os.Stdout, *program, *created, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(out io.Writer, program string, created int64, files []string) error {
	archive := zip.NewWriter(out)
	if program != "" {
		b, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
		archive.SetOffset(int64(len(b)))
	}
	for _, file := range files {
		name, source, ok := strings.Cut(file, "=")
		if !ok {
			return fmt.Errorf("%s is not name=file", file)
		}
		if err := add(archive, name, source, created); err != nil {
			return err
		}
	}
	return archive.Close()
}

// add adds a file. Of its mode, only whether it is a program counts.
func add(archive *zip.Writer, name, source string, created int64) (err error) {
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header := &zip.FileHeader{Name: name, Method: zip.Deflate}
	if header.SetMode(0o644); info.Mode()&0o111 != 0 {
		header.SetMode(0o755)
	}
	if created != 0 {
		header.Modified = time.Unix(created, 0).UTC()
	}
	w, err := archive.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
