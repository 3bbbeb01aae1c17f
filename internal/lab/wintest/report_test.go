// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A log of a test program, with what package testing marks after an at sign.
const log = `@=== RUN   TestDisk
@=== RUN   TestDisk/512
@=== RUN   TestDisk/512/size
    disk_test.go:1: the disk has 1 byte
    want 2
@--- FAIL: TestDisk/512/size (0.00s)
@=== RUN   TestDisk/512/state
    disk_test.go:2: it needs the step size
@--- SKIP: TestDisk/512/state (0.00s)
@--- FAIL: TestDisk/512 (0.00s)
@=== RUN   TestDisk/4096
@=== RUN   TestDisk/4096/size
text without a line end@--- PASS: TestDisk/4096/size (0.00s)
@--- PASS: TestDisk/4096 (0.00s)
@--- FAIL: TestDisk (0.00s)
@=== RUN   TestHalf
@=== RUN   TestHalf/512
@=== RUN   TestHalf/512/flush
@--- PASS: TestHalf/512/flush (0.00s)
@--- PASS: TestHalf/512 (0.00s)
@=== RUN   TestHalf/4096
@--- SKIP: TestHalf/4096 (0.00s)
@--- PASS: TestHalf (0.00s)
@=== RUN   TestWhole
--- FAIL: TestNobody (0.00s)
@--- PASS: TestWhole (0.00s)
@=== RUN   TestCutOff
panic: no memory
`

// samplePage has rows with a check and the result of an earlier run.
var samplePage = func() string {
	table := "# Page\n\n| proof | what |\n|---|---|\n| **C** | a compiler |\n\n" +
		"| id | facts | on Windows |\n|---|---|---|\n"
	sections := ""
	for _, row := range []struct{ id, result, check string }{
		{"size", "not run", "`TestDisk/*/size`"},
		{"large-size", "not run", "`TestDisk/4096/size` and by hand"},
		{"state", "not run", "`TestDisk/*/state`"},
		{"half", "not run", "`TestHalf/*/flush`"},
		{"whole", "not run", "`x/y.TestWhole`"},
		{"other", "not run", "`x.TestWhole`"},
		{"cut", "not run", "`TestCut…`"},
		{"hand", "fine", "by hand"},
		{"none", "", ""},
	} {
		table += fmt.Sprintf("| [%s](#%[1]s) | 0 | %s |\n", row.id, row.result)
		sections += "\n### " + row.id + "\n\nAssumption: a\n\nProven by: b\n"
		if row.check != "" {
			sections += "\nCheck: " + row.check + "\n"
		}
	}
	return table + sections
}()

func evaluated(t *testing.T) []Line {
	t.Helper()
	rows, err := parsePage(samplePage)
	must(t, err)
	o := Outcomes{}
	must(t, o.Add("x/y", strings.NewReader(strings.ReplaceAll(log, "@", "\x16"))))
	want := []Test{{"x/y", "TestCutOff"}, {"x/y", "TestDisk/512/size"}}
	if diff := cmp.Diff(want, o.Failed()); diff != "" {
		t.Errorf("failed tests (-want +got):\n%s", diff)
	}
	return evaluate(rows, o)
}

func TestEvaluate(t *testing.T) {
	want := []Line{
		{"size", Refuted, []string{"x/y.TestDisk/512/size: disk_test.go:1: the disk has 1 byte want 2"},
			map[string]string{"x/y.TestDisk/512/size": "fail", "x/y.TestDisk/4096/size": "pass"}},
		{"large-size", Proven, nil, map[string]string{"x/y.TestDisk/4096/size": "pass"}},
		{"state", NotRun, []string{"x/y.TestDisk/4096 ended before state",
			"x/y.TestDisk/512/state: disk_test.go:2: it needs the step size"},
			map[string]string{"x/y.TestDisk/512/state": "skip"}},
		{"half", NotRun, []string{"x/y.TestHalf/4096 ended before flush"},
			map[string]string{"x/y.TestHalf/512/flush": "pass"}},
		{"whole", Proven, nil, map[string]string{"x/y.TestWhole": "pass"}},
		{"other", NotRun, []string{"x.TestWhole was not run"}, map[string]string{}},
		{"cut", Refuted, []string{"x/y.TestCutOff: panic: no memory"}, map[string]string{"x/y.TestCutOff": "fail"}},
		{Row: "hand", Result: ByHand},
		{Row: "none", Result: NoNeed},
	}
	if diff := cmp.Diff(want, evaluated(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWithoutNames(t *testing.T) {
	lines := []Line{{Row: "a", Seen: []string{`C:\Users\Admin\x of NODE7 and node7.example, not node71 or administrators`,
		`disk 1: "vol0abc1_00000001.", naa.600vol0abc1 and x 1`}}, {Row: "b"}}
	withoutNames(lines, []string{"node7", "admin", "", "x"}, []string{"  VOL0ABC1 ", "1", ""})
	if want := []string{`C:\Users\…\x of … and ….example, not node71 or administrators`,
		`disk 1: "…_00000001.", naa.600… and x 1`}; !slices.Equal(lines[0].Seen, want) {
		t.Errorf("%q, want %q", lines[0].Seen, want)
	}
	withoutNames(lines, []string{""}, nil)
}

func TestUpdate(t *testing.T) {
	var b bytes.Buffer
	must(t, writeReport(&b, Head{Windows: "10.0.1"}, evaluated(t)))
	head, lines, err := readReport(&b)
	must(t, err)
	second := []Line{{Row: "size", Result: Proven}, {Row: "state", Result: Proven}}
	updated, err := updatePage(samplePage, []Report{{head, lines}, {Head{Windows: "10.0.2"}, second}})
	must(t, err)
	rows, err := parsePage(updated)
	must(t, err)
	got := map[string]string{}
	for _, r := range rows {
		got[r.ID] = r.Result
	}
	want := map[string]string{
		"size": "refuted on 10.0.1; proven on 10.0.2: x/y.TestDisk/512/size: disk_test.go:1: " +
			"the disk has 1 byte want 2",
		"large-size": "proven on 10.0.1",
		"state":      "proven on 10.0.2; not run on 10.0.1",
		"half":       "not run",
		"whole":      "proven on 10.0.1",
		"other":      "not run",
		"cut":        "refuted on 10.0.1: x/y.TestCutOff: panic: no memory",
		"hand":       "fine",
		"none":       "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	again, err := updatePage(updated, []Report{{head, lines}, {Head{Windows: "10.0.2"}, second}})
	if err != nil || again != updated {
		t.Errorf("updated again (%v, -first +second):\n%s", err, cmp.Diff(updated, again))
	}
	for name, r := range map[string]Report{
		"Wine":    {Head{Windows: "10.0.1", Wine: "10.0"}, lines},
		"unknown": {head, []Line{{Row: "unknown", Result: Proven}}},
	} {
		if _, err := updatePage(samplePage, []Report{r}); err == nil {
			t.Errorf("a report of %s is taken", name)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
