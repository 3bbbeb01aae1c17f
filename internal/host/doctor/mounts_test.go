// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Each condition of a share has its own advice, also beside others.
func TestShareAdvice(t *testing.T) {
	for reason, want := range map[csiproxy.Reason]string{
		csiproxy.ReasonShareRefused:     "#stale-smb-credentials",
		csiproxy.ReasonShareUnreachable: "-Port 445",
		csiproxy.ReasonShareNotMapped:   "end the pods",
		csiproxy.ReasonShareUnknown:     "#getvolume",
	} {
		if got := shareAdvice([]csiproxy.Condition{{Reason: csiproxy.ReasonReadOnly}, {Reason: reason}}); !strings.Contains(got, want) {
			t.Errorf("%s: %s", reason, got)
		}
	}
}
