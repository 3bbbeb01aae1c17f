// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Row is what docs/windows-proof.md says of a call to Windows or an assumption about it: a
// row of a table with the result, and a section with the rest. Its id stays when its text
// changes.
type Row struct {
	ID         string
	Facts      int    // how many facts of seamtest stand behind it
	Assumption string // the call or the assumption
	Proof      string // what proves it without Windows
	Check      string // what is left to check on Windows; empty if nothing is
	Result     string // what the check on Windows found
	line       int    // of the table, in the page, from 0
}

// columns are those of the page's tables of rows.
var columns = []string{"id", "facts", "on Windows"}

func (r Row) String() string {
	return fmt.Sprintf("| [%s](#%s) | %d | %s |", r.ID, r.ID, r.Facts, r.Result)
}

// parsePage returns the rows of the page.
func parsePage(text string) ([]Row, error) {
	var rows []Row
	var section, paragraph *string // of the row whose section this is; the row's part
	inTable := false
	find := func(id string) int { return slices.IndexFunc(rows, func(r Row) bool { return r.ID == id }) }
	for i, line := range strings.Split(text, "\n") {
		fail := func(format string, args ...any) ([]Row, error) {
			return nil, fmt.Errorf("line %d: %s", i+1, fmt.Sprintf(format, args...))
		}
		switch {
		case strings.HasPrefix(line, "#"):
			section, paragraph, inTable = nil, nil, false
			if id, ok := strings.CutPrefix(line, "### "); ok {
				if find(id) < 0 {
					return fail("the section %s has no row in a table before it", id)
				}
				section = &id
			}
			continue
		case !strings.HasPrefix(line, "|"):
			inTable = false
		default:
			cells := cellsOf(line)
			switch {
			case cells[0] == columns[0]:
				inTable = true
				if !slices.Equal(cells, columns) {
					return fail("the columns are %q, want %q", cells, columns)
				}
			case inTable && !strings.HasPrefix(cells[0], "---"):
				row := Row{line: i}
				if m := linkForm.FindStringSubmatch(cells[0]); len(cells) == len(columns) && m != nil && m[1] == m[2] &&
					find(m[1]) < 0 {
					row.ID, row.Result = m[1], cells[2]
				} else {
					return fail("%q isn't a row, or comes twice", line)
				}
				facts, err := strconv.Atoi(cells[1])
				if err != nil {
					return fail("%v", err)
				}
				row.Facts = facts
				rows = append(rows, row)
			}
			continue
		}
		if section == nil {
			continue
		}
		row := &rows[find(*section)]
		for prefix, part := range map[string]*string{"Assumption: ": &row.Assumption, "Proven by: ": &row.Proof,
			"Check: ": &row.Check} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				if *part != "" {
					return fail("%s has two of %q", *section, prefix)
				}
				paragraph, line = part, rest
			}
		}
		switch {
		case line == "":
			paragraph = nil
		case paragraph == nil:
			return fail("%q is no part of %s", line, *section)
		default:
			*paragraph = strings.TrimSpace(*paragraph + " " + line)
		}
	}
	for _, row := range rows {
		if row.Assumption == "" || row.Proof == "" {
			return nil, fmt.Errorf("the row %s has no section, or one without an assumption or a proof", row.ID)
		}
	}
	return rows, nil
}

var linkForm = regexp.MustCompile(`^\[([a-z0-9]+(?:-[a-z0-9]+)*)\]\(#([a-z0-9-]+)\)$`)

func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// Pattern names tests. The check of a row has patterns in backticks, which decide
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
		test := strings.Join(strings.Fields(m[2]+m[3]), "_")
		all = append(all, Pattern{m[1], strings.ReplaceAll(test, "…", "*")})
	}
	return all
}

// Matches reports whether the pattern names a test of a package.
func (p Pattern) Matches(test Test) bool {
	ok, err := path.Match(p.Test, test.Name)
	return err == nil && ok && (p.Package == "" || p.Package == test.Package)
}
