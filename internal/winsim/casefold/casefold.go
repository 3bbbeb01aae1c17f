// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package casefold compares names as Windows does: each UTF-16 unit through the
// upper-case table that NTFS volumes, the service manager and the redirector use.
package casefold

import (
	"strings"
	"unicode"
)

// Upper returns the form in which names are compared and ordered.
//
// Windows' table is Unicode's simple upper case with two exceptions. It leaves
// characters outside of the basic plane alone, because there a UTF-16 unit is half
// a character. It also leaves the few letters alone whose upper case is in another
// script's block, so that a name never equals one in plain ASCII letters by chance:
// U+212A KELVIN SIGN isn't K, and U+017F LATIN SMALL LETTER LONG S isn't S.
func Upper(name string) string {
	return strings.Map(func(r rune) rune {
		upper := unicode.ToUpper(r)
		if r > 0xFFFF || upper > 0xFFFF || r >= 0x80 && upper < 0x80 || r == 'µ' {
			return r
		}
		return upper
	}, name)
}

// Equal reports whether Windows takes two names for the same.
func Equal(a, b string) bool { return Upper(a) == Upper(b) }
