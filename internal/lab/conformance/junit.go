// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"io"

	"github.com/csi-proxy/csi-proxy/internal/lab/junit"
)

// WriteJUnit writes results as a JUnit report, with a suite for each version of a group.
// What isn't applicable and known differences are skipped cases there, with the reason.
func WriteJUnit(w io.Writer, results []Result) error {
	var report junit.Report
	for _, r := range results {
		c := junit.Case{Name: r.Check, Class: r.Group + "." + r.Version, Seconds: r.Took}
		why := &junit.Why{Message: string(r.Outcome) + ": " + r.Why, Text: r.Promise}
		switch r.Outcome {
		case Failed:
			c.Failure = why
		case NotApplicable, KnownDifference:
			c.Skipped = why
		}
		report.Add(r.Group+"/"+r.Version, c)
	}
	return report.Write(w)
}
