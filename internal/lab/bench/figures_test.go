// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var update = flag.Bool("update", false, "write the figures as they are now to "+figuresFile+", and those that pages quote")

const figuresFile = "figures.txt"

// cost is what an operation costs.
type cost struct {
	calls int // to Windows
	took  time.Duration
}

// String gives a cost as figures.txt has it: the calls, and the milliseconds behind a slash if there are any.
func (c cost) String() string {
	if c.took == 0 {
		return strconv.Itoa(c.calls)
	}
	return fmt.Sprintf("%d/%v", c.calls, math.Round(c.ms()*10)/10)
}

func (c cost) ms() float64 { return float64(c.took) / float64(time.Millisecond) }

// table is a table of figures.txt: a line with its title, one with the columns, and the rows.
type table struct {
	title   string
	columns []string
	rows    []*row
}

type row struct {
	name  string
	cells []string
	// spread is how much the figures may differ from those in figures.txt, as a fraction of these.
	spread float64
}

// mayDiffer is the spread. With -update it is a third of that, so that a new figure isn't written at the edge of the spread, nor
// another one each time.
func (r row) mayDiffer() float64 {
	if *update {
		return r.spread / 3
	}
	return r.spread
}

func (t table) row(name string) *row {
	for _, row := range t.rows {
		if row.name == name {
			return row
		}
	}
	return nil
}

// differences lists what is different in another table of the same title. Figures within the spread of a row are
// taken over from the older table.
func (t table) differences(older table) (lines []string) {
	differ := func(name, format string, a ...any) {
		lines = append(lines, fmt.Sprintf("%s: %s: ", t.title, name)+fmt.Sprintf(format, a...))
	}
	if len(older.columns) == 0 {
		return []string{t.title + ": not in " + figuresFile}
	}
	if strings.Join(t.columns, "|") != strings.Join(older.columns, "|") {
		differ("columns", "%q, and %q in %s", t.columns, older.columns, figuresFile)
		return lines
	}
	for _, now := range t.rows {
		was := older.row(now.name)
		if was == nil {
			differ(now.name, "%q, and not in %s", now.cells, figuresFile)
			continue
		}
		for i, cell := range now.cells {
			switch {
			case now.spread > 0 && near(cell, was.cells[i], now.mayDiffer()):
				now.cells[i] = was.cells[i]
			case cell != was.cells[i]:
				differ(now.name, "%s for %s, and %s in %s", cell, t.columns[i], was.cells[i], figuresFile)
			}
		}
	}
	for _, was := range older.rows {
		if t.row(was.name) == nil {
			differ(was.name, "only in %s", figuresFile)
		}
	}
	return lines
}

// near reports whether the numbers in two cells differ by at most a fraction of the second ones.
func near(cell, was string, spread float64) bool {
	numbers, older := strings.Split(cell, "/"), strings.Split(was, "/")
	if len(numbers) != len(older) {
		return false
	}
	for i := range numbers {
		a, err := strconv.ParseFloat(numbers[i], 64)
		b, err2 := strconv.ParseFloat(older[i], 64)
		if err != nil || err2 != nil || math.Abs(a-b) > spread*b {
			return false
		}
	}
	return true
}

const head = `# What CSI Proxy costs, in figures that are the same on every machine. A cell has the calls to Windows and,
# behind a slash, the milliseconds that they take on the simulated node, with the delays of a quick cloud
# node. "make figures" writes this file, and its tests compare: package bench on any machine,
# deploy/packaging/check-size the programs.
`

// readFigures returns the tables of figures.txt.
func readFigures(t *testing.T) (tables []table) {
	text, err := os.ReadFile(figuresFile)
	if os.IsNotExist(err) && *update {
		return nil
	}
	must(t, err)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		switch title, isTitle := strings.CutPrefix(line, "== "); {
		case isTitle:
			tables = append(tables, table{title: title})
		case line == "" || strings.HasPrefix(line, "#"):
		default:
			last := &tables[len(tables)-1]
			name, cells, _ := strings.Cut(line, " |")
			if strings.TrimSpace(name) == "" {
				last.columns = cellsOf(cells)
			} else {
				last.rows = append(last.rows, &row{name: strings.TrimSpace(name), cells: cellsOf(cells)})
			}
		}
	}
	return tables
}

func cellsOf(text string) (cells []string) {
	for cell := range strings.SplitSeq(text, "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

func writeFigures(t *testing.T, tables []table) {
	out := bytes.NewBufferString(head)
	for _, table := range tables {
		fmt.Fprintf(out, "\n== %s\n", table.title)
		w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
		fmt.Fprintf(w, "\t| %s\n", strings.Join(table.columns, "\t| "))
		for _, row := range table.rows {
			fmt.Fprintf(w, "%s\t| %s\n", row.name, strings.Join(row.cells, "\t| "))
		}
		must(t, w.Flush())
	}
	must(t, os.WriteFile(figuresFile, out.Bytes(), 0o644))
}

// othersMeasure are the titles of the tables that other programs measure: deploy/packaging/check-size.
var othersMeasure = map[string]bool{"bytes of the programs for windows/amd64": true}

// TestFigures compares what operations cost with figures.txt. So a change that makes one dearer or cheaper shows by
// how much, and its author decides whether that is meant.
func TestFigures(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates, and finds nothing here that it doesn't find in the packages of the operations")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the figures are those of Linux, where the endpoints of a simulated node are sockets")
	}
	var tables []table
	for _, g := range growths {
		tables = append(tables, g.measure(t))
	}
	tables = append(tables, measureStaging(t), measureAllocations(t))
	older := make(map[string]table)
	for _, table := range readFigures(t) {
		older[table.title] = table
	}
	var differences []string
	for _, table := range tables {
		differences = append(differences, table.differences(older[table.title])...)
		delete(older, table.title)
	}
	for _, title := range slices.Sorted(maps.Keys(older)) {
		if othersMeasure[title] {
			tables = append(tables, older[title])
		} else {
			differences = append(differences, title+": only in "+figuresFile)
		}
	}
	if *update {
		writeFigures(t, tables)
	} else if len(differences) > 0 {
		t.Errorf("these figures have changed; if that is meant, run make figures:\n%s", strings.Join(differences, "\n"))
	}
	quoteFigures(t, tables)
}
