// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quote makes texts from callers safe to print in errors and logs.
package quote

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// longest limits a text, in bytes: twice the longest path of the older Windows
// functions.
const longest = 2 * 260

// Text returns s for use in a message: unchanged if it is printable, otherwise as a Go
// string literal. A long text is cut.
func Text(s string) string {
	if len(s) > longest {
		end := longest
		for !utf8.RuneStart(s[end]) && end > 0 {
			end--
		}
		s = s[:end] + "…"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
