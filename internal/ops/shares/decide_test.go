// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// tableOf returns the cells of the table in the package comment that begins with a heading.
func tableOf(t *testing.T, heading string) (columns []string, rows map[string][]string) {
	t.Helper()
	source, err := os.ReadFile("mappings.go")
	simtest.Must(t, err)
	rows = make(map[string][]string)
	for line := range strings.Lines(string(source)) {
		text, isTable := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		if !isTable {
			if len(rows) > 0 {
				break
			}
			columns = nil
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(text, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		switch {
		case columns == nil && cells[0] == heading:
			columns = cells[1:]
		case columns != nil:
			rows[cells[0]] = cells[1:]
		}
	}
	if len(rows) == 0 {
		t.Fatalf("the package comment has no table %q", heading)
	}
	return columns, rows
}

// numbersOf returns the numbers of a row: those that it names, or some that no row names.
func numbersOf(t *testing.T, row string) []error {
	t.Helper()
	if row == "any other" {
		return []error{winerr.Errno(53), winerr.Errno(67), winerr.Errno(1450), winerr.Errno(59999), errors.New("no answer of Windows")}
	}
	var answers []error
	for field := range strings.FieldsSeq(row) {
		switch n, err := strconv.Atoi(field); {
		case err != nil:
			return answers
		case n == 0:
			answers = append(answers, nil)
		default:
			answers = append(answers, winerr.Errno(n))
		}
	}
	return answers
}

// The first table of the package comment.
func TestDecide(t *testing.T) {
	columns, rows := tableOf(t, "answer")
	for row, cells := range rows {
		cases := numbersOf(t, row)
		isMapped := row != "none: not mapped"
		if !isMapped {
			cases = []error{nil}
		}
		for _, answer := range cases {
			for i, column := range columns {
				f := facts{answer: answer, credentials: comparison(column),
					disconnected: strings.HasSuffix(row, "while disconnected"), staging: strings.HasSuffix(row, "for StageShare"),
					lacksPrivacy: strings.HasSuffix(row, "without its privacy")}
				if isMapped {
					f.name = data
				}
				choice, err := decide(f)
				simtest.Want(t, row+", "+column, choice, action(cells[i]))
				if hasError := choice == refuseCaller || choice == replaceIt || choice == replaceIdle && (column != "unknown" || f.lacksPrivacy); hasError != (err != nil) {
					t.Errorf("%s, %s: the error is %v", row, column, err)
				}
			}
		}
	}
}

// The second table of the package comment.
func TestDecideConflict(t *testing.T) {
	_, rows := tableOf(t, "the other mapping")
	for row, cells := range rows {
		isOurs, isOnShare := strings.Contains(row, "CSI Proxy"), strings.Contains(row, "the wanted share")
		for i, f := range [][]facts{
			{{name: data}, {name: data, credentials: unknownCredentials, staging: true}},
			{{name: data, answer: winerr.ErrorNoSuchLogonSession}},
			{{name: data, answer: winerr.ErrorBadNetPath}},
		} {
			for _, one := range f {
				simtest.Want(t, row, decideConflict(one, isOurs, isOnShare), fate(cells[i]))
			}
		}
	}
	used := facts{name: data, credentials: otherUser, staging: true}
	simtest.Want(t, "of another user", decideConflict(used, false, true), holds)
}
