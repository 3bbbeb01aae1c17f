// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Windows accepts any sequence of UTF-16 units except NUL as a name. A name may contain half of a
// surrogate pair, inexpressible in UTF-8. To list, open and delete such files, names are WTF-8 in
// Go, as in package os on Windows: UTF-8 that encodes half a pair as the three bytes of its number.
//
// Source: https://simonsapin.github.io/wtf-8/

// AppendUTF16 appends the UTF-16 units of a WTF-8 string to u, without a final NUL. Bytes outside
// of valid WTF-8 become U+FFFD.
func AppendUTF16(u []uint16, s string) []uint16 {
	u = slices.Grow(u, len(s)) // a unit takes a byte at least
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 && isHalfPair(s) {
			u = append(u, uint16(s[0]&0x0F)<<12|uint16(s[1]&0x3F)<<6|uint16(s[2]&0x3F))
			s = s[3:]
			continue
		}
		u = utf16.AppendRune(u, r)
		s = s[size:]
	}
	return u
}

// isHalfPair reports whether s begins with half a surrogate pair: U+D800 to U+DFFF.
func isHalfPair(s string) bool {
	return len(s) >= 3 && s[0] == 0xED && 0xA0 <= s[1] && s[1] <= 0xBF && 0x80 <= s[2] && s[2] <= 0xBF
}

// StringFromUTF16 returns UTF-16 units as WTF-8. AppendUTF16 is the exact inverse.
func StringFromUTF16(u []uint16) string {
	b := make([]byte, 0, len(u))
	for i := 0; i < len(u); i++ {
		r := rune(u[i])
		switch {
		case !utf16.IsSurrogate(r):
			b = utf8.AppendRune(b, r)
		case i+1 < len(u) && utf16.DecodeRune(r, rune(u[i+1])) != utf8.RuneError:
			b = utf8.AppendRune(b, utf16.DecodeRune(r, rune(u[i+1])))
			i++
		default:
			b = append(b, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
		}
	}
	return string(b)
}
