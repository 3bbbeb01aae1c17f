// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"syscall"
	"testing"
	"unsafe"
)

// Windows calls back with the context that it was given.
func TestArrivalCallback(t *testing.T) {
	w := &watcher{make(chan struct{}, 1)}
	var eventData [32]byte
	for range 2 {
		r, _, _ := syscall.SyscallN(arrivalCallback(), 1, uintptr(unsafe.Pointer(w)), 0, uintptr(unsafe.Pointer(&eventData)),
			uintptr(len(eventData)))
		if r != 0 {
			t.Errorf("the callback returns %d", r)
		}
	}
	if len(w.arrived) != 1 {
		t.Errorf("%d notices; want 1", len(w.arrived))
	}
}
