// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// quote is a row of a table of a page.
type quote struct {
	page       string
	head       string // the first cell of the table's head
	table, row string // in figures.txt; the title begins so
	// first is the first cell of the row on the page. Without it, that is as in figures.txt.
	first string
	// source is the file of which the page's table is made. It has the last cell too.
	source string
	// cells makes the other cells of those in figures.txt. Without it, they are the same.
	cells func(figures []string) []string
}

func quotes() (all []quote) {
	const readme, why = "README.md", "docs/why.md"
	for _, table := range []struct {
		head, of string
		rows     []string
	}{
		{"other disks", "other disks", []string{"StageVolume of a disk with data", "UnstageVolume", "ListVolumes",
			"ListDisks of one serial number"}},
		{"pods", "pods", []string{"UnstageVolume", "ListVolumes"}},
		{"volumes at once", "volumes at once", []string{"StageVolume of raw disks", "StageVolume of disks with data", "UnstageVolume"}},
	} {
		for _, row := range table.rows {
			all = append(all, quote{page: why, head: table.head, table: growthTitle + table.of, row: row})
		}
	}
	for _, disk := range []string{"a raw disk", "an offline disk with data"} {
		all = append(all, quote{page: why, head: "StageVolume of", table: stagingTitle, row: disk})
	}
	return append(all, quote{page: readme, source: "docs/facts.yaml", first: "a disk with data, staged", table: stagingTitle, row: "an offline disk with data",
		cells: func(figures []string) []string {
			number, ratio := figures[0], figures[3]
			calls := number + " calls"
			return []string{calls, calls, fmt.Sprintf("%s, or 1 call that takes %s times as long as the %s", calls, ratio, number)}
		}})
}

// quoteFigures compares what pages quote with the tables, or writes it.
func quoteFigures(t *testing.T, tables []table) {
	for _, q := range quotes() {
		var cells []string
		for _, table := range tables {
			if strings.HasPrefix(table.title, q.table) {
				cells = table.row(q.row).cells
			}
		}
		if q.cells != nil {
			cells = q.cells(cells)
		}
		path := filepath.Join("../../..", q.page)
		text, err := os.ReadFile(path)
		must(t, err)
		head := max(0, strings.Index(string(text), fmt.Sprintf("\n| %s |", q.head)))
		begin := fmt.Sprintf("\n| %s |", cmp.Or(q.first, q.row))
		at := strings.Index(string(text[head:]), begin)
		if at < 0 {
			t.Errorf("%s: no row %q, which quotes %s", q.page, cmp.Or(q.first, q.row), figuresFile)
			continue
		}
		before, after := text[:head+at+len(begin)], text[head+at+len(begin):]
		is, below, _ := strings.Cut(string(after), "\n")
		want := fmt.Sprintf(" %s |", strings.Join(cells, " | "))
		switch {
		case is == want:
		case *update:
			must(t, os.WriteFile(path, slices.Concat(before, []byte(want+"\n"+below)), 0o644))
			if q.source != "" {
				replaceCell(t, filepath.Join("../../..", q.source), cellsOf(strings.Trim(is, " |")), cells)
			}
		default:
			t.Errorf("%s: %q has%s\nbut in %s it has%s", q.page, cmp.Or(q.first, q.row), is, figuresFile, want)
		}
	}
}

// replaceCell replaces the last cell of a row in a file of which pages are made.
func replaceCell(t *testing.T, file string, was, cells []string) {
	text, err := os.ReadFile(file)
	must(t, err)
	old, now := was[len(was)-1], cells[len(cells)-1]
	if !strings.Contains(string(text), old) {
		t.Errorf("%s lacks %q", file, old)
	}
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, now)), 0o644))
}

// Times on the page are of one run each, which the text names as make bench prints it: by its commit and date.
func TestTimesNameTheirRun(t *testing.T) {
	page, err := os.ReadFile("../../../docs/why.md")
	must(t, err)
	run := regexp.MustCompile(`\scommit\s[0-9a-f]{8},\son\s[0-9]{4}-[0-9]{2}-[0-9]{2}`)
	for _, title := range []string{"Times", "Beside the published daemon"} {
		_, section, found := strings.Cut(string(page), "\n### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n##")
		if !found || !run.MatchString(section) {
			t.Errorf("docs/why.md: %q doesn't say like \"commit 0123abcd, on 2026-01-02\" which run has its times", title)
		}
	}
}
