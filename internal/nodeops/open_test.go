// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"slices"
	"testing"
)

// open are the tests of what doesn't hold yet. Each change that makes one hold takes it off
// the list, which ends empty.
var open = []string{
	`TestPairs/volume_and_share`,
}

// skipOpen skips a test that is still open.
func skipOpen(t *testing.T) {
	t.Helper()
	if slices.Contains(open, t.Name()) {
		t.Skip("still open")
	}
}
