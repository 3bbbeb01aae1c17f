// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Row is a belief about Windows: a row of a table of docs/windows-proof.md. Its id stays when its text
// changes.
type Row struct {
	ID    string
	Tests []string // patterns: see matches
	Quick []string // those of Tests that -quick runs
}

// columns are those of the page's tables of beliefs.
var columns = []string{"id", "belief", "evidence", "what would refute it", "test"}

// parsePage returns the rows of the page.
func parsePage(text string) (rows []Row, err error) {
	inTable := false
	for i, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := cellsOf(line)
		switch {
		case cells[0] == columns[0]:
			inTable = slices.Equal(cells, columns)
		case !inTable || strings.HasPrefix(cells[0], "---"):
		case len(cells) != len(columns) || !idForm.MatchString(cells[0]) || cells[1] == "" || cells[2] == "",
			slices.ContainsFunc(rows, func(r Row) bool { return r.ID == cells[0] }):
			return nil, fmt.Errorf("line %d: %q isn't a row with an id, a belief and its evidence, or comes twice", i+1, line)
		default:
			tests, quick := patternsIn(cells[4])
			rows = append(rows, Row{cells[0], tests, quick})
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("the page has no table of beliefs")
	}
	return rows, nil
}

var idForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

var patternForm = regexp.MustCompile("`((?:[a-z][a-z0-9/]*\\.)?Test[^`]*)`(…?)( \\(quick\\))?")

// patternsIn returns the patterns in backticks in a text, which decide the result of a row. Quick are the ones that -quick runs:
//
//	`TestName`               the tests of this name
//	`internal/x.TestName`    a test of this package
//	`TestName/step`          a part of a test
//	`TestName/*/step`        the step of all parts
//	`TestName`…              all tests whose names begin so
//	`TestName` (quick)       -quick runs it, too
func patternsIn(text string) (patterns, quick []string) {
	for _, m := range patternForm.FindAllStringSubmatch(text, -1) {
		// Package testing has underscores for spaces.
		pattern := strings.Join(strings.Fields(m[1]+m[2]), "_")
		pattern = strings.ReplaceAll(pattern, "…", "*")
		patterns = append(patterns, pattern)
		if m[3] != "" {
			quick = append(quick, pattern)
		}
	}
	return patterns, quick
}

// quickRows returns the rows that have tests for -quick, reduced to these tests.
func quickRows(rows []Row) (quick []Row) {
	for _, row := range rows {
		if len(row.Quick) > 0 {
			quick = append(quick, Row{row.ID, row.Quick, row.Quick})
		}
	}
	return quick
}

// runFlag returns the value of -test.run for the tests of rows. Packages are left out.
func runFlag(rows []Row) string {
	var all []string
	for _, row := range rows {
		for _, pattern := range row.Tests {
			parts := strings.Split(pattern[strings.Index(pattern, "Test"):], "/")
			for i, part := range parts {
				parts[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, ".*") + "$"
			}
			all = append(all, strings.Join(parts, "/"))
		}
	}
	return strings.Join(all, "|")
}

// matches reports whether a pattern names a test, which has its package.
func matches(pattern, test string) bool {
	if strings.HasPrefix(pattern, "Test") {
		_, test, _ = strings.Cut(test, ".")
	}
	ok, err := path.Match(pattern, test)
	return err == nil && ok
}
