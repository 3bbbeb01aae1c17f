// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

// Names returns the names of all checks, in the order of their findings.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}
