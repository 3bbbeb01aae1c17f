// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var today = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// The tables of the pages are what make generate writes.
func TestPagesHaveTheFacts(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	facts, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range facts.pages() {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		want, err := facts.write(page, string(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), want); diff != "" {
			t.Errorf("%s differs from %s: change that, and run make generate (-page +facts):\n%s", page, file, diff)
		}
	}
}

const good = `
sources:
  aks: {url: https://example.com/aks, at: 0123abc, read: 2026-10-03}
  eks: {url: https://example.com/eks, at: v1.2.3, read: 2026-10-04, unopened: true}
tables:
- page: docs/index.md
  name: daemons
  columns: [nodes, '']
  rows:
  - {by: [aks], cells: [AKS, '']}
  - {by: [aks, eks], cells: [EKS, 1.2.1]}
- page: docs/why.md
  name: reports
  rows:
  - {by: [aks], cells: [a report]}
`

func TestWrite(t *testing.T) {
	facts, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	const page = "before\n\n<!-- docs/facts.yaml: daemons -->\n| old |\n<!-- end of daemons -->\n\nafter\n"
	const want = "before\n\n<!-- docs/facts.yaml: daemons -->\n| nodes | |\n|---|---|\n| AKS | |\n| EKS | 1.2.1 |\n" +
		"<!-- end of daemons -->\n\nafter\n"
	for _, text := range []string{page, want} { // writing again changes nothing
		got, err := facts.write("docs/index.md", text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	const list = "<!-- docs/facts.yaml: reports -->\n- a report\n<!-- end of reports -->\n"
	if got, err := facts.write("docs/why.md", strings.Replace(list, "- a report\n", "", 1)); err != nil || got != list {
		t.Errorf("%q, %v, want %q", got, err, list)
	}
	for _, text := range []string{
		"no place\n",
		"<!-- docs/facts.yaml: daemons -->\nno end\n",
		page + "<!-- docs/facts.yaml: forgotten -->\n<!-- end of forgotten -->\n",
	} {
		if _, err := facts.write("docs/index.md", text); err == nil {
			t.Errorf("no error for the page %q", text)
		}
	}
}

func TestReadBefore(t *testing.T) {
	facts, err := parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	got := facts.readBefore(today.AddDate(0, 0, -7*8)) // 2026-10-04
	if diff := cmp.Diff([]string{
		"2026-10-03  aks  https://example.com/aks at 0123abc",
		"            docs/index.md, daemons: AKS",
		"            docs/index.md, daemons: EKS",
		"            docs/why.md, reports: a report",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := facts.readBefore(today); len(got) != 6 || !strings.HasSuffix(got[4], "not opened at the last check") {
		t.Errorf("all: %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, change := range map[string][2]string{
		"a misspelt key":        {"read: 2026-10-03", "raed: 2026-10-03"},
		"no day":                {"read: 2026-10-03", "read: October"},
		"no URL":                {"https://example.com/aks", "aks.md"},
		"no version":            {"at: 0123abc", "at: ''"},
		"a missing cell":        {"[AKS, '']", "[AKS]"},
		"two cells in a list":   {"[a report]", "[a report, '']"},
		"a row without sources": {"{by: [aks], ", "{by: [], "},
		"an unknown source":     {"[aks, eks]", "[aks, gke]"},
		"a source without rows": {"[aks, eks]", "[aks]"},
		"a bar in a cell":       {"1.2.1", "'1.2.1 | 1.3.0'"},
		"a line break":          {"1.2.1", `"1.2.1\n1.3.0"`},
		"no name":               {"name: daemons", "name: ''"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Errorf("%s: nothing was changed", name)
		}
		if _, err := parse([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
