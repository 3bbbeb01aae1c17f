// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestParseNumber(t *testing.T) {
	for s, want := range map[string]csiproxy.DiskNumber{"0": 0, "7": 7, "4294967295": 4294967295} {
		if n, err := csiproxy.ParseDiskNumber(s); err != nil || n != want || n.String() != s {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	for _, s := range []string{"", "-1", "+1", " 1", "1 ", "0x1", "1_0", "4294967296", "99999999999999999999", "disk"} {
		if n, err := csiproxy.ParseDiskNumber(s); err == nil || !strings.Contains(err.Error(), `"`+s+`"`) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}
