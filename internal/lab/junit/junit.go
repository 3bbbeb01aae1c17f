// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package junit writes results in the form of JUnit's reports, as far as CI systems read it.
package junit

import (
	"encoding/xml"
	"io"
	"math"
)

// Case is the result of a test: it has passed, has failed or was skipped.
type Case struct {
	Name    string  `xml:"name,attr"`
	Class   string  `xml:"classname,attr,omitempty"`
	Seconds float64 `xml:"time,attr"`
	Failure *Why    `xml:"failure"`
	Skipped *Why    `xml:"skipped"`
}

// Why is the reason of a failure, or for skipping a test.
type Why struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type suite struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Cases    []Case `xml:"testcase"`
}

// Report is what is written: suites in the order in which they got their first cases.
type Report struct {
	XMLName xml.Name `xml:"testsuites"`
	Suites  []*suite `xml:"testsuite"`
}

// Add adds a case to the suite of a name.
func (r *Report) Add(name string, c Case) {
	var to *suite
	for _, s := range r.Suites {
		if s.Name == name {
			to = s
		}
	}
	if to == nil {
		to = &suite{Name: name}
		r.Suites = append(r.Suites, to)
	}
	c.Seconds = math.Round(c.Seconds*1000) / 1000 // else it may have an exponent
	to.Cases = append(to.Cases, c)
	to.Tests++
	if c.Failure != nil {
		to.Failures++
	}
	if c.Skipped != nil {
		to.Skipped++
	}
}

// Write writes the report.
func (r *Report) Write(w io.Writer) error {
	text, err := xml.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = io.WriteString(w, xml.Header+string(text)+"\n")
	}
	return err
}
