// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import "slices"

// Words are the words of Win32_Service for the numbers of the service manager: a word's index is its
// number.
//
// Source: https://learn.microsoft.com/windows/win32/cimwin32prov/win32-service
type Words []string

// When a service starts, and whether it runs.
var (
	StartTypes = Words{"Boot", "System", "Auto", "Manual", "Disabled"}
	States     = Words{"Unknown", "Stopped", "Start Pending", "Stop Pending", "Running", "Continue Pending",
		"Pause Pending", "Paused"}
)

// Word returns the word for a number, and none for a number that has none.
func (w Words) Word(number uint32) string {
	if number >= uint32(len(w)) {
		return ""
	}
	return w[number]
}

// Number returns the number of a word, and 0 for others, as the published library does.
func (w Words) Number(word string) uint32 { return uint32(max(0, slices.Index(w, word))) }
