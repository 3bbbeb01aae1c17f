// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command facts writes the tables about other projects into the pages, from docs/facts.yaml:
//
//	facts           writes them
//	facts -weeks 8  lists the facts that were read longer ago, and exits with 1 if there are any
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const file = "docs/facts.yaml"

// facts is what docs/facts.yaml has.
type facts struct {
	Sources map[string]source `json:"sources"`
	Tables  []table           `json:"tables"`
}

// source is where a fact was read.
type source struct {
	URL  string `json:"url"`
	At   string `json:"at"`   // the commit, the version, or the state of an issue
	Read string `json:"read"` // the day, as 2026-11-29
	// Unopened says that the source wasn't opened at the last check: Read is the day of an earlier one.
	Unopened bool `json:"unopened"`
}

// table is a table of a page, between two comments with its name. A table without columns is a list: each row has
// one cell.
type table struct {
	Page    string   `json:"page"`
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Rows    []row    `json:"rows"`
}

// row is a fact: what its cells claim rests on the sources that By names.
type row struct {
	By    []string `json:"by"`
	Cells []string `json:"cells"`
}

func main() {
	root := flag.String("root", "..", "the directory of the repository")
	weeks := flag.Int("weeks", 0, "list the facts that were read more than so many weeks ago, instead")
	flag.Parse()
	old, err := run(*root, *weeks, time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, "facts:", err)
		os.Exit(1)
	}
	if len(old) > 0 {
		fmt.Printf("read more than %d weeks ago; read them again, and correct %s:\n%s\n", *weeks, file, strings.Join(old, "\n"))
		os.Exit(1)
	}
}

// run writes the pages, or, with weeks, only returns the facts that are older.
func run(root string, weeks int, now time.Time) (old []string, err error) {
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	facts, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if weeks > 0 {
		return facts.readBefore(now.AddDate(0, 0, -7*weeks)), nil
	}
	for _, page := range facts.pages() {
		path := filepath.Join(root, page)
		before, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		after, err := facts.write(page, string(before))
		if err != nil {
			return nil, err
		}
		if after != string(before) {
			if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// parse reads docs/facts.yaml, and refuses facts without a source, and sources without a fact.
func parse(data []byte) (*facts, error) {
	var f facts
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return nil, err
	}
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for name, source := range f.Sources {
		if _, err := time.Parse(time.DateOnly, source.Read); err != nil {
			problem("source %s: read: %w", name, err)
		}
		if !strings.HasPrefix(source.URL, "https://") {
			problem("source %s: %q is no https URL", name, source.URL)
		}
		if source.At == "" {
			problem("source %s: say at which commit, version or state it was read", name)
		}
	}
	used, tables := map[string]bool{}, map[string]bool{}
	for _, table := range f.Tables {
		if tables[table.Name] || table.Name == "" || table.Page == "" {
			problem("table %q of page %q: give it a page, and a name that no other table has", table.Name, table.Page)
		}
		tables[table.Name] = true
		for _, row := range table.Rows {
			if len(row.Cells) != max(1, len(table.Columns)) {
				problem("table %s: %d cells for %d columns: %q", table.Name, len(row.Cells), len(table.Columns), row.Cells)
			}
			if len(row.By) == 0 {
				problem("table %s: no source for %q", table.Name, row.Cells)
			}
			for _, name := range row.By {
				used[name] = true
				if _, found := f.Sources[name]; !found {
					problem("table %s: no source has the name %q", table.Name, name)
				}
			}
		}
		cells := table.Columns
		for _, row := range table.Rows {
			cells = slices.Concat(cells, row.Cells)
		}
		for _, cell := range cells {
			if strings.ContainsAny(cell, "|\n") {
				problem("table %s: a cell with a | or more than one line: %q", table.Name, cell)
			}
		}
	}
	for name := range f.Sources {
		if !used[name] {
			problem("source %s: no row is by it", name)
		}
	}
	return &f, errors.Join(problems...)
}

// pages returns the pages with tables, each once.
func (f *facts) pages() []string {
	pages := map[string]bool{}
	for _, table := range f.Tables {
		pages[table.Page] = true
	}
	return slices.Sorted(maps.Keys(pages))
}

const (
	begin = "<!-- docs/facts.yaml: %s -->\n"
	end   = "<!-- end of %s -->\n"
)

// write returns the page's text with its tables as the facts have them.
func (f *facts) write(page, text string) (string, error) {
	tables := 0
	for _, table := range f.Tables {
		if table.Page != page {
			continue
		}
		tables++
		before, rest, found := strings.Cut(text, fmt.Sprintf(begin, table.Name))
		_, after, ended := strings.Cut(rest, fmt.Sprintf(end, table.Name))
		if !found || !ended {
			return "", fmt.Errorf("%s: the table %s of %s has no place: write %s%s", page, table.Name, file,
				fmt.Sprintf(begin, table.Name), fmt.Sprintf(end, table.Name))
		}
		text = before + table.text() + after
	}
	marker, _, _ := strings.Cut(begin, "%s")
	if places := strings.Count(text, marker); places != tables {
		return "", fmt.Errorf("%s has places for %d tables, and %s has %d tables for it", page, places, file, tables)
	}
	return text, nil
}

// text returns the table or list in Markdown, with the comments around it.
func (t *table) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, begin, t.Name)
	line := func(cells []string) {
		for _, cell := range cells {
			text.WriteString("|")
			if cell != "" {
				text.WriteString(" " + cell)
			}
			text.WriteString(" ")
		}
		text.WriteString("|\n")
	}
	if len(t.Columns) > 0 {
		line(t.Columns)
		text.WriteString(strings.Repeat("|---", len(t.Columns)) + "|\n")
	}
	for _, row := range t.Rows {
		if len(t.Columns) > 0 {
			line(row.Cells)
		} else {
			text.WriteString("- " + row.Cells[0] + "\n")
		}
	}
	fmt.Fprintf(&text, end, t.Name)
	return text.String()
}

// readBefore lists the sources that were read before a day, the oldest first, with the rows that rest on them.
func (f *facts) readBefore(day time.Time) (list []string) {
	names := slices.SortedFunc(maps.Keys(f.Sources), func(a, b string) int {
		return strings.Compare(f.Sources[a].Read+a, f.Sources[b].Read+b)
	})
	for _, name := range names {
		source := f.Sources[name]
		if source.Read >= day.Format(time.DateOnly) {
			continue
		}
		unopened := ""
		if source.Unopened {
			unopened = ", and not opened at the last check"
		}
		list = append(list, fmt.Sprintf("%s  %s  %s at %s%s", source.Read, name, source.URL, source.At, unopened))
		for _, table := range f.Tables {
			for _, row := range table.Rows {
				if slices.Contains(row.By, name) {
					list = append(list, fmt.Sprintf("            %s, %s: %s", table.Page, table.Name, row.Cells[0]))
				}
			}
		}
	}
	return list
}
