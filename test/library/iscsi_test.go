// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"errors"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func TestParseIQN(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 2)
	for _, s := range []string{
		"iqn.1991-05.com.microsoft:node-target", "iqn.2001-04.com.example", "IQN.2001-04.COM.Example:Storage.1",
		"iqn.2003-01.org.linux-host.x8664:sn.0123456789ab", "iqn.2001-04.com.example:größe",
		"eui." + hex[:16], "EUI." + strings.ToUpper(hex[:16]), "naa." + hex[:16], "naa." + hex,
		"iqn." + strings.Repeat("x", 219),
	} {
		if n, err := csiproxy.ParseIQN(s); err != nil || string(n) != s {
			t.Errorf("%q: %q, %v", s, n, err)
		}
	}
	for _, s := range []string{
		"", "iqn.", "iqn", "eui.", "naa.", "target", "iqn.2001-04.com.example:a b", "iqn.2001-04.com.example:a\x00",
		"iqn.2001-04.com.example:a/b",
		`iqn.2001-04.com.example:'; DROP`, "iqn.2001-04.com.example:*", "iqn.x\n", "iqn.\xff", "eui." + hex[:15],
		"eui." + hex, "naa." + hex[:17], "eui.0123456789abcdeg",
		"eui.0123456789abcd\u212a", "iqn." + strings.Repeat("x", 220), "iqn." + strings.Repeat("ü", 110),
	} {
		if n, err := csiproxy.ParseIQN(s); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q is taken as %q, %v", s, n, err)
		}
	}
	if !csiproxy.IQN("iqn.2001-04.com.example:X").Equal("IQN.2001-04.com.example:x") || csiproxy.IQN("iqn.a").Equal("iqn.b") {
		t.Error("Equal compares something else than the names without their case")
	}
}

func TestPortalString(t *testing.T) {
	for p, want := range map[csiproxy.ISCSIPortal]string{
		{Address: "10.0.0.1"}:                       "10.0.0.1:3260",
		{Address: "storage.example.com", Port: 860}: "storage.example.com:860",
		{Address: "2001:db8::1", Port: 3260}:        "[2001:db8::1]:3260",
		{Address: "[2001:db8::1]"}:                  "[2001:db8::1]:3260",
	} {
		if got := p.String(); got != want {
			t.Errorf("%q with port %d is %s, want %s", p.Address, p.Port, got, want)
		}
	}
}

func FuzzParseIQN(f *testing.F) {
	f.Add("iqn.1991-05.com.microsoft:t")
	f.Add("eui.0123456789abcdef")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := csiproxy.ParseIQN(s)
		if err != nil {
			if !errors.Is(err, csiproxy.ErrInvalidArgument) || n != "" {
				t.Fatalf("%q: %q, %v", s, n, err)
			}
			return
		}
		if len(n) > 223 || strings.ContainsAny(string(n), "\x00 '\"\\/*?%\n") || !n.Equal(csiproxy.IQN(s)) {
			t.Fatalf("%q is accepted as %q", s, n)
		}
	})
}
