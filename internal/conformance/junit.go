// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/xml"
	"io"
	"strconv"
)

// The form of JUnit reports that CI systems read.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string    `xml:"name,attr"`
		Class   string    `xml:"classname,attr"`
		Time    string    `xml:"time,attr"` // seconds
		Failure *junitWhy `xml:"failure"`
		Skipped *junitWhy `xml:"skipped"`
	}
	junitWhy struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes results as a JUnit report, with a suite for each version of a group.
// What isn't applicable and known differences are skipped cases there, with the reason.
func WriteJUnit(w io.Writer, results []Result) error {
	var report junitSuites
	at := make(map[string]int)
	for _, r := range results {
		name := r.Group + "/" + r.Version
		i, ok := at[name]
		if !ok {
			i = len(report.Suites)
			at[name] = i
			report.Suites = append(report.Suites, junitSuite{Name: name})
		}
		suite := &report.Suites[i]
		c := junitCase{Name: r.Check, Class: r.Group + "." + r.Version, Time: strconv.FormatFloat(r.Took, 'f', 3, 64)}
		why := &junitWhy{Message: string(r.Outcome) + ": " + r.Why, Text: r.Promise}
		suite.Tests++
		switch r.Outcome {
		case Failed:
			suite.Failures++
			c.Failure = why
		case NotApplicable, KnownDifference:
			suite.Skipped++
			c.Skipped = why
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(report); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
