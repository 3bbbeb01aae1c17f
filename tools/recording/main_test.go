// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// Two runs, whose volumes have other identifiers, have one picture. Another text has another one.
func TestPicture(t *testing.T) {
	run := func(first, second string) string {
		return picture("make run", "volume list\n  Volume{"+first+"}\n  Volume{"+second+"}\n  Volume{"+first+"} <a> & b\nAll went well\n")
	}
	const a, b = "e1d2edc8-c868-4012-8f85-a4e4a0757a9b", "7f1db2f9-4749-45f8-9e08-1783767ce44c"
	one := run(a, b)
	if run(b, a) != one {
		t.Error("the picture depends on the volumes' identifiers")
	}
	if run(a, a) == one {
		t.Error("two volumes look like one")
	}
	if strings.Contains(one, a) || !strings.Contains(one, "&lt;a&gt; &amp; b") || strings.Count(one, "<text") != 6 {
		t.Error(one)
	}
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for _, line := range wrap(long) {
		if len(line) > columns {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
	if got := strings.Join(strings.Fields(strings.Join(wrap(long), " ")), " "); got != strings.TrimSpace(long) {
		t.Errorf("wrapped: %q", got)
	}
	if got := wrap(strings.Repeat("x", columns+1)); len(got) != 2 {
		t.Errorf("a word that is too long: %q", got)
	}
}
