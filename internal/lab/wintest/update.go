// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// Report is the report of one machine.
type Report struct {
	Head  Head
	Lines []Line
}

// maxSeen limits how much of what was seen the page quotes. The report has all of it.
const maxSeen = 200

// updatePage writes the results of reports into the last column of the page. It replaces
// all results of rows with tests, so the reports of all versions of Windows must be
// given together. Rows that are checked by hand don't change.
func updatePage(text string, reports []Report) (string, error) {
	rows, err := parsePage(text)
	if err != nil {
		return "", err
	}
	for _, r := range reports {
		if r.Head.Wine != "" || r.Head.Windows == "" {
			return "", fmt.Errorf("the report is of Wine %s, which proves nothing about Windows", r.Head.Wine)
		}
		for _, line := range r.Lines {
			if !slices.ContainsFunc(rows, func(row Row) bool { return row.ID == line.Row }) {
				return "", fmt.Errorf("the report has the row %s, which the page doesn't have", line.Row)
			}
		}
	}
	lines := strings.Split(text, "\n")
	for _, row := range rows {
		if len(Patterns(row.Check)) == 0 {
			continue
		}
		row.Result = resultOf(row.ID, reports)
		lines[row.line] = row.String()
	}
	return strings.Join(lines, "\n"), nil
}

// resultOf is the result of a row in all reports: each result with its versions of
// Windows, and what was seen if the row is refuted.
func resultOf(id string, reports []Report) string {
	versions := map[string][]string{}
	var seen []string
	for _, r := range reports {
		for _, line := range r.Lines {
			if line.Row != id {
				continue
			}
			versions[line.Result] = append(versions[line.Result], r.Head.Windows)
			if line.Result == Refuted {
				seen = append(seen, line.Seen...)
			}
		}
	}
	var parts []string
	for _, result := range []string{Refuted, Proven} {
		if len(versions[result]) > 0 {
			parts = append(parts, result+" on "+strings.Join(versions[result], ", "))
		}
	}
	if len(parts) == 0 {
		return NotRun
	}
	if len(versions[NotRun]) > 0 {
		parts = append(parts, NotRun+" on "+strings.Join(versions[NotRun], ", "))
	}
	text := strings.Join(parts, "; ")
	if len(seen) > 0 {
		text += ": " + inCell(seen[0])
	}
	return text
}

// inCell makes a text safe for a cell of a table.
func inCell(text string) string {
	text = strings.NewReplacer("|", "/", "`", "'", "<", "‹", ">", "›").Replace(text)
	if runes := []rune(text); len(runes) > maxSeen {
		text = string(runes[:maxSeen]) + "…"
	}
	return text
}
