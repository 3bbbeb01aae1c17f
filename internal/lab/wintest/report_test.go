// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A log of a test program, with what package testing marks after an at sign.
const log = `before the tests
@=== RUN   TestDisk
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
@=== RUN   TestGuessFacts
@=== RUN   TestGuessFacts/fact
@=== RUN   TestGuessFacts/fact/volume
@=== RUN   TestGuessFacts/fact/volume/1
@--- PASS: TestGuessFacts/fact/volume/1 (0.00s)
@--- PASS: TestGuessFacts/fact/volume (0.00s)
@--- PASS: TestGuessFacts/fact (0.00s)
@--- PASS: TestGuessFacts (0.00s)
@PASS
after them
`

// sampleAssumptions has rows with and without tests.
const sampleAssumptions = "" +
	"size\nassumption: b\nevidence: c\ntest: `TestDisk/*/size`\n\n" +
	"large-size\nassumption: b\nevidence: c\nrefuted by: by hand\ntest: `TestDisk/4096/size`\n\n" +
	"state\nassumption: b\nevidence: c\ntest: `TestDisk/*/state`\n\n" +
	"half\nassumption: b\nevidence: c\ntest: `TestHalf/*/flush`\n\n" +
	"whole\nassumption: b\nevidence: c\ntest: `x/y.TestWhole`\n\n" +
	"other\nassumption: b\nevidence: c\ntest: `x.TestWhole`\n\n" +
	"cut\nassumption: b\nevidence: c\ntest: `TestCut`…\n\n" +
	"fact\nassumption: b\nevidence: c\n\n" +
	"hand\nassumption: b\nevidence: c\nrefuted by: by hand\n"

func evaluated(t *testing.T) []Line {
	t.Helper()
	rows, err := parseAssumptions(sampleAssumptions)
	must(t, err)
	o := Outcomes{}
	var shown strings.Builder
	outside := o.Add("x/y", strings.NewReader(strings.ReplaceAll(log, "@", "\x16")), &shown)
	if outside != "before the tests\nafter them\n" {
		t.Errorf("outside of tests there is %q", outside)
	}
	if first, _, _ := strings.Cut(shown.String(), "\n"); first != "  FAIL: TestDisk/512/size (0.00s)" {
		t.Errorf("the first that is shown is %q", first)
	}
	want := []string{"x/y.TestCutOff", "x/y.TestDisk/512/size"}
	if diff := cmp.Diff(want, o.Failed()); diff != "" {
		t.Errorf("failed tests (-want +got):\n%s", diff)
	}
	return evaluate(rows, o)
}

func TestEvaluate(t *testing.T) {
	want := []Line{
		{"size", Refuted, []string{"x/y.TestDisk/512/size: disk_test.go:1: the disk has 1 byte want 2"}},
		{"large-size", Proven, nil},
		{"state", NotRun, []string{"x/y.TestDisk/4096 ended before state",
			"x/y.TestDisk/512/state: disk_test.go:2: it needs the step size"}},
		{"half", NotRun, []string{"x/y.TestHalf/4096 ended before flush"}},
		{"whole", Proven, nil},
		{"other", NotRun, []string{"x.TestWhole was not run"}},
		{"cut", Refuted, []string{"x/y.TestCutOff: panic: no memory"}},
		{"fact", Proven, nil},
		{"hand", ByHand, nil},
	}
	if diff := cmp.Diff(want, evaluated(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTable(t *testing.T) {
	const log = `@=== RUN   TestQuick
@=== RUN   TestQuick/format
    quick.go:1: formatting succeeds
    quick.go:2: at | once
@--- PASS: TestQuick/format (0.00s)
@=== RUN   TestQuick/lock
    quick.go:3: error 5
@--- FAIL: TestQuick/lock (0.00s)
@=== RUN   TestQuick/grow
`
	const parent = `@=== RUN   TestDisk
    quick.go:4: no disk
@--- FAIL: TestDisk (0.00s)
`
	rows := quickRows([]Row{{ID: "other", Tests: []string{"TestOther"}}})
	for _, row := range []string{"format", "lock", "grow", "late"} {
		rows = append(rows, Row{ID: row, Tests: []string{"TestQuick/" + row}})
	}
	rows = append(rows, Row{ID: "disk", Tests: []string{"TestDisk/disk"}}, Row{ID: "never", Tests: []string{"TestNever"}})
	o := Outcomes{}
	o.Add("x", strings.NewReader(strings.ReplaceAll(log, "@", "\x16")), io.Discard)
	o.cutOff("the time was over")
	o.Add("x", strings.NewReader(strings.ReplaceAll(parent, "@", "\x16")), io.Discard)
	o.skipRest(rows, "the time was over")
	var table strings.Builder
	must(t, Report{Head{Windows: "10.0.1", Edition: "Server", Arch: "amd64", Version: "v1", Time: "now"}, evaluateQuick(rows, o)}.writeTable(&table))
	want := `csi-proxy-wintest v1 -quick, now, on Server 10.0.1 amd64

| id | result | what was seen |
|---|---|---|
| format | proven | formatting succeeds; at / once |
| lock | refuted | error 5 |
| grow | not run | x.TestQuick/grow: the time was over |
| late | not run | x.TestQuick ended before late: the time was over |
| disk | not run | x.TestDisk ended before disk; no disk |
| never | not run | rest.TestNever: the time was over |
`
	if diff := cmp.Diff(want, table.String()); diff != "" {
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
