// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winerr

import (
	"strings"
	"testing"
)

// Numbers are written as Microsoft's pages write them, so that they can be searched
// for.
func TestErrnoNumber(t *testing.T) {
	for e, number := range map[Errno]string{
		ErrorAccessDenied:     "Windows error 5",
		0xFFFF:                "Windows error 65535",
		FVELockedVolume:       "Windows error 0x80310000",
		ISDSCConnectionFailed: "Windows error 0xEFFF0003",
		0x10000:               "Windows error 0x00010000", // one without a text
	} {
		if got := e.Error(); !strings.HasSuffix(strings.TrimSuffix(got, ")"), number) {
			t.Errorf("%d: %q doesn't end with %q", uint32(e), got, number)
		}
	}
}
