// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Test is a test or a part of one.
type Test struct {
	Package string // its directory in the repository
	Name    string // as package testing prints it
}

// Outcome is how a test ended.
type Outcome struct {
	// Result is "pass", "fail" or "skip". A test that began and didn't end has failed.
	Result string
	// Output is what the test printed.
	Output []string
}

// Outcomes are those of a run, of all packages.
type Outcomes map[Test]*Outcome

var (
	begins = regexp.MustCompile(`^=== (RUN|NAME|CONT)\s+(\S+)$`)
	ends   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
)

// maxLine limits a line of a test's output.
const maxLine = 1 << 20

// Add adds what the test program of a package printed with -test.v=test2json, which
// marks the lines of package testing itself.
func (o Outcomes) Add(pkg string, log io.Reader) error {
	var current *Outcome
	find := func(name string) *Outcome {
		key := Test{pkg, name}
		if o[key] == nil {
			o[key] = &Outcome{Result: "fail"}
		}
		return o[key]
	}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		text, marked := line, false
		if before, after, ok := strings.Cut(line, "\x16"); ok { // what precedes it is output without a line end
			if before != "" && current != nil {
				current.Output = append(current.Output, before)
			}
			text, marked = after, true
		}
		if marked {
			if m := begins.FindStringSubmatch(text); m != nil {
				current = find(m[2])
				continue
			}
			if m := ends.FindStringSubmatch(text); m != nil {
				find(m[2]).Result = strings.ToLower(m[1])
				continue
			}
			if strings.HasPrefix(text, "=== ") { // PAUSE
				continue
			}
		}
		if current != nil && !isEnd(text) {
			current.Output = append(current.Output, text)
		}
	}
	return lines.Err()
}

// isEnd reports whether a line is the last one of a test program.
func isEnd(line string) bool {
	return line == "PASS" || line == "FAIL" || strings.HasPrefix(line, "exit status ")
}

// Failed returns the tests that have failed. A test is left out if one of its parts has
// failed.
func (o Outcomes) Failed() []Test {
	var failed []Test
	for test, outcome := range o {
		if outcome.Result == "fail" && !o.partFailed(test) {
			failed = append(failed, test)
		}
	}
	slices.SortFunc(failed, func(a, b Test) int {
		return strings.Compare(a.Package+"."+a.Name, b.Package+"."+b.Name)
	})
	return failed
}

func (o Outcomes) partFailed(test Test) bool {
	for other, outcome := range o {
		if other.Package == test.Package && outcome.Result == "fail" && strings.HasPrefix(other.Name, test.Name+"/") {
			return true
		}
	}
	return false
}

// The results of a row.
const (
	Proven  = "proven"
	Refuted = "refuted"
	NotRun  = "not run"
	// ByHand is the result of a row that has no test.
	ByHand = "by hand"
	// NoNeed is the result of a row that nothing on Windows would refute.
	NoNeed = "needs no Windows"
)

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
	Seen  []string          `json:"seen,omitempty"`
	Tests map[string]string `json:"tests,omitempty"` // their results
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
		line := Line{Row: row.ID, Result: NoNeed}
		facts := Pattern{Test: "TestGuessFacts/" + row.ID + "/*/*"}
		for test := range o {
			if facts.Matches(test) {
				row.Tests = append(row.Tests, facts)
				break
			}
		}
		switch {
		case len(row.Tests) > 0:
			line.Result, line.Seen, line.Tests = o.evaluate(row.Tests)
		case row.Refuted != "":
			line.Result = ByHand
		}
		lines = append(lines, line)
	}
	return lines
}

func (o Outcomes) evaluate(patterns []Pattern) (result string, seen []string, results map[string]string) {
	var refuted, missing []string
	results = map[string]string{}
	for _, p := range patterns {
		found := false
		for test, outcome := range o {
			if !p.Matches(test) {
				continue
			}
			found = true
			name := test.Package + "." + test.Name
			results[name] = outcome.Result
			switch outcome.Result {
			case "fail":
				refuted = append(refuted, prefixed(name, o.outputOf(test))...)
			case "skip":
				missing = append(missing, prefixed(name, outcome.Output)...)
			}
		}
		if !found {
			missing = append(missing, p.String()+" was not run")
		}
		missing = append(missing, o.endedBefore(p)...)
	}
	slices.Sort(refuted)
	slices.Sort(missing)
	switch {
	case len(refuted) > 0:
		return Refuted, refuted, results
	case len(missing) > 0:
		return NotRun, missing, results
	}
	return Proven, nil, results
}

// endedBefore returns the tests that ended before the part that a pattern names.
func (o Outcomes) endedBefore(p Pattern) (names []string) {
	parent, part := path.Split(p.Test)
	if parent == "" || strings.Contains(part, "*") { // "*" stands for the parts that there were
		return nil
	}
	whole := Pattern{p.Package, strings.TrimSuffix(parent, "/")}
	for test := range o {
		if _, ok := o[Test{test.Package, test.Name + "/" + part}]; whole.Matches(test) && !ok {
			names = append(names, test.Package+"."+test.Name+" ended before "+part)
		}
	}
	return names
}

// outputOf returns the output of a failed test, or of its parts that failed.
func (o Outcomes) outputOf(test Test) []string {
	output := o[test].Output
	for other, outcome := range o {
		if other.Package == test.Package && outcome.Result == "fail" && strings.HasPrefix(other.Name, test.Name+"/") {
			output = append(slices.Clone(output), outcome.Output...)
		}
	}
	return output
}

// prefixed is output in one line, after the test's name.
func prefixed(name string, output []string) []string {
	text := strings.Join(strings.Fields(strings.Join(output, " ")), " ")
	if text == "" {
		text = "no output"
	}
	return []string{name + ": " + text}
}

// writeReport writes a report: a head, and a line for each row.
func writeReport(w io.Writer, head Head, lines []Line) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(head); err != nil {
		return err
	}
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// readReport reads what writeReport wrote.
func readReport(r io.Reader) (head Head, lines []Line, err error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&head); err != nil {
		return head, nil, fmt.Errorf("the head of the report: %w", err)
	}
	for {
		var line Line
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			return head, lines, nil
		}
		if err != nil {
			return head, nil, fmt.Errorf("line %d of the report: %w", len(lines)+2, err)
		}
		lines = append(lines, line)
	}
}
