// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

func TestDeviceInterfaces(t *testing.T) {
	skipUnderWine(t, "device interfaces of disks")
	s := newSystem(t)
	paths, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if !strings.HasPrefix(path, `\\?\`) || !strings.HasSuffix(strings.ToLower(path), "#{"+win.InterfaceClassDisk.String()+"}") {
			t.Errorf("interface %s", path)
		}
	}
	none, err := s.DeviceInterfaces(t.Context(), win.NewGUID())
	if err != nil || len(none) != 0 {
		t.Errorf("of an unknown class: %q, %v", none, err)
	}
}

func TestReenumerateDevice(t *testing.T) {
	skipUnderWine(t, "CM_Reenumerate_DevNode")
	s := newSystem(t)
	err := s.ReenumerateDevice(t.Context(), `\\?\no#such#device#{`+win.InterfaceClassDisk.String()+`}`)
	if errno := win.Errno(0); !errors.As(err, &errno) {
		t.Errorf("an unknown interface: error %v", err)
	}
	if err := s.ReenumerateDevice(t.Context(), ""); err != nil {
		t.Error(err)
	}
	ports, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassStoragePort)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		if err := s.ReenumerateDevice(t.Context(), port); err != nil {
			t.Errorf("%s: %v", port, err)
		}
	}
}

func TestNotifyArrivals(t *testing.T) {
	s := newSystem(t)
	for range 3 { // each registration can be ended, also twice
		_, stop, err := s.NotifyArrivals(t.Context(), win.InterfaceClassDisk)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		stop()
	}
}

// Windows calls back with the context that it was given.
func TestArrivalCallback(t *testing.T) {
	w := &watcher{make(chan struct{}, 1)}
	var eventData [32]byte
	for range 2 {
		r, _, _ := syscall.SyscallN(arrivalCallback(), 1, uintptr(unsafe.Pointer(w)), 0, uintptr(unsafe.Pointer(&eventData)), uintptr(len(eventData)))
		if r != 0 {
			t.Errorf("the callback returns %d", r)
		}
	}
	if len(w.arrived) != 1 {
		t.Errorf("%d notices; want 1", len(w.arrived))
	}
}
