// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"strings"
	"unicode"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// NameLength is the length of s in UTF-16 units, Windows' unit of length. Bytes outside of valid
// UTF-8 count as one unit each.
func NameLength(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// SameName reports whether Windows treats two names as equal. SameName is narrower than
// strings.EqualFold, which equates U+212A KELVIN SIGN with k.
func SameName(a, b string) bool {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i]|b[i] >= utf8.RuneSelf:
			return UpperName(a) == UpperName(b)
		case a[i] != b[i] && upper(rune(a[i])) != upper(rune(b[i])):
			return false
		}
	}
	return len(a) == len(b)
}

// UpperName returns the form in which Windows compares names: each UTF-16 unit by itself in upper
// case.
//
// Windows' table is Unicode's simple upper case, with two exceptions. Characters outside of the
// basic plane are unchanged, because Windows sees only halves of them. The few letters with an
// upper case in another script's block, such as U+017F LATIN SMALL LETTER LONG S, are unchanged
// too. Therefore only an ASCII letter is equal to an ASCII letter.
func UpperName(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return eachRune(s, upper)
		}
	}
	return strings.ToUpper(s) // quicker for ASCII, in which the two agree
}

// LowerName returns a name in lower case. Two names have the same LowerName exactly if they are
// SameName.
func LowerName(s string) string {
	return eachRune(s, func(r rune) rune {
		u := upper(r)
		if l := unicode.ToLower(u); upper(l) == u {
			return l
		}
		return u
	})
}

func upper(r rune) rune {
	u := unicode.ToUpper(r)
	if r > 0xFFFF || u > 0xFFFF || r >= utf8.RuneSelf && u < utf8.RuneSelf || r == 'µ' {
		return r
	}
	return u
}

// eachRune is strings.Map, but leaves bytes outside of valid UTF-8 alone. The name of a file can
// have half a surrogate pair, inexpressible in UTF-8; two such names differ.
func eachRune(s string, f func(rune) rune) string {
	if utf8.ValidString(s) {
		return strings.Map(f, s)
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			b.WriteByte(s[0])
		} else {
			b.WriteRune(f(r))
		}
		s = s[size:]
	}
	return b.String()
}

// maxElement is the length of one element of a path.
const maxElement = 255

// CheckNameElement checks an element of a path. If Windows would refuse the name, or take it for
// another name or for several elements, the error is csiproxy.ErrInvalidArgument.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func CheckNameElement(name string) error {
	switch {
	case name == "", name == ".", name == "..":
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the element %q is not allowed", name)
	case strings.HasSuffix(name, "."), strings.HasSuffix(name, " "):
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the element %q ends in a dot or blank", name)
	case len(name) > maxElement && NameLength(name) > maxElement: // a unit takes a byte at least
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "an element is longer than %d characters", maxElement)
	}
	for _, r := range name {
		switch r {
		case '"', '<', '>', '|', '?', '*', ':', '/', '\\':
		default:
			if !unicode.IsControl(r) {
				continue
			}
		}
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the character %q is not allowed", r)
	}
	return nil
}

// maxService is the length of the name of a service.
const maxService = 256

// CheckServiceName returns csiproxy.ErrInvalidArgument for an invalid name of a Windows service.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-createservicew
func CheckServiceName(name string) error {
	switch {
	case name == "":
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name is empty")
	case !utf8.ValidString(name):
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name is not valid UTF-8")
	case NameLength(name) > maxService:
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name is longer than %d characters", maxService)
	case strings.ContainsAny(name, "/\\\x00"):
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name has a slash, backslash or null character")
	}
	return nil
}
