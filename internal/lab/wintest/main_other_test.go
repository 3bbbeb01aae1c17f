// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpdate(t *testing.T) {
	var b bytes.Buffer
	must(t, Report{Head{Windows: "10.0.1"}, evaluated(t)}.write(&b))
	first, err := readReport(&b)
	must(t, err)
	reports := []Report{first, {Head{Windows: "10.0.2"}, []Line{{Row: "size", Result: Proven}, {Row: "state", Result: Proven}}}}
	rows, err := parseAssumptions(sampleAssumptions)
	must(t, err)
	const samplePage = "# Page\n\nText.\n"
	updated, err := updatePage(samplePage, rows, reports)
	must(t, err)
	want := samplePage + `
## Results on Windows

| id | on Windows |
|---|---|
| size | refuted on 10.0.1; proven on 10.0.2: x/y.TestDisk/512/size: disk_test.go:1: the disk has 1 byte want 2 |
| large-size | proven on 10.0.1 |
| state | proven on 10.0.2; not run on 10.0.1 |
| whole | proven on 10.0.1 |
| cut | refuted on 10.0.1: x/y.TestCutOff: panic: no memory |
| fact | proven on 10.0.1 |
`
	if diff := cmp.Diff(want, updated); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again, err := updatePage(updated, rows, reports); err != nil || again != updated {
		t.Errorf("updated again (%v, -first +second):\n%s", err, cmp.Diff(updated, again))
	}
	if got := inCell("a|b `c` <d> " + strings.Repeat("é", 300)); strings.ContainsAny(got, "|`<>") || len([]rune(got)) != maxSeen+1 {
		t.Errorf("in a cell it is %q", got)
	}
	for name, r := range map[string]Report{
		"Wine":    {Head{Windows: "10.0.1", Wine: "10.0"}, first.Lines},
		"unknown": {first.Head, []Line{{Row: "unknown", Result: Proven}}},
	} {
		if _, err := updatePage(samplePage, rows, []Report{r}); err == nil {
			t.Errorf("a report of %s is taken", name)
		}
	}
}
