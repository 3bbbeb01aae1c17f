// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// oracleText has facts about Windows that others have found out: Microsoft's own model of
// its file systems, the sources of its drivers, and test suites that run on Windows. How to
// read it stands at its beginning.
//
//go:embed oracle.txt
var oracleText string

// contractText has rows of the contract that are plain calls, in the same language.
//
//go:embed contract.txt
var contractText string

// Oracle is a fact about Windows whose promise isn't ours, or a row of the contract.
type Oracle struct {
	Name    string // the section's name, a slash, and the case in the source
	Source  string // who says it: a repository with a file, or a page
	Windows string // which Windows and file system it holds for
	Proof   string // the assumption of internal/lab/wintest/assumptions.txt that it stands behind
	Steps   []OracleStep

	promise, guess string // of a row of the contract
}

// OracleStep is a call with the statuses that it gives.
type OracleStep struct {
	Handle string // the name of the handle that an open gives; "" if that is closed at once
	Verb   string
	Args   []string
	Want   []string // names of statuses; none is success
}

func (s OracleStep) String() string {
	text := strings.Join(append([]string{s.Verb}, s.Args...), " ")
	if s.Handle != "" {
		text = s.Handle + " = " + text
	}
	if len(s.Want) > 0 {
		text += " -> " + strings.Join(s.Want, " ")
	}
	return text
}

// Errnos are the errors that the step wants, as the seam has them; none is success.
func (s OracleStep) Errnos() []winerr.Errno {
	errnos := make([]winerr.Errno, 0, len(s.Want))
	for _, name := range s.Want {
		errnos = append(errnos, statuses[name])
	}
	return errnos
}

// Oracles returns all facts.
func Oracles() []Oracle {
	return parsed("oracle.txt", oracleText)
}

// plainRows are the rows of contract.txt.
func plainRows() (all []row) {
	for _, o := range parsed("contract.txt", contractText) {
		method, name, _ := strings.Cut(o.Name, "/")
		all = append(all, row{
			method: method, name: name, promise: o.promise, guess: o.guess, needs: o.needs(),
			test: func(t *testing.T, f *Fixture) { o.call(t, f, nil) },
		})
	}
	return all
}

func parsed(file, text string) []Oracle {
	all, err := parseOracles(file, text)
	if err != nil {
		panic(err) // the text is part of the program; TestOracles and TestContract read it
	}
	return all
}

// parseOracles reads the form of oracle.txt and contract.txt.
func parseOracles(file, text string) ([]Oracle, error) {
	var all []Oracle
	var section string
	var common Oracle // what holds for the rows that follow
	for i, line := range strings.Split(text, "\n") {
		fail := func(format string, args ...any) ([]Oracle, error) {
			return nil, fmt.Errorf("%s, line %d: %s", file, i+1, fmt.Sprintf(format, args...))
		}
		continues := strings.HasPrefix(line, "\t") && len(all) > 0
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, ok := strings.CutPrefix(line, "== "); ok {
			section, common = name, Oracle{}
			continue
		}
		name, steps, isRow := strings.Cut(line, " | ")
		switch {
		case continues:
			steps = line
		case !isRow:
			key, value, _ := strings.Cut(line, ": ")
			field, ok := map[string]*string{
				"source": &common.Source, "windows": &common.Windows, "proof": &common.Proof,
				"promise": &common.promise, "guess": &common.guess,
			}[key]
			if !ok || value == "" {
				return fail("it is neither a row nor source, windows, proof, promise or guess")
			}
			if key == "promise" {
				common.guess = ""
			}
			*field = value
			continue
		default:
			row := common
			row.Name = section + "/" + strings.TrimSpace(name)
			if section == "" || row.promise == "" && (row.Source == "" || row.Windows == "" || row.Proof == "") {
				return fail("the row has no section, or neither a promise nor a source, windows and proof")
			}
			if slices.ContainsFunc(all, func(o Oracle) bool { return o.Name == row.Name }) {
				return fail("%s comes twice", row.Name)
			}
			all = append(all, row)
		}
		row := &all[len(all)-1]
		for text := range strings.SplitSeq(steps, ";") {
			step, err := parseStep(text)
			if err != nil {
				return fail("%v", err)
			}
			row.Steps = append(row.Steps, step)
		}
	}
	for _, row := range all {
		if last := row.Steps[len(row.Steps)-1]; verbs[last.Verb].method == "" {
			return nil, fmt.Errorf("%s: the last step of %s, %q, is no call", file, row.Name, last)
		}
	}
	return all, nil
}

func parseStep(text string) (OracleStep, error) {
	text, want, _ := strings.Cut(text, "->")
	words := strings.Fields(text)
	var s OracleStep
	if len(words) > 2 && words[1] == "=" {
		s.Handle, words = words[0], words[2:]
	}
	if len(words) == 0 {
		return s, fmt.Errorf("a step is empty")
	}
	s.Verb, s.Args, s.Want = words[0], words[1:], strings.Fields(want)
	for i, arg := range s.Args {
		if strings.HasPrefix(arg, `"`) {
			name, err := strconv.Unquote(arg)
			if err != nil {
				return s, fmt.Errorf("%q: %s: %w", text, arg, err)
			}
			s.Args[i] = name
		}
	}
	v, ok := verbs[s.Verb]
	switch {
	case !ok:
		return s, fmt.Errorf("%q: there is no verb %q", text, s.Verb)
	case len(s.Args) < v.args || len(s.Args) > v.args && !v.more:
		return s, fmt.Errorf("%q: %s has %d arguments", text, s.Verb, v.args)
	case len(s.Want) > 0 && v.method == "":
		return s, fmt.Errorf("%q: %s is preparation, and has no status", text, s.Verb)
	}
	for _, name := range s.Want {
		if _, ok := statuses[name]; !ok {
			return s, fmt.Errorf("%q: there is no status %q", text, name)
		}
	}
	return s, nil
}

// has reports whether a key of Config.Skip means the fact: by its name, that of its section, the
// row that it stands behind, or a verb of one of its steps.
func (o Oracle) has(key string) bool {
	return o.Name == key || o.Proof == key || strings.HasPrefix(o.Name, key+"/") ||
		slices.ContainsFunc(o.Steps, func(s OracleStep) bool { return s.Verb == key })
}

// RunOracles runs all facts. The keys of Config.Skip are their names, those of sections, rows
// that they stand behind, or verbs that a system doesn't know.
func RunOracles(t *testing.T, c Config) {
	t.Helper()
	all := Oracles()
	for key := range c.Skip {
		if !slices.ContainsFunc(all, func(o Oracle) bool { return o.has(key) }) {
			t.Errorf("no fact is skipped by %q", key)
		}
	}
	for _, o := range all {
		t.Run(o.Proof+"/"+o.Name, func(t *testing.T) {
			for key, why := range c.Skip {
				if o.has(key) {
					t.Skip(why)
				}
			}
			c.around(t, func(t *testing.T) { o.run(t, c.New(t), c.Which) })
		})
	}
}

// needs are what the fact can't do without.
func (o Oracle) needs() (all []need) {
	for _, s := range o.Steps {
		all = append(all, verbs[s.Verb].needs...)
		for _, arg := range s.Args {
			if n, ok := offered[arg]; ok {
				all = append(all, n)
			}
			if onVolume(arg) {
				all = append(all, aDisk)
			}
		}
	}
	return all
}

func (o Oracle) run(t *testing.T, f *Fixture, which func(*testing.T, []winerr.Errno) winerr.Errno) {
	f.skipWithout(t, o.needs())
	o.call(t, f, which)
	if t.Failed() {
		t.Logf("%s says so of %s", o.Source, o.Windows)
	}
}

// call makes the calls up to the first that doesn't give what it must.
func (o Oracle) call(t *testing.T, f *Fixture, which func(*testing.T, []winerr.Errno) winerr.Errno) {
	t.Helper()
	r := oracleRun{f: f, which: which, handles: map[string]any{}}
	for _, s := range o.Steps {
		if r.step(t, s); t.Failed() {
			return
		}
	}
}
