// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
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
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		r, err := readReport(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		reports = append(reports, r)
	}
	rows, err := parseAssumptions(assumptions)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	updated, err := updatePage(string(old), rows, reports)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

// results begins the last section of the page, once there are any.
const results = "\n## Results on Windows\n"

// updatePage writes the results of reports to the end of the page, in the place of those before: the
// reports of all versions of Windows must be given together.
func updatePage(text string, rows []Row, reports []Report) (string, error) {
	var table strings.Builder
	for _, r := range reports {
		if r.Head.Wine != "" || r.Head.Windows == "" {
			return "", fmt.Errorf("the report is of Wine %s, which proves nothing about Windows", r.Head.Wine)
		}
		for _, line := range r.Lines {
			if !slices.ContainsFunc(rows, func(row Row) bool { return row.ID == line.Row }) {
				return "", fmt.Errorf("the report has the row %s, which assumptions.txt doesn't have", line.Row)
			}
		}
	}
	for _, row := range rows {
		if result := resultOf(row.ID, reports); result != "" {
			fmt.Fprintf(&table, "| %s | %s |\n", row.ID, result)
		}
	}
	text, _, _ = strings.Cut(text, results)
	return text + results + "\n| id | on Windows |\n|---|---|\n" + table.String(), nil
}

// resultOf is the result of a row in all reports, each with its versions of Windows, and what was seen
// if the row is refuted. It is empty if no test of the row ran.
func resultOf(id string, reports []Report) string {
	versions := map[string][]string{}
	seen := ""
	for _, r := range reports {
		for _, line := range r.Lines {
			if line.Row != id {
				continue
			}
			versions[line.Result] = append(versions[line.Result], r.Head.Windows)
			if line.Result == Refuted && seen == "" {
				seen = ": " + inCell(strings.Join(line.Seen[:min(1, len(line.Seen))], ""))
			}
		}
	}
	var parts []string
	for _, result := range []string{Refuted, Proven, NotRun} {
		if len(versions[result]) > 0 && (result != NotRun || len(parts) > 0) {
			parts = append(parts, result+" on "+strings.Join(versions[result], ", "))
		}
	}
	return strings.Join(parts, "; ") + seen
}
