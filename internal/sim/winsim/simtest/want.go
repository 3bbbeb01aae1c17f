// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Must ends the test if a step of its preparation fails.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError fails the test unless err is want, and says each of the words. want may be a class of
// csiproxy, which err must count as then, any other error, or nil.
func WantError(t testing.TB, err, want error, words ...string) {
	t.Helper()
	WantErrorOf(t, "the error", err, want, words...)
}

// WantErrorOf is WantError in a test of several cases: what names this one.
func WantErrorOf(t testing.TB, what string, err, want error, words ...string) {
	t.Helper()
	is := errors.Is(err, want)
	if csiproxy.KindOf(want) == want {
		is = csiproxy.KindOf(err) == want
	}
	if !is {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v doesn't say %q", what, err, word)
		}
	}
}

// Want fails the test unless a value, which what names, is the wanted one.
func Want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
