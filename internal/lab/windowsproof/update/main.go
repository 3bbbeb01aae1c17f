// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command update writes reports of runs on Windows into docs/windows-proof.md:
//
//	update docs/windows-proof.md report…
//
// csi-proxy-wintest writes the reports. Give those of all versions of Windows together.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/csi-proxy/csi-proxy/internal/lab/windowsproof"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: update page report…")
		os.Exit(2)
	}
	if err := update(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "update:", err)
		os.Exit(1)
	}
}

func update(page string, files []string) error {
	var reports []windowsproof.Report
	for _, name := range files {
		r, err := read(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		reports = append(reports, r)
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	updated, err := windowsproof.Update(string(old), reports)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

func read(name string) (r windowsproof.Report, err error) {
	f, err := os.Open(name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r.Head, r.Lines, err = windowsproof.ReadReport(f)
	return r, err
}
