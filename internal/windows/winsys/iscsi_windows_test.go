// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// With Windows' own initiator, test/wine/iscsidsc and test/windows test it.
func TestISCSIWithoutDLL(t *testing.T) {
	if windows.NewLazySystemDLL("iscsidsc.dll").Load() == nil {
		t.Skip("this Windows has an iSCSI initiator")
	}
	for name, call := range seamtest.Calls[win.ISCSIInitiator](newSystem(t), "iqn", nil) {
		if err := call(t.Context()); !errors.Is(err, winerr.ErrorModNotFound) {
			t.Errorf("%s without iscsidsc.dll: %v", name, err)
		}
	}
}

func TestISCSIStatus(t *testing.T) {
	for _, test := range []struct{ err, want error }{
		{nil, nil},
		{syscall.Errno(0xEFFF003F), winerr.ISDSCTargetAlreadyLoggedIn},
		{syscall.Errno(5), winerr.ErrorAccessDenied},
		{&windows.DLLError{Err: syscall.Errno(127), ObjName: "LogoutIScsiTarget"}, winerr.ErrorProcNotFound},
	} {
		if got := iscsiStatus(test.err); !errors.Is(got, test.want) {
			t.Errorf("%v becomes %v, want %v", test.err, got, test.want)
		}
	}
}
