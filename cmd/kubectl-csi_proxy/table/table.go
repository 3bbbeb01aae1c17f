// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package table prints what nodes and the API server say, for people and for programs.
// Everything that they say is data: no sequence that a terminal obeys gets through.
package table

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// Table aligns columns, and marks empty fields.
type Table struct {
	w       io.Writer
	header  []string
	rows    [][]string
	colours []terminal.Colour
	compact bool
}

// New returns a table with a header.
func New(w io.Writer, header ...string) *Table { return &Table{w: w, header: header} }

// Compact leaves out the columns that are empty in each row.
func (t *Table) Compact() { t.compact = true }

// Row adds a row.
func (t *Table) Row(fields ...string) { t.Coloured(terminal.None, fields...) }

// Coloured adds a row in a colour.
func (t *Table) Coloured(c terminal.Colour, fields ...string) {
	t.rows = append(t.rows, fields)
	t.colours = append(t.colours, c)
}

// Flush writes the table; nothing if it has no rows.
func (t *Table) Flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	var aligned bytes.Buffer
	lines := tabwriter.NewWriter(&aligned, 0, 0, 3, ' ', 0)
	for _, row := range slices.Concat([][]string{t.header}, t.rows) {
		var fields []string
		for i, field := range row {
			switch {
			case t.compact && !slices.ContainsFunc(t.rows, func(r []string) bool { return r[i] != "" }):
			case field == "":
				fields = append(fields, "-")
			default:
				fields = append(fields, quote.Terminal(field))
			}
		}
		fmt.Fprintln(lines, strings.Join(fields, "\t"))
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	colours := slices.Concat([]terminal.Colour{terminal.None}, t.colours)
	for line := range strings.Lines(aligned.String()) {
		if _, err := fmt.Fprintln(t.w, colours[0].Paint(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
		colours = colours[1:]
	}
	return nil
}

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
