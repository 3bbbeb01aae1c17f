// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winread

import (
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// TestEvents reads a few events of the System log, which Windows always has.
func TestEvents(t *testing.T) {
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil {
		t.Skip("Wine has no event log to query")
	}
	events, err := Events(t.Context(), "System", "*", 70)
	if err != nil || len(events) == 0 || len(events) > 70 {
		t.Errorf("%d events, %v", len(events), err)
	}
	for _, e := range events {
		if !strings.HasPrefix(e, "<Event ") || !strings.Contains(e, "<Provider Name=") {
			t.Errorf("no event: %q", e)
		}
	}
	if events, err := Events(t.Context(), "No such channel", "*", 1); err == nil {
		t.Errorf("a channel that doesn't exist has %q", events)
	}
}
