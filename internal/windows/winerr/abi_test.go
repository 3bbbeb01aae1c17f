// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winerr

import (
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
)

// The numbers are those of the headers of Windows: see package win's testdata/abi.
func TestABIErrorNumbers(t *testing.T) {
	abi := abitest.Load(t, "../win/testdata/abi")
	// ERROR_NO_SUCH_DEVICE and ERROR_DEVICE_HARDWARE_ERROR aren't in mingw-w64's headers.
	missing := []Errno{ErrorNoSuchDevice, ErrorDeviceHardware, ErrorSMB1NotAvailable, ErrorSMBGuestLogonBlocked, ErrorNTLMBlocked,
		StatusInvalidSignature, WBEMFailed, WBEMInvalidNamespace, WBEMInvalidClass}
	for e, known := range errnos {
		if slices.Contains(missing, e) {
			continue
		}
		if want := Errno(abi.Value(known.name)); e != want {
			t.Errorf("%s is %d; want %d", known.name, uint32(e), uint32(want))
		}
	}
}
