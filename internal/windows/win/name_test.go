// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win_test

import (
	"fmt"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestSameName(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"Kubelet", "kUBELET", true},
		{"Straße", "STRAßE", true},
		{"Straße", "STRASSE", false},
		{"Käse ÿ", "KÄSE Ÿ", true},
		{"\u03c2", "\u03c3", true}, // both are small sigmas
		{"k", "\u212a", false},     // KELVIN SIGN
		{"s", "\u017f", false},     // LATIN SMALL LETTER LONG S
		{"i", "\u0131", false},     // LATIN SMALL LETTER DOTLESS I
		{"µ", "\u039c", false},     // MICRO SIGN isn't Greek
		{"\U00010428", "\U00010400", false},
		{"a\xED\xA0\x80", "A\xED\xA0\x80", true}, // half a surrogate pair
		{"\xED\xA0\x80", "\xED\xA0\x81", false},
		{"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD", false},
		{"a", "b", false},
		{"ab", "A", false},
		{"aä", "Bä", false},
		{"aä", "Ab", false},
		{"[", "{", false}, // as far apart as a letter's two cases
	} {
		simtest.Want(t, fmt.Sprintf("Equal(%q, %q)", c.a, c.b), win.SameName(c.a, c.b), c.want)
		if got := win.LowerName(c.a) == win.LowerName(c.b); got != c.want {
			t.Errorf("Lower(%q) = %q, Lower(%q) = %q", c.a, win.LowerName(c.a), c.b, win.LowerName(c.b))
		}
	}
}

// Names in ASCII, as most are, are compared without a copy.
func TestSameNameAllocations(t *testing.T) {
	simtest.Want(t, "allocations", testing.AllocsPerRun(1, func() { win.SameName("Kubelet", "kUBELET") }), 0)
}

// For each character: LowerName and UpperName agree on what is the same, and never lead from
// another character to ASCII.
func TestEachCharacter(t *testing.T) {
	for r := rune(0); r <= 0x2FFFF; r++ {
		if r == 0xD800 {
			r = 0xE000
		}
		s := string(r)
		if !win.SameName(win.LowerName(s), s) || win.LowerName(win.UpperName(s)) != win.LowerName(s) {
			t.Errorf("%U: upper %q, lower %q", r, win.UpperName(s), win.LowerName(s))
		}
		if r >= 0x80 && (win.UpperName(s) < "\x80" || win.LowerName(s) < "\x80") {
			t.Errorf("%U becomes ASCII", r)
		}
	}
	simtest.Want(t, "lower case", win.LowerName(`\\Server\C$`), `\\server\c$`)
}

func TestLength(t *testing.T) {
	for s, want := range map[string]int{"": 0, "aä☃": 3, "𐐀": 2, "\xff": 1} {
		simtest.Want(t, fmt.Sprintf("Length(%q)", s), win.NameLength(s), want)
	}
}

func TestChecks(t *testing.T) {
	for what, c := range map[string]struct {
		check     func(string) error
		good, bad []string
	}{
		"element": {
			win.CheckNameElement,
			[]string{"a", "a..b", ".hidden", "pvc 1", "kubernetes.io~csi", strings.Repeat("ä", 255)},
			[]string{"", ".", "..", "a.", "a ", "a:b", "a/b", `a\b`, "a?", "a\x00", "a\u0085", strings.Repeat("ä", 256),
				strings.Repeat("𐐀", 128)},
		},
		"service": {
			win.CheckServiceName,
			[]string{"MSiSCSI", "a service: with. ", strings.Repeat("ä", 256)},
			[]string{"", `a\b`, "a/b", "a\x00", "\xff", strings.Repeat("ä", 257)},
		},
	} {
		for _, s := range c.good {
			simtest.WantErrorOf(t, fmt.Sprintf("%s %q", what, s), c.check(s), nil)
		}
		for _, s := range c.bad {
			simtest.WantErrorOf(t, fmt.Sprintf("%s %q", what, s), c.check(s), csiproxy.ErrInvalidArgument)
		}
	}
}
