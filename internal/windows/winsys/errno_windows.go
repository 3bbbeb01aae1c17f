// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// errno turns the error of a call to Windows into a [winerr.Errno], the package's only form of
// Windows errors.
func errno(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case syscall.Errno:
		if e == syscall.EINVAL { // x/sys: the call failed without an error number
			return winerr.ErrorInvalidParameter
		}
		return winerr.Errno(e)
	case windows.NTStatus:
		return ntError(e)
	case windows.CONFIGRET:
		return fmt.Errorf("CONFIGRET %#x: %w", uint32(e), configError(e))
	}
	return err
}

// configError is CM_MapCrToWin32Err, except for results that mean a departed device.
func configError(ret windows.CONFIGRET) winerr.Errno {
	switch ret {
	case windows.CR_NO_SUCH_DEVNODE, windows.CR_DEVICE_NOT_THERE, windows.CR_NO_SUCH_DEVICE_INTERFACE:
		return winerr.ErrorNotFound
	}
	return winerr.Errno(ret.Win32Error(windows.ERROR_GEN_FAILURE))
}

// ntError is RtlNtStatusToDosError, except for the statuses of a file deleted or being deleted:
// RtlNtStatusToDosError turns them into ERROR_ACCESS_DENIED.
func ntError(status windows.NTStatus) winerr.Errno {
	switch status {
	case windows.STATUS_DELETE_PENDING, windows.STATUS_FILE_DELETED:
		return winerr.ErrorDeletePending
	}
	return winerr.Errno(status.Errno())
}

// interrupted returns the error of a call cancelled at the end of ctx.
func interrupted(ctx context.Context, err error) error {
	if errors.Is(err, winerr.ErrorOperationAborted) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// utf16Ptr returns s with a NUL at its end. Like [win.AppendUTF16] and the UTF-16 functions of
// x/sys, utf16Ptr accepts WTF-8.
func utf16Ptr(s string) (*uint16, error) {
	p, err := windows.UTF16PtrFromString(s)
	if err != nil {
		return nil, winerr.ErrorInvalidName // a NUL within
	}
	return p, nil
}
