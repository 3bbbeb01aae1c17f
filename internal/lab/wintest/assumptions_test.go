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

// Each test that an assumption names is in csi-proxy-wintest.
func TestAssumptionsHaveTheirTests(t *testing.T) {
	rows, err := parseAssumptions(assumptions)
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
				t.Errorf("the assumption %s names %s, which csi-proxy-wintest lacks", row.ID, pattern)
			}
		}
	}
}

// What -quick tests on its disk stands in assumptions.txt, each in the assumption that has its name.
func TestQuickAssumptionsHaveTheirRows(t *testing.T) {
	rows, err := parseAssumptions(assumptions)
	must(t, err)
	var named []string
	for _, row := range quickRows(rows) {
		for _, pattern := range row.Tests {
			if part, ok := strings.CutPrefix(pattern, "TestGuessQuick/"); ok {
				named = append(named, part)
				if part != row.ID {
					t.Errorf("the assumption %s names %s", row.ID, pattern)
				}
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(seamtest.QuickRows())), slices.Sorted(slices.Values(named))); diff != "" {
		t.Errorf("assumptions (-tests +assumptions.txt):\n%s", diff)
	}
}

// The ids that the page names are those of assumptions.
func TestPageNamesAssumptions(t *testing.T) {
	rows, err := parseAssumptions(assumptions)
	must(t, err)
	page, err := os.ReadFile(repository + "/docs/windows-proof.md")
	must(t, err)
	named := regexp.MustCompile("`([a-z0-9]+(?:-[a-z0-9]+)+)`").FindAllSubmatch(page, -1)
	if len(named) == 0 {
		t.Error("the page names no assumption")
	}
	for _, id := range named {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.ID == string(id[1]) }) {
			t.Errorf("docs/windows-proof.md names %s, which assumptions.txt doesn't have", id[1])
		}
	}
}

func TestRunFlag(t *testing.T) {
	rows := []Row{{Tests: []string{"TestA/b/*/c.d", "x/y.TestE"}}, {Tests: []string{"TestF*"}}}
	want := `^TestA$/^b$/^.*$/^c\.d$|^TestE$|^TestF.*$`
	if got := runFlag(rows); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestParseAssumptions(t *testing.T) {
	const row = "a-1\nassumption: b\n    goes on\nevidence: c\nrefuted by: d\ntest: `TestE`,\n    `x/y.TestF/g h`… (quick)\n"
	rows, err := parseAssumptions("# Text\n\n== Disks\n\n" + row + "\nb\nassumption: b\nevidence: c\n")
	if err != nil || len(rows) != 2 || rows[0].ID != "a-1" || len(rows[0].Tests) != 2 ||
		rows[0].Tests[1] != "x/y.TestF/g_h*" || !slices.Equal(rows[0].Quick, rows[0].Tests[1:]) || rows[1].Tests != nil {
		t.Errorf("%+v, %v", rows, err)
	}
	for name, text := range map[string]string{
		"other field":   row + "proof: x\n",
		"field twice":   row + "test: `TestF`\n",
		"empty field":   "a\nassumption: b\nevidence: c\ntest:\n",
		"id":            "A b\nassumption: b\nevidence: c\n",
		"no assumption": "a\nevidence: c\n",
		"no evidence":   "a\nassumption: b\n",
		"twice":         row + "\n" + row,
		"none":          "# Text\n",
	} {
		if rows, err := parseAssumptions(text); err == nil {
			t.Errorf("%s: %+v, want an error", name, rows)
		}
	}
}
