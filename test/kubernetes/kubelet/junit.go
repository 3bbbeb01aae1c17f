// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/lab/junit"
)

// writeJUnit writes the results to a file.
func writeJUnit(file string, results []result) error {
	var report junit.Report
	for _, r := range results {
		c := junit.Case{Name: r.title(), Seconds: r.took.Seconds()}
		switch {
		case r.cannot != "":
			c.Skipped = &junit.Why{Message: r.cannot}
		case !r.ok():
			c.Failure = &junit.Why{Message: r.verdict() + ": " + r.what, Text: strings.Join(r.found, "\n")}
		}
		report.Add("kubelet-lab", c)
	}
	var text bytes.Buffer
	if err := report.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}
