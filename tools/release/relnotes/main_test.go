// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

const changelog = `# Changelog

About it.

## Unreleased

- new

## v1.1.0 - 2026-02-01

- one

Improvements:

- two

## v1.0.0-rc.1 - 2026-01-01

## v0.9.0
- old
`

func TestSection(t *testing.T) {
	for version, want := range map[string]string{
		"v1.1.0":               "# CSI Proxy v1.1.0\n\n- one\n\nImprovements:\n\n- two\n",
		"v0.9.0":               "# CSI Proxy v0.9.0\n\n- old\n",
		"v1.1.0-5-g0123abc":    "# CSI Proxy v1.1.0-5-g0123abc\n\n- new\n",
		"0123abc-dirty":        "# CSI Proxy 0123abc-dirty\n\n- new\n",
		"v1.0.0-rc.1":          "", // nothing under it
		"v1.0.0":               "", // not there
		"v1.1.0-rc.1-2-g01234": "# CSI Proxy v1.1.0-rc.1-2-g01234\n\n- new\n",
	} {
		got, err := section(changelog, version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
}
