// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes a report for people: a table of the nodes, one of the volumes for in-tree
// plugins, and the problems.
func Print(w io.Writer, r Report) error {
	if len(r.Nodes) == 0 {
		_, err := fmt.Fprintln(w, "The cluster has no Windows nodes.")
		return err
	}
	table := newTable(w, "NODE", "READY", "CSI DRIVERS", "CSI PROXY", "IN-TREE VOLUMES", "MIGRATED", "PROBLEMS")
	volumes := 0
	for _, n := range r.Nodes {
		var inTree, migrated int
		for _, v := range n.Volumes {
			if v.By == ByInTree {
				inTree++
			} else {
				migrated++
			}
		}
		volumes += len(n.Volumes)
		table.row(n.Name, yesNo(n.Ready), strings.Join(n.Drivers, ","), n.Daemon.Version,
			strconv.Itoa(inTree), strconv.Itoa(migrated), strconv.Itoa(len(n.Problems)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if volumes > 0 {
		fmt.Fprintln(w)
		table = newTable(w, "NODE", "VOLUME", "IN-TREE PLUGIN", "HANDLED BY", "ITS CSI DRIVER", "PODS")
		for _, n := range r.Nodes {
			for _, v := range n.Volumes {
				table.row(n.Name, v.Name, v.Plugin, v.By, v.Driver, strings.Join(v.Pods, ","))
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.Nodes {
		for _, problem := range n.Problems {
			fmt.Fprintf(w, "%s: %s\n", n.Name, problem)
		}
	}
	_, err := fmt.Fprintln(w, r.Summary())
	return err
}

// Summary is the report in one line.
func (r Report) Summary() string {
	ready := 0
	for _, n := range r.Nodes {
		if n.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d of %d Windows nodes are ready for CSI.", ready, len(r.Nodes))
}

// table aligns columns, and marks empty fields.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, header ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)}
	t.row(header...)
	return t
}

func (t table) row(fields ...string) {
	for i, field := range fields {
		if field == "" {
			fields[i] = "-"
		}
	}
	fmt.Fprintln(t, strings.Join(fields, "\t"))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
