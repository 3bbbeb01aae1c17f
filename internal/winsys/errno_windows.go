// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// errno gives the error of a Windows call the only form in which it leaves this
// package.
func errno(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case syscall.Errno:
		if e == syscall.EINVAL { // x/sys: the call failed without an error number
			return win.ErrorInvalidParameter
		}
		return win.Errno(e)
	case windows.NTStatus:
		return ntError(e)
	case windows.CONFIGRET:
		return fmt.Errorf("CONFIGRET %#x: %w", uint32(e), configError(e))
	}
	return err
}

// configError is CM_MapCrToWin32Err, apart from results that say that a device isn't
// there any more.
func configError(ret windows.CONFIGRET) win.Errno {
	switch ret {
	case windows.CR_NO_SUCH_DEVNODE, windows.CR_DEVICE_NOT_THERE, windows.CR_NO_SUCH_DEVICE_INTERFACE:
		return win.ErrorNotFound
	}
	return win.Errno(ret.Win32Error(windows.ERROR_GEN_FAILURE))
}

// ntError is RtlNtStatusToDosError, apart from a status that it makes
// ERROR_ACCESS_DENIED of: that of a file that is being deleted and will soon be
// gone.
func ntError(status windows.NTStatus) win.Errno {
	if status == windows.STATUS_DELETE_PENDING {
		return win.ErrorDeletePending
	}
	return win.Errno(status.Errno())
}

// interrupted is the error of a call that was given up because ctx ended.
func interrupted(ctx context.Context, err error) error {
	if errors.Is(err, win.ErrorOperationAborted) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// utf16Ptr returns s with a NUL at its end. Like all functions of x/sys that take or
// give UTF-16, and like [win.AppendUTF16], it takes WTF-8.
func utf16Ptr(s string) (*uint16, error) {
	p, err := windows.UTF16PtrFromString(s)
	if err != nil {
		return nil, win.ErrorInvalidName // a NUL within
	}
	return p, nil
}
