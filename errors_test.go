// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"nil", nil, nil},
		{"given", &Error{Kind: ErrNotFound, Err: winerr.ErrorAccessDenied}, ErrNotFound},
		{"given inside", &Error{Op: "X", Err: fmt.Errorf("y: %w", &Error{Kind: ErrFailedPrecondition})},
			ErrFailedPrecondition},
		{"from the Windows error", &Error{Err: fmt.Errorf("y: %w", winerr.ErrorPathNotFound)}, ErrNotFound},
		{"busy", winerr.ErrorSharingViolation, ErrUnavailable},
		{"unknown Windows error", winerr.Errno(4711), ErrInternal},
		{"invalid handle", winerr.ErrorInvalidHandle, ErrUnavailable},
		{"invalid parameter", winerr.ErrorInvalidParameter, ErrFailedPrecondition},
		{"cancelled", &Error{Err: context.Canceled}, context.Canceled},
		{"deadline among several", errors.Join(errors.New("x"), context.DeadlineExceeded), context.DeadlineExceeded},
		{"sentinel", fmt.Errorf("x: %w", ErrUnimplemented), ErrUnimplemented},
		{"anything", errors.New("x"), ErrInternal},
	} {
		if got := KindOf(c.err); got != c.want {
			t.Errorf("%s: kind %v, want %v", c.name, got, c.want)
		}
	}
}

func TestErrorIs(t *testing.T) {
	err := error(&Error{Op: "MountVolume", Object: "volume x", Err: winerr.ErrorPathNotFound})
	for _, target := range []error{ErrNotFound, fs.ErrNotExist, winerr.ErrorPathNotFound} {
		if !errors.Is(err, target) {
			t.Errorf("it is not %v", target)
		}
	}
	if wire := error(&Error{Kind: ErrNotFound, WindowsError: 3}); !errors.Is(wire, fs.ErrNotExist) ||
		errors.Is(wire, fs.ErrExist) {
		t.Error("an error without its cause doesn't answer for its number")
	}
	for _, target := range []error{ErrInternal, fs.ErrExist, winerr.ErrorFileNotFound} {
		if errors.Is(err, target) {
			t.Errorf("it is %v", target)
		}
	}
}

func TestErrorText(t *testing.T) {
	for want, err := range map[string]*Error{
		"MountVolume volume x: it is busy: The system cannot find the path specified (Windows error 3)": {Op: "MountVolume",
			Object: "volume x", Detail: "it is busy", Err: winerr.ErrorPathNotFound},
		"Rescan: unavailable": {Op: "Rescan", Kind: ErrUnavailable},
		"the disk is offline": {Kind: ErrFailedPrecondition, Detail: "the disk is offline"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWindowsErrorOf(t *testing.T) {
	for want, err := range map[uint32]error{
		5:    &Error{Err: fmt.Errorf("x: %w", winerr.ErrorAccessDenied)},
		1326: fmt.Errorf("x: %w", &Error{Kind: ErrUnauthenticated, WindowsError: 1326}),
		0:    errors.New("x"),
	} {
		if got, ok := WindowsErrorOf(err); got != want || ok != (want != 0) {
			t.Errorf("%v: %d, %v", err, got, ok)
		}
	}
}
