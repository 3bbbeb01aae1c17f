// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// splitCommandLine splits a command line into the words that a program on Windows gets, on any system. There is at least one.
//
// Source: https://learn.microsoft.com/windows/win32/api/shellapi/nf-shellapi-commandlinetoargvw
func splitCommandLine(line string) []string {
	line = strings.TrimLeft(line, " \t")
	var words []string
	// In the name of the program, a backslash is only itself.
	if program, isQuoted := strings.CutPrefix(line, `"`); isQuoted {
		name, rest, _ := strings.Cut(program, `"`)
		words, line = append(words, name), rest
	} else {
		end := strings.IndexAny(line+" ", " \t")
		words, line = append(words, line[:end]), line[end:]
	}
	for line = strings.TrimLeft(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		var word string
		word, line = cutWord(line)
		words = append(words, word)
	}
	return words
}

// cutWord returns the first word of the rest of a command line, and what follows it. Backslashes before a quotation mark count
// half, and one that is left takes away the mark's meaning; two marks within quotation are one.
func cutWord(line string) (word, rest string) {
	var b strings.Builder
	isQuoted, slashes := false, 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			slashes++
			continue
		case c == '"':
			b.WriteString(strings.Repeat(`\`, slashes/2))
			switch {
			case slashes%2 == 1:
				b.WriteByte('"')
			case isQuoted && strings.HasPrefix(line[i+1:], `"`):
				b.WriteByte('"')
				i++
			default:
				isQuoted = !isQuoted
			}
			slashes = 0
			continue
		case !isQuoted && (c == ' ' || c == '\t'):
			b.WriteString(strings.Repeat(`\`, slashes))
			return b.String(), line[i:]
		default:
			b.WriteString(strings.Repeat(`\`, slashes))
			b.WriteByte(c)
		}
		slashes = 0
	}
	b.WriteString(strings.Repeat(`\`, slashes))
	return b.String(), ""
}
