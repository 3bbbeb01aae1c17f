// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package table prints what nodes and the API server say, for people and for programs.
// Everything that they say is data: no sequence that a terminal obeys gets through.
package table

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/csi-proxy/csi-proxy/internal/quote"
)

// Table aligns columns, and marks empty fields.
type Table struct{ lines *tabwriter.Writer }

// New returns a table with a header.
func New(w io.Writer, header ...string) Table {
	t := Table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	t.Row(header...)
	return t
}

// Row adds a row.
func (t Table) Row(fields ...string) {
	for i, field := range fields {
		if fields[i] = quote.Terminal(field); field == "" {
			fields[i] = "-"
		}
	}
	fmt.Fprintln(t.lines, strings.Join(fields, "\t"))
}

// Flush writes the rows.
func (t Table) Flush() error { return t.lines.Flush() }

// Lines writes lines.
func Lines(w io.Writer, lines ...string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, quote.Terminal(line)); err != nil {
			return err
		}
	}
	return nil
}

// Line writes a line.
func Line(w io.Writer, format string, args ...any) error {
	return Lines(w, fmt.Sprintf(format, args...))
}

// JSON writes v for programs.
func JSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(quote.JSON(text), '\n'))
	return err
}

// YesNo says whether something is so.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
