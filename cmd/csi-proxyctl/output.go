// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// format is what --output chooses.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

// String, Set and Type are pflag.Value.
func (f *format) String() string { return string(*f) }

func (f *format) Type() string { return "format" }

func (f *format) Set(s string) error {
	switch format(s) {
	case formatText, formatJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be %s or %s", formatText, formatJSON)
}

// reply is the output of a command, in both formats.
type reply struct {
	// json is for programs. Its names are in snake_case and don't change; sizes are in
	// bytes. Nil is printed as {}.
	json any
	// header and rows are a table for people. Both may be empty.
	header []string
	rows   [][]string
	// colours are those of rows on a terminal, by their index; none for the others.
	colours map[int]terminal.Colour
	// warnings are problems that don't fail the command.
	warnings []string
	// raw is printed unchanged in both formats, instead of everything else.
	raw []byte
}

// line is a reply of one line.
func line(json any, text string) reply { return reply{json: json, rows: [][]string{{text}}} }

// answer shows an answer of one value, whose key in JSON is given.
func answer[T any](key string, text func(T) string) func(T) reply {
	return func(value T) reply { return line(map[string]T{key: value}, text(value)) }
}

// column is a list of what has nothing but a name, which is its key in JSON.
func column[T any](header, key string, all []T) reply {
	r, objects := reply{header: []string{header}}, []map[string]T{}
	for _, one := range all {
		objects = append(objects, map[string]T{key: one})
		r.rows = append(r.rows, []string{fmt.Sprint(one)})
	}
	r.json = objects
	return r
}

// list returns a list that isn't null in JSON.
func list[T any](all []T) []T { return append([]T{}, all...) }

// done is the reply of a command without output.
var done = reply{}

// printed is the reply of a command that has printed everything already.
var printed = reply{raw: []byte{}}

func (p *program) print(r reply) error {
	for _, warning := range r.warnings {
		fmt.Fprintf(p.stderr, "csi-proxyctl: %s\n", quote.Terminal(warning))
	}
	switch {
	case r.raw != nil:
		_, err := p.stdout.Write(r.raw)
		return err
	case p.format == formatJSON:
		if r.json == nil {
			r.json = struct{}{}
		}
		return p.printJSON(r.json)
	}
	return r.printTable(p.stdout, terminal.HasColours(p.stdout))
}

// printJSON prints one line of JSON.
func (p *program) printJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(append(quote.JSON(text), '\n'))
	return err
}

func (r reply) printTable(out io.Writer, colours bool) error {
	var aligned bytes.Buffer
	table := tabwriter.NewWriter(&aligned, 0, 8, 2, ' ', 0)
	rows := r.rows
	if len(r.header) > 0 {
		rows = append([][]string{r.header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = quote.Terminal(cell)
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !colours {
		_, err := aligned.WriteTo(out)
		return err
	}
	row := len(r.rows) - len(rows) // -1 is the header
	for line := range strings.Lines(aligned.String()) {
		if _, err := fmt.Fprintln(out, r.colours[row].Paint(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
		row++
	}
	return nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func onlineOffline(online bool) string {
	if online {
		return "online"
	}
	return "offline"
}

// size returns a number of bytes with a unit.
func size(bytes int64) string {
	if bytes < 0 {
		return strconv.FormatInt(bytes, 10) // not a valid size
	}
	return humanize.IBytes(uint64(bytes))
}

// exactSize is size with the exact number of bytes.
func exactSize(bytes int64) string { return fmt.Sprintf("%s (%d bytes)", size(bytes), bytes) }
