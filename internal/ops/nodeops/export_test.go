// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

// SetLimits sets how many entries one call removes, how many all calls keep in memory, and how many levels they have open.
func (f *Filesystem) SetLimits(removals, listed, depth int) {
	f.limits = limits{removals, listed, depth}
}
