// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// TestUntilSecond: the first Ctrl-C lets the removal go on, and the second one ends it.
func TestUntilSecond(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	listens := make(chan struct{})
	removal, stop := untilSecond(ctx, func(string) { close(listens) })
	defer stop()
	interrupt()
	select {
	case <-listens:
	case <-time.After(time.Minute):
		t.Fatal("the first Ctrl-C isn't noticed")
	}
	if removal.Err() != nil {
		t.Error("the first Ctrl-C ends the removal")
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-removal.Done():
	case <-time.After(time.Minute):
		t.Error("the second Ctrl-C doesn't end the removal")
	}
}
