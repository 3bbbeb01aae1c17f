// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/table"
)

// Print writes the report for people: a table of the nodes, one of the volumes for in-tree
// plugins, and the problems.
func (r Report) Print(w io.Writer) error {
	if len(r.Nodes) == 0 {
		return table.Lines(w, "The cluster has no Windows nodes.")
	}
	nodes := table.New(w, "NODE", "READY", "CSI DRIVERS", "CSI PROXY", "IN-TREE VOLUMES", "MIGRATED", "PROBLEMS")
	volumes := 0
	for _, n := range r.Nodes {
		inTree := 0
		for _, v := range n.Volumes {
			if v.By == ByInTree {
				inTree++
			}
		}
		volumes += len(n.Volumes)
		nodes.Row(n.Name, table.YesNo(n.Ready), strings.Join(n.Drivers, ","), n.Daemon.Version,
			strconv.Itoa(inTree), strconv.Itoa(len(n.Volumes)-inTree), strconv.Itoa(len(n.Problems)))
	}
	if err := nodes.Flush(); err != nil {
		return err
	}
	if volumes > 0 {
		fmt.Fprintln(w)
		inTree := table.New(w, "NODE", "VOLUME", "IN-TREE PLUGIN", "HANDLED BY", "ITS CSI DRIVER", "PODS")
		for _, n := range r.Nodes {
			for _, v := range n.Volumes {
				inTree.Row(n.Name, v.Name, v.Plugin, v.By, v.Driver, strings.Join(v.Pods, ","))
			}
		}
		if err := inTree.Flush(); err != nil {
			return err
		}
	}
	lines := []string{""}
	for _, n := range r.Nodes {
		for _, problem := range n.Problems {
			lines = append(lines, n.Name+": "+problem)
		}
	}
	return table.Lines(w, append(lines, r.Summary())...)
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
