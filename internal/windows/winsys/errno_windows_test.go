// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestErrno(t *testing.T) {
	if err := errno(nil); err != nil {
		t.Errorf("nil becomes %v", err)
	}
	for _, tt := range []struct {
		err  error
		want win.Errno
	}{
		{windows.ERROR_FILE_NOT_FOUND, win.ErrorFileNotFound},
		{windows.ERROR_MORE_DATA, win.ErrorMoreData},
		{windows.STATUS_OBJECT_NAME_NOT_FOUND, win.ErrorFileNotFound},
		{windows.STATUS_OBJECT_PATH_NOT_FOUND, win.ErrorPathNotFound},
		{windows.STATUS_OBJECT_NAME_COLLISION, win.ErrorAlreadyExists},
		{windows.STATUS_OBJECT_NAME_INVALID, win.ErrorInvalidName},
		{windows.STATUS_NOT_A_DIRECTORY, win.ErrorDirectory},
		{windows.STATUS_FILE_IS_A_DIRECTORY, win.ErrorAccessDenied},
		{windows.STATUS_SHARING_VIOLATION, win.ErrorSharingViolation},
		{windows.STATUS_DIRECTORY_NOT_EMPTY, win.ErrorDirNotEmpty},
		{windows.STATUS_ACCESS_DENIED, win.ErrorAccessDenied},
		{windows.STATUS_CANNOT_DELETE, win.ErrorAccessDenied},
		{windows.STATUS_DELETE_PENDING, win.ErrorDeletePending},
		{windows.STATUS_FILE_DELETED, win.ErrorDeletePending},
		{windows.STATUS_CANCELLED, win.ErrorOperationAborted},
		{windows.STATUS_BAD_NETWORK_PATH, win.ErrorBadNetPath},
		{windows.STATUS_BAD_NETWORK_NAME, win.ErrorBadNetName},
		{windows.STATUS_REPARSE_POINT_ENCOUNTERED, win.Errno(windows.ERROR_REPARSE_POINT_ENCOUNTERED)},
		{windows.CR_ACCESS_DENIED, win.ErrorAccessDenied},
		{windows.CR_NO_SUCH_DEVICE_INTERFACE, win.ErrorNotFound},
		{windows.CR_NO_SUCH_DEVNODE, win.ErrorNotFound},
	} {
		if got := errno(tt.err); !errors.Is(got, tt.want) {
			t.Errorf("%#v becomes %v; want %v", tt.err, got, tt.want)
		}
	}
}
