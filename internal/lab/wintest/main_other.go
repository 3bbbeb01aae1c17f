// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: wintest page report…\n\nThis system isn't Windows: the program writes reports of "+
			"runs on Windows into the page.")
		os.Exit(2)
	}
	if err := update(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "csi-proxy-wintest:", err)
		os.Exit(1)
	}
}

func update(page string, files []string) error {
	var reports []Report
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
	updated, err := updatePage(string(old), reports)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

func read(name string) (r Report, err error) {
	f, err := os.Open(name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r.Head, r.Lines, err = readReport(f)
	return r, err
}
