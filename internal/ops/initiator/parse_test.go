// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package initiator

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/targetportal"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestParseMechanism(t *testing.T) {
	for text, want := range map[string]win.ISCSIPortal{
		`SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0`: {Address: "10.61.169.28", Port: 3260},
		`SendTargets:10.61.169.28 3260`:                          {Address: "10.61.169.28", Port: 3260},
		`sendtargets:*Host.example.com 0065535 X Y`:              {Address: "Host.example.com", Port: 65535},
		`SendTargets:*2001:DB8:0::1 0003260 Root`:                {Address: "2001:db8::1", Port: 3260},
		`SendTargets:*[2001:db8::1] 0003260 Root`:                {Address: "2001:db8::1", Port: 3260},
	} {
		if got, ok := parseMechanism(text); !ok || got != want {
			t.Errorf("%q is %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "SendTargets:", "SendTargets:*", "SendTargets:*10.0.0.1", "SendTargets:*10.0.0.1 0",
		"SendTargets:*10.0.0.1 65536", "SendTargets:*10.0.0.1 -1",
		"SendTargets:*10.0.0.1 x", "iSNSServer:10.0.0.1 0003205", `HBARoot\ISCSIPRT\0000_0`, "sendtarget", "10.0.0.1 3260",
	} {
		if got, ok := parseMechanism(text); ok {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func FuzzParseMechanism(f *testing.F) {
	f.Add(`SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0`)
	f.Add("SendTargets:*[::1] 1 x")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := parseMechanism(s)
		if ok && (p.Address == "" || p.Port == 0 || !targetportal.Same(p, p)) || !ok && p != (win.ISCSIPortal{}) {
			t.Fatalf("%q is %+v, %v", s, p, ok)
		}
	})
}
