// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import "testing"

// Windows tells no program of the process to which drivers' handles belong.
func TestRemedyForDrivers(t *testing.T) {
	if got := remedy(systemProcess, ""); got != askFilters {
		t.Errorf("for a driver: %q", got)
	}
	if got := remedy(systemProcess+4, ""); got != endProcess {
		t.Errorf("for an unknown program: %q", got)
	}
}
