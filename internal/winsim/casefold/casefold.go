// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package casefold compares names as Windows does: each UTF-16 unit through the
// upper-case table that NTFS volumes, the service manager and the redirector use.
package casefold

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Upper returns the form in which names are compared and ordered.
//
// Windows' table is Unicode's simple upper case with two exceptions. It leaves
// characters outside of the basic plane alone, because there a UTF-16 unit is half
// a character. It also leaves the few letters alone whose upper case is in another
// script's block, so that a name never equals one in plain ASCII letters by chance:
// U+212A KELVIN SIGN isn't K, and U+017F LATIN SMALL LETTER LONG S isn't S.
func Upper(name string) string {
	if utf8.ValidString(name) {
		return strings.Map(upper, name)
	}
	var b strings.Builder // half surrogate pairs stay as they are
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError {
			b.WriteString(name[:size])
		} else {
			b.WriteRune(upper(r))
		}
		name = name[size:]
	}
	return b.String()
}

func upper(r rune) rune {
	upper := unicode.ToUpper(r)
	if r > 0xFFFF || upper > 0xFFFF || r >= 0x80 && upper < 0x80 || r == 'µ' {
		return r
	}
	return upper
}

// Equal reports whether Windows takes two names for the same.
func Equal(a, b string) bool { return Upper(a) == Upper(b) }
