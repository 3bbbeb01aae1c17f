// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// Serial numbers and messages come from hardware and other machines; a terminal
// obeys control sequences.
func TestNoControlSequences(t *testing.T) {
	const evil = "\x1b]0;evil\a\u202e\n\t\xff"
	var out, errs strings.Builder
	p := &program{stdout: &out, stderr: &errs, format: formatText}
	err := p.print(reply{
		header:   []string{"SERIAL NUMBER"},
		rows:     [][]string{{evil}},
		warnings: []string{evil},
	})
	must(t, err)
	p.printError(t.Context(), &csiproxy.Error{Detail: evil})
	if lines := strings.Count(out.String(), "\n"); lines != 2 {
		t.Errorf("the table %q has %d lines, want 2", out.String(), lines)
	}
	if lines := strings.Count(errs.String(), "\n"); lines != 2 {
		t.Errorf("warning and error %q have %d lines, want 2", errs.String(), lines)
	}
	if all := out.String() + errs.String(); strings.ContainsAny(all, "\x1b\a\u202e\t") || !utf8.ValidString(all) {
		t.Errorf("%q reaches the terminal", all)
	}
}

func TestSizeFlag(t *testing.T) {
	for in, want := range map[string]int64{
		"0":                   0,
		"1048576":             1 << 20,
		"9223372036854775807": 1<<63 - 1,
		"9007199254740993":    1<<53 + 1, // which floating point doesn't have
		"20GiB":               20 << 30,
		"1.5 GiB":             3 << 29,
		"10GB":                10_000_000_000,
		"512MiB":              512 << 20,
		"5 mib":               5 << 20,
	} {
		var f sizeFlag
		if err := f.Set(in); err != nil || int64(f) != want {
			t.Errorf("%q: %d, %v; want %d", in, f, err, want)
		}
	}
	for _, in := range []string{"", "-1", "-1GiB", "GiB", "8EiB", "16EiB", "9223372036854775808", "1e3", "NaN", "Inf",
		"10 apples", "0x10", "1,5GiB"} {
		f := sizeFlag(7)
		if err := f.Set(in); err == nil || f != 7 {
			t.Errorf("%q: %d, %v; want an error", in, f, err)
		}
	}
}

// A coloured row is as wide as without colours, and only rows of ours have any.
func TestColours(t *testing.T) {
	findings := []doctor.Finding{
		{Check: "a", Verdict: doctor.OK, Text: "\x1b[31mfine"},
		{Check: "long", Verdict: doctor.Problem, Text: "bad", Advice: "mend it"},
		{Check: "b", Verdict: doctor.Warning, Text: "odd"},
	}
	for colours, want := range map[bool]string{
		false: "a     ok       \\x1b[31mfine\nlong  problem  bad\n               to do: mend it\nb     warning  odd\n",
		true: "a     ok       \\x1b[31mfine\n\x1b[31mlong  problem  bad\x1b[0m\n               to do: mend it\n" +
			"\x1b[33mb     warning  odd\x1b[0m\n",
	} {
		var out bytes.Buffer
		must(t, findingsReply(findings).printTable(&out, colours))
		if out.String() != want {
			t.Errorf("colours %t: %q, want %q", colours, &out, want)
		}
	}
	headed := reply{header: []string{"H"}, rows: [][]string{{"x"}}, colours: map[int]terminal.Colour{0: terminal.Green}}
	var out bytes.Buffer
	must(t, headed.printTable(&out, true))
	if out.String() != "H\n\x1b[32mx\x1b[0m\n" {
		t.Errorf("with a header: %q", &out)
	}
}
