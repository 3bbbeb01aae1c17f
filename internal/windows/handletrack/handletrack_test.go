// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package handletrack_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
)

func openForgotten(tracker *handletrack.Tracker) (closed func()) {
	return tracker.Track(`C:\forgotten`)
}

func TestTracker(t *testing.T) {
	tracker := handletrack.New()
	if err := tracker.Err(); err != nil {
		t.Errorf("before anything was opened: %v", err)
	}
	tracker.Track(`C:\closed`)()
	closed := openForgotten(tracker)
	second := tracker.Track(`C:\second`)
	err := tracker.Err()
	if err == nil {
		t.Fatal("open handles aren't reported")
	}
	text := err.Error()
	for _, want := range []string{"not closed: 2", `C:\forgotten, opened by`, "openForgotten", "TestTracker", "handletrack_test.go:"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q: %s", want, text)
		}
	}
	if strings.Contains(text, `C:\closed`) || strings.Contains(text, "Tracker).Track") {
		t.Errorf("the report has what isn't open, or frames of its own: %s", text)
	}
	if strings.Index(text, `C:\forgotten`) > strings.Index(text, `C:\second`) {
		t.Errorf("the report isn't in the order of the opens: %s", text)
	}
	closed()
	closed() // the second time it does nothing
	if err := tracker.Err(); err == nil || !strings.Contains(err.Error(), "not closed: 1") {
		t.Errorf("with one handle open: %v", err)
	}
	second()
	if err := tracker.Err(); err != nil {
		t.Errorf("after all were closed: %v", err)
	}
}

func TestNilTracker(t *testing.T) {
	var tracker *handletrack.Tracker
	if n := testing.AllocsPerRun(100, func() { tracker.Track("x")() }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
	if err := tracker.Err(); err != nil {
		t.Error(err)
	}
}

func TestConcurrentTracking(t *testing.T) {
	tracker := handletrack.New()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				tracker.Track("x")()
			}
		})
	}
	all.Wait()
	if err := tracker.Err(); err != nil {
		t.Error(err)
	}
}
