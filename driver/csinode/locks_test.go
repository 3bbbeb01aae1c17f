// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestTry(t *testing.T) {
	var l locks
	unlock, err := l.try("vol-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.try("vol-1"); status.Code(err) != codes.Aborted {
		t.Errorf("a second call on the volume: %v, want Aborted", err)
	}
	other, err := l.try("vol-2")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	again, err := l.try("vol-1")
	if err != nil {
		t.Fatal(err)
	}
	again()
}
