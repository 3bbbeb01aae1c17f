// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Row is a row of docs/windows-proof.md about a call to Windows or an assumption about it.
// Its id stays when its text changes.
type Row struct {
	ID         string
	Assumption string // the call or the assumption
	Proof      string // what proves it without Windows
	Check      string // what is left to check on Windows; empty if nothing is
	Result     string // what the check on Windows found
	line       int    // in the page, from 0
}

// columns are those of the page's tables of rows.
var columns = []string{"id", "call or assumption", "proven by", "what is left, and the check on Windows", "on Windows"}

// parsePage returns the rows of the page.
func parsePage(text string) ([]Row, error) {
	var rows []Row
	seen := map[string]bool{}
	inTable := false
	for i, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := cellsOf(line)
		if cells[0] == columns[0] {
			inTable = true
			if strings.Join(cells, "|") != strings.Join(columns, "|") {
				return nil, fmt.Errorf("line %d: the columns are %q, want %q", i+1, cells, columns)
			}
			continue
		}
		if !inTable || strings.HasPrefix(cells[0], "---") {
			continue
		}
		if len(cells) != len(columns) {
			return nil, fmt.Errorf("line %d: the row has %d cells, want %d", i+1, len(cells), len(columns))
		}
		row := Row{cells[0], cells[1], cells[2], cells[3], cells[4], i}
		if !idForm.MatchString(row.ID) || seen[row.ID] {
			return nil, fmt.Errorf("line %d: %q isn't a valid id, or another row has it", i+1, row.ID)
		}
		seen[row.ID] = true
		rows = append(rows, row)
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

// Pattern names tests. The column with the check has patterns in backticks, which decide
// the result of the row:
//
//	`TestName`               a test, whose name only one package has
//	`internal/x.TestName`    a test of one of the packages that have this name
//	`TestName/step`          a part of a test
//	`TestName/*/step`        the step of all parts
//	`TestName…`              all tests whose names begin so
type Pattern struct {
	Package string // its directory in the repository; empty for the one that has the test
	Test    string // for path.Match, with underscores for spaces as package testing has them
}

func (p Pattern) String() string {
	if p.Package == "" {
		return p.Test
	}
	return p.Package + "." + p.Test
}

var patternForm = regexp.MustCompile("`(?:([a-z][a-z0-9/]*)\\.)?(Test[^`]*)`(…?)")

// Patterns returns the tests that a text names.
func Patterns(text string) []Pattern {
	var all []Pattern
	for _, m := range patternForm.FindAllStringSubmatch(text, -1) {
		test := strings.ReplaceAll(m[2]+m[3], " ", "_")
		all = append(all, Pattern{m[1], strings.ReplaceAll(test, "…", "*")})
	}
	return all
}

// Matches reports whether the pattern names a test of a package.
func (p Pattern) Matches(test Test) bool {
	ok, err := path.Match(p.Test, test.Name)
	return err == nil && ok && (p.Package == "" || p.Package == test.Package)
}
