// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// assumptions is what CSI Proxy assumes about Windows.
//
//go:embed assumptions.txt
var assumptions string

// Row is an assumption about Windows: a paragraph of assumptions.txt. Its id stays when its text changes.
type Row struct {
	ID    string
	Tests []string // patterns: see matches
	Quick []string // those of Tests that -quick runs
}

// parseAssumptions returns the rows of a text in the form of assumptions.txt. Each paragraph begins with an id. Its
// fields follow, one a line; indented lines continue a field.
func parseAssumptions(text string) (rows []Row, err error) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraph = strings.TrimSpace(paragraph)
		if paragraph == "" || strings.HasPrefix(paragraph, "#") || strings.HasPrefix(paragraph, "== ") {
			continue
		}
		lines := strings.Split(strings.ReplaceAll(paragraph, "\n    ", " "), "\n")
		id, fields := lines[0], map[string]string{}
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			if !slices.Contains(fieldNames, name) || value == "" || fields[name] != "" {
				return nil, fmt.Errorf("assumption %q: the line %q is no field, or comes twice", id, line)
			}
			fields[name] = value
		}
		if !idForm.MatchString(id) || fields["assumption"] == "" || fields["evidence"] == "" {
			return nil, fmt.Errorf("assumption %q has no valid id, no text or no evidence", id)
		}
		if slices.ContainsFunc(rows, func(r Row) bool { return r.ID == id }) {
			return nil, fmt.Errorf("assumption %q comes twice", id)
		}
		tests, quick := patternsIn(fields["test"])
		rows = append(rows, Row{id, tests, quick})
	}
	if len(rows) == 0 {
		return nil, errors.New("the text has no assumptions")
	}
	return rows, nil
}

var fieldNames = []string{"assumption", "evidence", "refuted by", "test"}

var idForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

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
