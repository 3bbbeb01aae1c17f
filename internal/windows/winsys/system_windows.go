// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Options configure a System.
type Options struct {
	// Logger logs missing privileges, and the absence of notices of arrivals. Default: no log.
	Logger *slog.Logger
	// Handles, in tests, keeps the stack of each open handle, for the report of Close.
	Handles *handletrack.Tracker
}

// System is Windows. Its methods may be called concurrently.
type System struct {
	log       *slog.Logger
	tracker   *handletrack.Tracker
	handles   atomic.Int64 // that are open
	noNotices sync.Once    // logs once that Windows sends no notices
}

// Open enables the privileges required by the calls, for the whole process. Missing privileges are
// logged.
func Open(o Options) (*System, error) {
	s := &System{log: o.Logger, tracker: o.Handles}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	missing, err := enablePrivileges(win.Privileges()...)
	if err != nil {
		return nil, fmt.Errorf("enabling privileges: %w", err)
	}
	for _, name := range missing {
		s.log.Warn("the process doesn't hold a privilege", "privilege", name)
	}
	return s, nil
}

// Close returns an error if devices or files are still open. With Options.Handles the error lists
// the places of opening, for notifications too.
func (s *System) Close() error {
	if err := s.tracker.Err(); err != nil {
		return err
	}
	if n := s.handles.Load(); n != 0 {
		return fmt.Errorf("%d handles are still open", n)
	}
	return nil
}

// handle is an open device or file.
type handle struct {
	sys    *System
	h      windows.Handle
	closed func() // tells the tracker
}

func (s *System) own(h windows.Handle, name string) handle {
	s.handles.Add(1)
	return handle{s, h, s.tracker.Track(name)}
}

// Close implements [win.Device] and [win.File].
func (h *handle) Close() error {
	if h.h == windows.InvalidHandle {
		return winerr.ErrorInvalidHandle
	}
	err := windows.CloseHandle(h.h)
	h.h = windows.InvalidHandle
	h.sys.handles.Add(-1)
	h.closed()
	return errno(err)
}

// enablePrivileges enables the named privileges in the token of the process, and returns privileges
// missing from the token or unknown to Windows.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/enabling-and-disabling-privileges-in-c--
func enablePrivileges(names ...string) (missing []string, err error) {
	var token windows.Token
	if err := windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_QUERY|windows.TOKEN_ADJUST_PRIVILEGES,
		&token); err != nil {
		return nil, errno(err)
	}
	defer token.Close()
	held, err := tokenPrivileges(token)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		luid, err := lookupPrivilege(name)
		if _, ok := held[luid]; err == windows.ERROR_NO_SUCH_PRIVILEGE || err == nil && !ok {
			missing = append(missing, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, errno(err))
		}
		state := windows.Tokenprivileges{
			PrivilegeCount: 1,
			Privileges:     [1]windows.LUIDAndAttributes{{Luid: luid, Attributes: windows.SE_PRIVILEGE_ENABLED}},
		}
		if err := windows.AdjustTokenPrivileges(token, false, &state, 0, nil, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", name, errno(err))
		}
	}
	return missing, nil
}

// lookupPrivilege returns the number of a privilege on this Windows.
func lookupPrivilege(name string) (luid windows.LUID, err error) {
	p, err := utf16Ptr(name)
	if err != nil {
		return luid, err
	}
	err = windows.LookupPrivilegeValue(nil, p, &luid)
	return luid, err
}

// tokenPrivileges returns the privileges of a token with their attributes. AdjustTokenPrivileges
// itself succeeds for privileges missing from the token.
func tokenPrivileges(token windows.Token) (map[windows.LUID]uint32, error) {
	var size uint32
	if err := windows.GetTokenInformation(token, windows.TokenPrivileges, nil, 0,
		&size); err != windows.ERROR_INSUFFICIENT_BUFFER {
		return nil, errno(err)
	}
	buf := aligned(int(size))
	if err := windows.GetTokenInformation(token, windows.TokenPrivileges, &buf[0], size, &size); err != nil {
		return nil, errno(err)
	}
	held := make(map[windows.LUID]uint32)
	for _, p := range (*windows.Tokenprivileges)(unsafe.Pointer(&buf[0])).AllPrivileges() {
		held[p.Luid] = p.Attributes
	}
	return held, nil
}

// bytesPtr returns the address of a buffer, nil if it is empty.
func bytesPtr(b []byte) *byte {
	if len(b) == 0 {
		return nil
	}
	return &b[0]
}
