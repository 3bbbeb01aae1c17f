// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// iscsiCalls are all calls of the initiator.
func iscsiCalls(s *System) map[string]func(context.Context) error {
	portal := win.ISCSIPortal{Address: "192.0.2.1", Port: 3260}
	return map[string]func(context.Context) error{
		"AddISCSISendTargetPortal":    func(ctx context.Context) error { return s.AddISCSISendTargetPortal(ctx, portal) },
		"RemoveISCSISendTargetPortal": func(ctx context.Context) error { return s.RemoveISCSISendTargetPortal(ctx, portal) },
		"RefreshISCSISendTargetPortal": func(ctx context.Context) error {
			return s.RefreshISCSISendTargetPortal(ctx, portal)
		},
		"ISCSISendTargetPortals": func(ctx context.Context) error { _, err := s.ISCSISendTargetPortals(ctx); return err },
		"ISCSITargets":           func(ctx context.Context) error { _, err := s.ISCSITargets(ctx); return err },
		"ISCSIDiscoveryMechanisms": func(ctx context.Context) error {
			_, err := s.ISCSIDiscoveryMechanisms(ctx, "iqn")
			return err
		},
		"LoginISCSITarget": func(ctx context.Context) error {
			_, err := s.LoginISCSITarget(ctx, win.ISCSILogin{Target: "iqn", Portal: portal})
			return err
		},
		"LogoutISCSITarget": func(ctx context.Context) error { return s.LogoutISCSITarget(ctx, win.ISCSISessionID{}) },
		"ISCSISessions":     func(ctx context.Context) error { _, err := s.ISCSISessions(ctx); return err },
		"ISCSISessionDevices": func(ctx context.Context) error {
			_, err := s.ISCSISessionDevices(ctx, win.ISCSISessionID{})
			return err
		},
		"ISCSIPersistentLogins": func(ctx context.Context) error {
			_, err := s.ISCSIPersistentLogins(ctx)
			return err
		},
		"RemoveISCSIPersistentLogin": func(ctx context.Context) error {
			return s.RemoveISCSIPersistentLogin(ctx, win.ISCSIPersistentLogin{})
		},
		"SetISCSIInitiatorCHAPSecret": func(ctx context.Context) error {
			return s.SetISCSIInitiatorCHAPSecret(ctx, secret.New("s"))
		},
	}
}

// With Windows' own initiator, test/wine/iscsidsc and test/windows test it.
func TestISCSIWithoutDLL(t *testing.T) {
	if windows.NewLazySystemDLL("iscsidsc.dll").Load() == nil {
		t.Skip("this Windows has an iSCSI initiator")
	}
	for name, call := range iscsiCalls(newSystem(t)) {
		if err := call(t.Context()); !errors.Is(err, win.ErrorModNotFound) {
			t.Errorf("%s without iscsidsc.dll: %v", name, err)
		}
	}
}

func TestISCSIStatus(t *testing.T) {
	for _, test := range []struct{ err, want error }{
		{nil, nil},
		{syscall.Errno(0xEFFF003F), win.ISDSCTargetAlreadyLoggedIn},
		{syscall.Errno(5), win.ErrorAccessDenied},
		{&windows.DLLError{Err: syscall.Errno(127), ObjName: "LogoutIScsiTarget"}, win.ErrorProcNotFound},
	} {
		if got := iscsiStatus(test.err); !errors.Is(got, test.want) {
			t.Errorf("%v becomes %v, want %v", test.err, got, test.want)
		}
	}
}
