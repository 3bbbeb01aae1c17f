// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
)

// repository is the path of its root.
const repository = "../../.."

// Each test that a belief names is in csi-proxy-wintest.
func TestBeliefsHaveTheirTests(t *testing.T) {
	text, err := os.ReadFile(repository + "/docs/windows-proof.md")
	must(t, err)
	rows, err := parsePage(string(text))
	must(t, err)
	makefile, err := os.ReadFile(repository + "/deploy/packaging/release.mk")
	must(t, err)
	m := regexp.MustCompile(`(?m)^WINTEST_PACKAGES = (.*)$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("deploy/packaging/release.mk has no WINTEST_PACKAGES")
	}
	var tests []string
	for _, pkg := range append(strings.Fields(string(m[1])), "test/windows") {
		files, err := filepath.Glob(filepath.Join(repository, pkg, "*_test.go"))
		must(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			must(t, err)
			for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
				tests = append(tests, pkg+"."+string(f[1]))
			}
		}
	}
	for _, row := range rows {
		for _, pattern := range row.Tests {
			whole := regexp.MustCompile(`^.*?Test[^/]*`).FindString(pattern) // without the part
			if !slices.ContainsFunc(tests, func(test string) bool { return matches(whole, test) }) {
				t.Errorf("the belief %s names %s, which csi-proxy-wintest lacks", row.ID, pattern)
			}
		}
	}
}

// What -quick tests on its disk stands in the page, each in the row that has its name.
func TestQuickBeliefsHaveTheirRows(t *testing.T) {
	text, err := os.ReadFile(repository + "/docs/windows-proof.md")
	must(t, err)
	rows, err := parsePage(string(text))
	must(t, err)
	var named []string
	for _, row := range quickRows(rows) {
		for _, pattern := range row.Tests {
			if part, ok := strings.CutPrefix(pattern, "TestGuessQuick/"); ok {
				named = append(named, part)
				if part != row.ID {
					t.Errorf("the row %s names %s", row.ID, pattern)
				}
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(seamtest.QuickRows())), slices.Sorted(slices.Values(named))); diff != "" {
		t.Errorf("rows of the page (-tests +page):\n%s", diff)
	}
}

func TestRunFlag(t *testing.T) {
	rows := []Row{{Tests: []string{"TestA/b/*/c.d", "x/y.TestE"}}, {Tests: []string{"TestF*"}}}
	want := `^TestA$/^b$/^.*$/^c\.d$|^TestE$|^TestF.*$`
	if got := runFlag(rows); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestParsePage(t *testing.T) {
	const head = "| id | belief | evidence | what would refute it | test |\n|---|---|---|---|---|\n"
	const row = "| a-1 | b | c | d | `TestE`, `x/y.TestF/g h`… (quick) |\n"
	rows, err := parsePage("# P\n\n" + head + row + "\n| id | other |\n|---|---|\n| x | y |\n\n" + head + "| b | b | c | | |\n")
	if err != nil || len(rows) != 2 || rows[0].ID != "a-1" || len(rows[0].Tests) != 2 ||
		rows[0].Tests[1] != "x/y.TestF/g_h*" || !slices.Equal(rows[0].Quick, rows[0].Tests[1:]) || rows[1].Tests != nil {
		t.Errorf("%+v, %v", rows, err)
	}
	for name, page := range map[string]string{
		"cells":       head + "| a | b | c | d |\n",
		"id":          head + "| A b | b | c | d | e |\n",
		"no belief":   head + "| a | | c | d | e |\n",
		"no evidence": head + "| a | b | | d | e |\n",
		"twice":       head + row + row,
		"twice far":   head + row + "\n" + head + row,
		"no table":    "| id | b |\n|---|---|\n| a | b |\n",
	} {
		if rows, err := parsePage(page); err == nil {
			t.Errorf("%s: %+v, want an error", name, rows)
		}
	}
}
