// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"errors"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestParse(t *testing.T) {
	for p, want := range map[csiproxy.ISCSIPortal]ISCSIPortal{
		{Address: "10.0.0.1", Port: 0}:                      {Address: "10.0.0.1", Port: 3260},
		{Address: "10.0.0.1", Port: 860}:                    {Address: "10.0.0.1", Port: 860},
		{Address: "Storage-1.example.com", Port: 3260}:      {Address: "Storage-1.example.com", Port: 3260},
		{Address: "host_1", Port: 65535}:                    {Address: "host_1", Port: 65535},
		{Address: "2001:DB8:0:0::1", Port: 0}:               {Address: "2001:db8::1", Port: 3260},
		{Address: "[2001:db8::1]", Port: 3260}:              {Address: "2001:db8::1", Port: 3260},
		{Address: "fe80::1%12", Port: 0}:                    {Address: "fe80::1%12", Port: 3260},
		{Address: "[fe80::1%eth-0.1]", Port: 0}:             {Address: "fe80::1%eth-0.1", Port: 3260},
		{Address: "::ffff:10.0.0.1", Port: 0}:               {Address: "10.0.0.1", Port: 3260},
		{Address: strings.Repeat("a.", 127) + "a", Port: 0}: {Address: strings.Repeat("a.", 127) + "a", Port: 3260},
	} {
		if got, err := ParsePortal(p); err != nil || got != want {
			t.Errorf("%+v is %+v, %v", p, got, err)
		}
	}
	for _, address := range []string{
		"", " ", "a b", "10.0.0.1 ", "host\x00", "host\n", "host:3260", "[10.0.0.1]", "[host]", "[2001:db8::1",
		"2001:db8::1]", "::g",
		"fe80::1%a b", "fe80::1%\x00", "fe80::1%ü", "höst", `\\host`, "*", "a*", strings.Repeat("a", 256),
		"::%]", "[::%]]", "[::%[]", "::%", "10.0.0.256", "10.0.0", "host.1", "1",
	} {
		if got, err := ParsePortal(csiproxy.ISCSIPortal{Address: address}); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q is taken as %+v, %v", address, got, err)
		}
	}
}

func TestSame(t *testing.T) {
	at := func(address string) ISCSIPortal { return ISCSIPortal{Address: address, Port: 3260} }
	for _, same := range [][2]string{{"10.0.0.1", "10.0.0.1"}, {"HOST", "host"}, {"2001:DB8::1", "[2001:db8:0::1]"},
		{"::ffff:10.0.0.1", "10.0.0.1"}} {
		if !SamePortal(at(same[0]), at(same[1])) {
			t.Errorf("%q aren't the same", same)
		}
	}
	for _, other := range [][2]string{{"10.0.0.1", "10.0.0.10"}, {"host", "host2"}, {"2001:db8::1", "2001:db8::2"}} {
		if SamePortal(at(other[0]), at(other[1])) {
			t.Errorf("%q are the same", other)
		}
	}
	if SamePortal(at("host"), ISCSIPortal{Address: "host", Port: 860}) {
		t.Error("two ports are the same")
	}
}

func TestParseText(t *testing.T) {
	for text, want := range map[string]ISCSIPortal{
		"10.0.0.1":          {Address: "10.0.0.1", Port: 3260},
		"10.0.0.1:3261":     {Address: "10.0.0.1", Port: 3261},
		"[fd00::1]:3261":    {Address: "fd00::1", Port: 3261},
		"[fd00::1]":         {Address: "fd00::1", Port: 3260},
		"FD00:0::2":         {Address: "fd00::2", Port: 3260},
		"host.example:3260": {Address: "host.example", Port: 3260},
	} {
		if got, err := ParsePortalText(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ":3260", "hello world", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:x", "10.0.0.1:65536", "[fd00::1", "a:b:c"} {
		if got, err := ParsePortalText(text); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q is taken as %+v, %v", text, got, err)
		}
	}
}

func FuzzParsePortal(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "[::1]", "host.example.com", "fe80::1%eth0", "::%]", "::ffff:1.2.3.4%1"} {
		f.Add(s, uint16(0))
	}
	f.Fuzz(func(t *testing.T, address string, port uint16) {
		p, err := ParsePortal(csiproxy.ISCSIPortal{Address: address, Port: port})
		if err != nil {
			if !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Fatalf("%q: %v", address, err)
			}
			return
		}
		again, err := ParsePortal(csiproxy.ISCSIPortal(p))
		if err != nil || again != p || p.Port == 0 || strings.ContainsAny(p.Address, " \x00[]") || len(p.Address) > 255 {
			t.Fatalf("%q is %+v, and that %+v, %v", address, p, again, err)
		}
	})
}

func TestParseMechanism(t *testing.T) {
	for text, want := range map[string]ISCSIPortal{
		`SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0`: {Address: "10.61.169.28", Port: 3260},
		`SendTargets:10.61.169.28 3260`:                          {Address: "10.61.169.28", Port: 3260},
		`sendtargets:*Host.example.com 0065535 X Y`:              {Address: "Host.example.com", Port: 65535},
		`SendTargets:*2001:DB8:0::1 0003260 Root`:                {Address: "2001:db8::1", Port: 3260},
		`SendTargets:*[2001:db8::1] 0003260 Root`:                {Address: "2001:db8::1", Port: 3260},
	} {
		if got, ok := ParsePortalMechanism(text); !ok || got != want {
			t.Errorf("%q is %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "SendTargets:", "SendTargets:*", "SendTargets:*10.0.0.1", "SendTargets:*10.0.0.1 0",
		"SendTargets:*10.0.0.1 65536", "SendTargets:*10.0.0.1 -1",
		"SendTargets:*10.0.0.1 x", "iSNSServer:10.0.0.1 0003205", `HBARoot\ISCSIPRT\0000_0`, "sendtarget", "10.0.0.1 3260",
	} {
		if got, ok := ParsePortalMechanism(text); ok {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func FuzzParsePortalMechanism(f *testing.F) {
	f.Add(`SendTargets:*10.61.169.28 0003260 Root\ISCSIPRT\0000_0`)
	f.Add("SendTargets:*[::1] 1 x")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := ParsePortalMechanism(s)
		if ok && (p.Address == "" || p.Port == 0 || !SamePortal(p, p)) || !ok && p != (ISCSIPortal{}) {
			t.Fatalf("%q is %+v, %v", s, p, ok)
		}
	})
}
