// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestKindOf(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"nil", nil, nil},
		{"given", &csiproxy.Error{Kind: csiproxy.ErrNotFound, Err: winerr.ErrorAccessDenied}, csiproxy.ErrNotFound},
		{"given inside", &csiproxy.Error{Op: "X", Err: fmt.Errorf("y: %w", &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition})},
			csiproxy.ErrFailedPrecondition},
		{"from the Windows error", &csiproxy.Error{Err: fmt.Errorf("y: %w", winerr.ErrorPathNotFound)}, csiproxy.ErrNotFound},
		{"busy", winerr.ErrorSharingViolation, csiproxy.ErrUnavailable},
		{"unknown Windows error", winerr.Errno(4711), csiproxy.ErrInternal},
		{"invalid handle", winerr.ErrorInvalidHandle, csiproxy.ErrUnavailable},
		{"invalid parameter", winerr.ErrorInvalidParameter, csiproxy.ErrFailedPrecondition},
		{"cancelled", &csiproxy.Error{Err: context.Canceled}, context.Canceled},
		{"deadline among several", errors.Join(errors.New("x"), context.DeadlineExceeded), context.DeadlineExceeded},
		{"sentinel", fmt.Errorf("x: %w", csiproxy.ErrUnimplemented), csiproxy.ErrUnimplemented},
		{"anything", errors.New("x"), csiproxy.ErrInternal},
	} {
		if got := csiproxy.KindOf(c.err); got != c.want {
			t.Errorf("%s: kind %v, want %v", c.name, got, c.want)
		}
	}
}

func TestErrorIs(t *testing.T) {
	err := error(&csiproxy.Error{Op: "MountVolume", Object: "volume x", Err: winerr.ErrorPathNotFound})
	for _, target := range []error{csiproxy.ErrNotFound, fs.ErrNotExist, winerr.ErrorPathNotFound} {
		if !errors.Is(err, target) {
			t.Errorf("it is not %v", target)
		}
	}
	if wire := error(&csiproxy.Error{Kind: csiproxy.ErrNotFound, WindowsError: 3}); !errors.Is(wire, fs.ErrNotExist) ||
		errors.Is(wire, fs.ErrExist) {
		t.Error("an error without its cause doesn't answer for its number")
	}
	for _, target := range []error{csiproxy.ErrInternal, fs.ErrExist, winerr.ErrorFileNotFound} {
		if errors.Is(err, target) {
			t.Errorf("it is %v", target)
		}
	}
}

func TestErrorText(t *testing.T) {
	for want, err := range map[string]*csiproxy.Error{
		"MountVolume volume x: it is busy: The system cannot find the path specified (Windows error 3)": {Op: "MountVolume",
			Object: "volume x", Detail: "it is busy", Err: winerr.ErrorPathNotFound},
		"Rescan: unavailable": {Op: "Rescan", Kind: csiproxy.ErrUnavailable},
		"the disk is offline": {Kind: csiproxy.ErrFailedPrecondition, Detail: "the disk is offline"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWindowsErrorOf(t *testing.T) {
	for want, err := range map[uint32]error{
		5:    &csiproxy.Error{Err: fmt.Errorf("x: %w", winerr.ErrorAccessDenied)},
		1326: fmt.Errorf("x: %w", &csiproxy.Error{Kind: csiproxy.ErrUnauthenticated, WindowsError: 1326}),
		0:    errors.New("x"),
	} {
		if got, ok := csiproxy.WindowsErrorOf(err); got != want || ok != (want != 0) {
			t.Errorf("%v: %d, %v", err, got, ok)
		}
	}
}
