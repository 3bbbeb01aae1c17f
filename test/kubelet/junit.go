// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"os"
	"strings"
)

// The form of JUnit, as far as CI systems read it.
type (
	testSuite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Cases    []testCase `xml:"testcase"`
	}
	testCase struct {
		Name    string   `xml:"name,attr"`
		Seconds float64  `xml:"time,attr"`
		Failure *failure `xml:"failure"`
	}
	failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes the results to a file.
func writeJUnit(file string, results []result) error {
	suite := testSuite{Name: "kubelet-lab", Tests: len(results)}
	for _, r := range results {
		c := testCase{Name: r.title(), Seconds: r.took.Seconds()}
		if !r.ok() {
			suite.Failures++
			c.Failure = &failure{Message: r.verdict() + ": " + r.what, Text: strings.Join(r.found, "\n")}
		}
		suite.Cases = append(suite.Cases, c)
	}
	content, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte(xml.Header), append(content, '\n')...), 0o644)
}
