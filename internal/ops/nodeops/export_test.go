// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import "github.com/csi-proxy/csi-proxy/internal/windows/win"

// SetLimits sets how many entries one call removes, how many all calls keep in memory, and how many levels they have open.
func (f *Filesystem) SetLimits(removals, listed, depth int) {
	f.limits = limits{removals, listed, depth}
}

// GroupsOf returns the groups of operations on a node.
func GroupsOf(n *Node) Groups { return n.groups }

// CallDirectly lets f make its calls of files on sys, without bounds.
func (f *Filesystem) CallDirectly(sys win.System) { f.sys = sys }
