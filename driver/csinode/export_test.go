// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"testing"
	"time"
)

// SetTakeoverTimeout sets how long New waits for another process, until the test ends.
func SetTakeoverTimeout(t *testing.T, d time.Duration) {
	before := takeoverTimeout
	takeoverTimeout = d
	t.Cleanup(func() { takeoverTimeout = before })
}
