// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package didyoumean finds the name that a mistyped one was probably meant to be.
package didyoumean

import "strings"

// Hint returns "; did you mean PREFIX+name?" for the most similar of names; empty if none is
// similar. A name that begins with the mistyped one, or the other way round, is.
func Hint(prefix, typed string, names []string) string {
	best, fewest := "", max(1, len(typed)/3)+1
	for _, name := range names {
		a, b := strings.ToLower(typed), strings.ToLower(name)
		edits := distance(a, b)
		if min(len(a), len(b)) > 2 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			edits = min(edits, max(1, len(typed)/3))
		}
		if edits < fewest {
			best, fewest = name, edits
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}

// distance returns how many characters must be added, removed, replaced, or exchanged with
// the next one, to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range b {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
