// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

var (
	_ win.System = (*System)(nil)
	_ win.Device = (*device)(nil)
	_ win.File   = (*file)(nil)
)

// newSystem returns the system, which must have no open handles when the test ends.
func newSystem(t *testing.T) *System {
	t.Helper()
	s, err := Open(Options{Handles: handletrack.New()})
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// skipUnderWine skips a test of what Wine lacks.
func skipUnderWine(t *testing.T, lacks string) {
	t.Helper()
	if underWine() {
		t.Skipf("Wine has no %s", lacks)
	}
}

func underWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

func wantErrno(t *testing.T, what string, err error, want ...winerr.Errno) {
	t.Helper()
	var errno winerr.Errno
	if !errors.As(err, &errno) || !slices.Contains(want, errno) {
		t.Errorf("%s: error %v; want %v", what, err, want)
	}
}

func TestPrivileges(t *testing.T) {
	var log strings.Builder
	s, err := Open(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	defer s.Close()
	for _, name := range win.Privileges() {
		if enabled, logged := privilegeEnabled(t, name), strings.Contains(log.String(), name); enabled == logged {
			t.Errorf("%s: enabled %t, reported missing %t", name, enabled, logged)
		}
	}
	missing, err := enablePrivileges("SeTcbPrivilege", "SeLoadDriverPrivilege")
	if err != nil || slices.Contains(missing, "SeLoadDriverPrivilege") != strings.Contains(log.String(),
		"SeLoadDriverPrivilege") {
		t.Errorf("the second time: missing %q, error %v; log %s", missing, err, log.String())
	}
	missing, err = enablePrivileges("SeNoSuchPrivilege")
	if err != nil || len(missing) != 1 {
		t.Errorf("an unknown privilege: missing %q, error %v", missing, err)
	}
}

// Administrators and LocalSystem hold both, switched off.
func TestBackupPrivilegesAreEnabled(t *testing.T) {
	newSystem(t)
	for _, name := range []string{"SeBackupPrivilege", "SeRestorePrivilege"} {
		if !privilegeEnabled(t, name) {
			t.Errorf("%s isn't enabled", name)
		}
	}
}

func privilegeEnabled(t *testing.T, name string) bool {
	t.Helper()
	var token windows.Token
	must(t, windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_QUERY, &token))
	defer token.Close()
	luid, err := lookupPrivilege(name)
	if err != nil {
		return false
	}
	privileges, err := tokenPrivileges(token)
	must(t, err)
	return privileges[luid]&windows.SE_PRIVILEGE_ENABLED != 0
}

func TestLeakedHandleIsReported(t *testing.T) {
	for name, tracker := range map[string]*handletrack.Tracker{"counted": nil, "tracked": handletrack.New()} {
		t.Run(name, func(t *testing.T) { leak(t, tracker) })
	}
}

func leak(t *testing.T, tracker *handletrack.Tracker) {
	s, err := Open(Options{Handles: tracker})
	must(t, err)
	f, err := s.OpenFile(t.Context(), t.TempDir(), win.OpenOptions{Disposition: win.FileOpen})
	must(t, err)
	if err := s.Close(); err == nil {
		t.Error("an open handle isn't reported")
	} else if tracker != nil && !strings.Contains(err.Error(), "winsys.leak") {
		t.Errorf("the report doesn't say who opened it: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	wantErrno(t, "closing twice", f.Close(), winerr.ErrorInvalidHandle)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
