// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

func TestUTF16(t *testing.T) {
	for name, tt := range map[string]struct {
		text  string
		units []uint16
	}{
		"nothing":               {"", nil},
		"one byte to three":     {"aé☃", []uint16{'a', 0xE9, 0x2603}},
		"a pair":                {"💾", []uint16{0xD83D, 0xDCBE}},
		"the first half":        {"a\xED\xA0\xBDb", []uint16{'a', 0xD83D, 'b'}},
		"the first half, last":  {"\xED\xA0\xBD", []uint16{0xD83D}},
		"the second half":       {"\xED\xB2\xBEb", []uint16{0xDCBE, 'b'}},
		"halves, wrong order":   {"\xED\xB2\xBE\xED\xA0\xBD", []uint16{0xDCBE, 0xD83D}},
		"a half before a pair":  {"\xED\xA0\xBD💾", []uint16{0xD83D, 0xD83D, 0xDCBE}},
		"the replacement":       {"\uFFFD", []uint16{0xFFFD}},
		"neighbours of a half":  {"\uD7FF\uE000", []uint16{0xD7FF, 0xE000}},
		"NUL, which is a unit":  {"a\x00b", []uint16{'a', 0, 'b'}},
		"the last of all":       {"\U0010FFFF", []uint16{0xDBFF, 0xDFFF}},
		"the first with a pair": {"\U00010000", []uint16{0xD800, 0xDC00}},
	} {
		if got := AppendUTF16(nil, tt.text); !slices.Equal(got, tt.units) {
			t.Errorf("%s: units %#x; want %#x", name, got, tt.units)
		}
		if got := StringFromUTF16(tt.units); got != tt.text {
			t.Errorf("%s: %q; want %q", name, got, tt.text)
		}
	}
	for _, text := range []string{"\xFF", "\xED", "\xED\xA0", "\xC0\x80", "\xED\xA0A"} {
		if got := AppendUTF16(nil, text); got[0] != 0xFFFD {
			t.Errorf("%q: units %#x; want U+FFFD", text, got)
		}
	}
}

// Any units round trip, halves of pairs most of all.
func TestUTF16RoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		units := make([]uint16, random.IntN(8))
		for i := range units {
			units[i] = uint16(random.Uint32())
			if random.IntN(2) == 0 {
				units[i] = 0xD800 | units[i]&0x07FF
			}
		}
		if got := AppendUTF16(nil, StringFromUTF16(units)); !slices.Equal(got, units) {
			t.Fatalf("%#x became %q, and that %#x", units, StringFromUTF16(units), got)
		}
	}
}

func FuzzUTF16(f *testing.F) {
	f.Add("a☃💾\xED\xA0\x80", []byte{0x3D, 0xD8, 'a', 0, 0xBE, 0xDC})
	f.Fuzz(func(t *testing.T, text string, b []byte) {
		units := AppendUTF16(nil, text)
		if want := utf16.Encode([]rune(text)); utf8.ValidString(text) && !slices.Equal(units, want) {
			t.Errorf("%q: units %#x; want %#x", text, units, want)
		}
		if again := StringFromUTF16(units); utf8.ValidString(text) && again != text {
			t.Errorf("%q became %q", text, again)
		}
		units = make([]uint16, len(b)/2)
		for i := range units {
			units[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
		if got := AppendUTF16(nil, StringFromUTF16(units)); !slices.Equal(got, units) {
			t.Errorf("%#x became %q, and that %#x", units, StringFromUTF16(units), got)
		}
	})
}
