// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package files

// SetLimits sets how many entries one call removes, and how many it keeps in memory.
func (f *Filesystem) SetLimits(removals, listed int) { f.limits = limits{removals, listed} }
