// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quote makes texts from callers, disks and servers safe to print: in errors and logs,
// on a terminal, and in JSON. All of it escapes the same characters: those that a terminal
// obeys or that show a text as something else, such as C0 and C1 controls, marks that turn
// the direction of a text, and blanks that nobody sees.
package quote

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
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
	if !utf8.ValidString(s) || strings.ContainsFunc(s, hidden) {
		return strconv.Quote(s)
	}
	return s
}

// hidden reports whether a character isn't printed as itself.
func hidden(r rune) bool { return !strconv.IsPrint(r) }

// mostListed is how many texts List names.
const mostListed = 5

// List names at most five texts, such as paths, in a message.
func List(texts []string) string {
	list := strings.Join(texts[:min(len(texts), mostListed)], ", ")
	if len(texts) > mostListed {
		list += ", …"
	}
	return Text(list)
}

// Terminal returns s for a terminal, with what isn't printable escaped, and as long as it is.
func Terminal(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hidden) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// JSON returns a JSON text in which what isn't printable is escaped: encoding/json writes it
// as it is. The text means the same.
func JSON(text []byte) []byte {
	escaped := func(r rune) bool { return r >= utf8.RuneSelf && hidden(r) }
	if !bytes.ContainsFunc(text, escaped) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if !escaped(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}
