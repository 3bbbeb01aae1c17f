// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// Without a share there is nothing to map. What is left are the calls themselves,
// and their errors.
func TestSMBGlobalMapping(t *testing.T) {
	const path = `\\localhost\csi-proxy-no-such-share`
	s := newSystem(t)
	create := func(ctx context.Context, path, user, password string) error {
		return s.CreateSMBGlobalMapping(ctx, path, win.SMBMappingOptions{Username: user, Password: secret.New(password), RequirePrivacy: true})
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"SMBGlobalMappings":      func(ctx context.Context) error { _, err := s.SMBGlobalMappings(ctx); return err },
		"CreateSMBGlobalMapping": func(ctx context.Context) error { return create(ctx, path, "user", "password") },
		"RemoveSMBGlobalMapping": func(ctx context.Context) error { return s.RemoveSMBGlobalMapping(ctx, path) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(ctx); err != context.Canceled {
			t.Errorf("%s with an ended context: error %v", name, err)
		}
		if underWine() { // which lacks the namespace
			wantErrno(t, name, call(t.Context()), win.ErrorNotSupported)
		}
	}
	skipUnderWine(t, "SMB")
	if _, err := s.SMBGlobalMappings(t.Context()); err != nil {
		t.Error(err)
	}
	wantErrno(t, "removing a missing mapping", s.RemoveSMBGlobalMapping(t.Context(), path), win.ErrorNotConnected)
	// Not [win.ErrorGenFailure]: the number gets through.
	wantErrno(t, "a missing share", create(t.Context(), path, "", ""), win.ErrorBadNetName, win.ErrorBadNetPath)
	err := create(t.Context(), path, "csi-proxy-nobody", "hidden")
	wantErrno(t, "a missing user", err, win.ErrorLogonFailure, win.ErrorInvalidPassword, win.ErrorBadNetName)
	if strings.Contains(fmt.Sprintf("%+v", err), "hidden") {
		t.Error("the error has the password")
	}
}
