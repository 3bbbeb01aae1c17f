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
			rows = append(rows, Row{cells[0], patternsIn(cells[4])})
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

var patternForm = regexp.MustCompile("`((?:[a-z][a-z0-9/]*\\.)?Test[^`]*)`(…?)")

// patternsIn returns the patterns in backticks in a text, which decide the result of a row:
//
//	`TestName`               the tests of this name
//	`internal/x.TestName`    a test of this package
//	`TestName/step`          a part of a test
//	`TestName/*/step`        the step of all parts
//	`TestName`…              all tests whose names begin so
func patternsIn(text string) (patterns []string) {
	for _, m := range patternForm.FindAllStringSubmatch(text, -1) {
		// Package testing has underscores for spaces.
		pattern := strings.Join(strings.Fields(m[1]+m[2]), "_")
		patterns = append(patterns, strings.ReplaceAll(pattern, "…", "*"))
	}
	return patterns
}

// matches reports whether a pattern names a test, which has its package.
func matches(pattern, test string) bool {
	if strings.HasPrefix(pattern, "Test") {
		_, test, _ = strings.Cut(test, ".")
	}
	ok, err := path.Match(pattern, test)
	return err == nil && ok
}
