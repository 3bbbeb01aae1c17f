// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package casefold

import "testing"

func TestEqual(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"MSiSCSI", "msiscsi", true},
		{"Straße", "STRAßE", true},
		{"Straße", "STRASSE", false},
		{"éÿ", "ÉŸ", true},
		{"k", "\u212a", false}, // KELVIN SIGN
		{"s", "\u017f", false}, // LATIN SMALL LETTER LONG S
		{"µ", "\u039c", false}, // MICRO SIGN isn't Greek
		{"\U00010428", "\U00010400", false},
		{"a", "b", false},
		{"a\xed\xa0\xbd", "A\xed\xa0\xbd", true},
		{"\xed\xa0\xbd", "\xed\xa0\xbe", false}, // halves of surrogate pairs
	} {
		if got := Equal(tc.a, tc.b); got != tc.want {
			t.Errorf("Equal(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
}
