// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Outcome is how a test ended.
type Outcome struct {
	// Result is "pass", "fail" or "skip". A test that began and didn't end has failed.
	Result string
	Output string
	ended  bool
}

// Outcomes are those of the tests and parts of tests of a run, by their names: internal/x.TestName/part.
type Outcomes map[string]*Outcome

// change is what follows the mark where the output of a test begins, or the test ends with a result.
var change = regexp.MustCompile(`^(?:=== (?:RUN|NAME|CONT)|\s*--- (PASS|FAIL|SKIP):)\s+(\S+)`)

// Add adds what the test program of a package prints with -test.v=test2json, which marks the lines of
// package testing itself. It shows how each test ended, and returns what was printed outside of tests.
func (o Outcomes) Add(pkg string, log io.Reader, show io.Writer) (outside string) {
	var noTest Outcome
	current := &noTest
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadString('\n')
		if err != nil && line == "" { // a test that hasn't ended so far has failed
			return noTest.Output
		}
		// What precedes the mark is output without a line end.
		output, mark, marked := strings.Cut(strings.TrimRight(line, "\r\n"), "\x16")
		if output != "" || !marked {
			current.Output += output + "\n"
		}
		m := change.FindStringSubmatch(mark)
		if m == nil {
			continue
		}
		test := pkg + "." + m[2]
		if o[test] == nil {
			o[test] = &Outcome{Result: "fail"}
		}
		current = o[test]
		if m[1] != "" {
			fmt.Fprintf(show, "  %s\n", strings.TrimPrefix(strings.TrimSpace(mark), "--- "))
			current.Result, current.ended = strings.ToLower(m[1]), true
			if current = o[path.Dir(test)]; current == nil {
				current = &noTest
			}
		}
	}
}

// cutOff counts running tests as skipped.
func (o Outcomes) cutOff(why string) {
	for _, outcome := range o {
		if !outcome.ended {
			outcome.Result = "skip"
			outcome.Output += why + "\n"
		}
	}
}

// skipRest counts the tests of rows that were never started as skipped.
func (o Outcomes) skipRest(rows []Row, why string) {
	for _, row := range rows {
		for _, pattern := range row.Tests {
			if len(o.matching(pattern)) == 0 && len(o.endedBefore(pattern)) == 0 {
				o["rest."+pattern] = &Outcome{Result: "skip", Output: why + "\n", ended: true}
			}
		}
	}
}

// failedParts returns the parts of a test that have failed.
func (o Outcomes) failedParts(test string) (parts []string) {
	for other, outcome := range o {
		if outcome.Result == "fail" && strings.HasPrefix(other, test+"/") {
			parts = append(parts, other)
		}
	}
	return parts
}

// Failed returns the tests that have failed. A test is left out if one of its parts has
// failed.
func (o Outcomes) Failed() (failed []string) {
	for test, outcome := range o {
		if outcome.Result == "fail" && len(o.failedParts(test)) == 0 {
			failed = append(failed, test)
		}
	}
	slices.Sort(failed)
	return failed
}

// The results of a row.
const (
	Proven  = "proven"
	Refuted = "refuted"
	NotRun  = "not run"
	// ByHand is the result of a row that has no test.
	ByHand = "by hand"
)

// Report is what a run on a machine has found out.
type Report struct {
	Head  Head
	Lines []Line
}

// Head is the first line of a report: where the tests ran.
type Head struct {
	Windows string `json:"windows"` // the version's number, such as 10.0.20348.2700
	Wine    string `json:"wine,omitempty"`
	Edition string `json:"edition,omitempty"` // such as Windows Server 2022 Datacenter
	Arch    string `json:"arch"`
	Version string `json:"version"` // of the programs
	Time    string `json:"time"`    // RFC 3339
}

// Line is a line of a report: the result of a row.
type Line struct {
	Row    string `json:"row"`
	Result string `json:"result"`
	// Seen is what was seen if the row is refuted, and the reason if it wasn't run.
	Seen []string `json:"seen,omitempty"`
}

// withoutNames replaces names of the machine and its user, and serial numbers, in what the lines
// have seen, so that the report can be sent.
func withoutNames(lines []Line, names, serialNumbers []string) {
	var forms []string
	for _, name := range names {
		if len(name) > 1 {
			forms = append(forms, `\b`+regexp.QuoteMeta(name)+`\b`)
		}
	}
	for _, number := range serialNumbers {
		// Also within another one, as in an identifier. A short one names nobody.
		if number = strings.TrimSpace(number); len(number) > 5 {
			forms = append(forms, regexp.QuoteMeta(number))
		}
	}
	if len(forms) == 0 {
		return
	}
	form := regexp.MustCompile(`(?i)` + strings.Join(forms, "|"))
	for _, line := range lines {
		for i, seen := range line.Seen {
			line.Seen[i] = form.ReplaceAllString(seen, "…")
		}
	}
}

// evaluate returns the result of a run for each row. The facts behind a row are part of it.
func evaluate(rows []Row, o Outcomes) []Line {
	var lines []Line
	for _, row := range rows {
		facts := "TestGuessFacts/" + row.ID + "/*/*"
		if len(o.matching(facts)) > 0 {
			row.Tests = append(row.Tests, facts)
		}
		line := Line{Row: row.ID, Result: ByHand}
		if len(row.Tests) > 0 {
			line.Result, line.Seen = o.evaluate(row.Tests)
		}
		lines = append(lines, line)
	}
	return lines
}

// matching returns the tests that a pattern names.
func (o Outcomes) matching(pattern string) (tests []string) {
	for test := range o {
		if matches(pattern, test) {
			tests = append(tests, test)
		}
	}
	return tests
}

func (o Outcomes) evaluate(patterns []string) (result string, seen []string) {
	var refuted, missing []string
	for _, pattern := range patterns {
		tests, endedBefore := o.matching(pattern), o.endedBefore(pattern)
		missing = append(missing, endedBefore...)
		if len(tests) == 0 && len(endedBefore) == 0 {
			missing = append(missing, pattern+" was not run")
		}
		for _, test := range tests {
			switch o[test].Result {
			case "fail":
				refuted = append(refuted, o.seen(append([]string{test}, o.failedParts(test)...)))
			case "skip":
				missing = append(missing, o.seen([]string{test}))
			}
		}
	}
	slices.Sort(refuted)
	slices.Sort(missing)
	switch {
	case len(refuted) > 0:
		return Refuted, refuted
	case len(missing) > 0:
		return NotRun, missing
	}
	return Proven, nil
}

// endedBefore returns the tests that ended before the part that a pattern names, with their output.
func (o Outcomes) endedBefore(pattern string) (names []string) {
	parent, part := path.Split(pattern)
	if parent == "" || strings.Contains(part, "*") { // "*" stands for the parts that there were
		return nil
	}
	for _, test := range o.matching(path.Clean(parent)) {
		if o[test+"/"+part] == nil {
			name := test + " ended before " + part
			if output := strings.Join(strings.Fields(o[test].Output), " "); output != "" {
				name += ": " + output
			}
			names = append(names, name)
		}
	}
	return names
}

// seen is the output of tests in one line, after the name of the first.
func (o Outcomes) seen(tests []string) string {
	output := ""
	for _, test := range tests {
		output += o[test].Output
	}
	return tests[0] + ": " + cmp.Or(strings.Join(strings.Fields(output), " "), "no output")
}

// evaluateQuick returns the result of -quick for each row. A proven row has the log of its tests.
func evaluateQuick(rows []Row, o Outcomes) []Line {
	lines := evaluate(rows, o)
	for i, row := range rows {
		if lines[i].Result != Proven {
			continue
		}
		for _, pattern := range row.Tests {
			for _, test := range o.matching(pattern) {
				if o[test].Output != "" {
					lines[i].Seen = append(lines[i].Seen, o.seen([]string{test}))
				}
			}
		}
	}
	return lines
}

// place matches the file and line of a log line, with the test's name before it.
var place = regexp.MustCompile(`(?:^\S+:|:)? ?\b\w+\.go:[0-9]+: `)

// writeTable writes the report as a table in Markdown, for an issue.
func (r Report) writeTable(w io.Writer) error {
	text := fmt.Sprintf("csi-proxy-wintest %s -quick, %s, on %s\n\n| id | result | what was seen |\n|---|---|---|\n",
		r.Head.Version, r.Head.Time, r.Head.system())
	for _, line := range r.Lines {
		seen := ""
		for _, s := range line.Seen {
			seen += "; " + strings.TrimPrefix(place.ReplaceAllString(s, "; "), "; ")
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", line.Row, line.Result, inCell(strings.TrimPrefix(seen, "; ")))
	}
	_, err := io.WriteString(w, text)
	return err
}

// system is the Windows that the report is about.
func (h Head) system() string {
	system := strings.TrimSpace(h.Edition + " " + h.Windows + " " + h.Arch)
	if h.Wine != "" {
		system = "Wine " + h.Wine + " as " + system
	}
	return system
}

// maxSeen limits how much of what was seen a table quotes.
const maxSeen = 200

// inCell makes a text safe for a cell of a table.
func inCell(text string) string {
	text = strings.NewReplacer("|", "/", "`", "'", "<", "‹", ">", "›").Replace(text)
	if runes := []rune(text); len(runes) > maxSeen {
		text = string(runes[:maxSeen]) + "…"
	}
	return text
}

// write writes the report: its head, and a line for each row.
func (r Report) write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(r.Head)
	for _, line := range r.Lines {
		err = errors.Join(err, encoder.Encode(line))
	}
	return err
}

// readReport reads what write wrote.
func readReport(from io.Reader) (r Report, err error) {
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&r.Head)
	for err == nil && decoder.More() {
		var line Line
		err = decoder.Decode(&line)
		r.Lines = append(r.Lines, line)
	}
	return r, err
}
