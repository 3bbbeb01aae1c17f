// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestErrno(t *testing.T) {
	if err := errno(nil); err != nil {
		t.Errorf("nil becomes %v", err)
	}
	for _, tt := range []struct {
		err  error
		want winerr.Errno
	}{
		{windows.ERROR_FILE_NOT_FOUND, winerr.ErrorFileNotFound},
		{windows.ERROR_MORE_DATA, winerr.ErrorMoreData},
		{windows.STATUS_OBJECT_NAME_NOT_FOUND, winerr.ErrorFileNotFound},
		{windows.STATUS_OBJECT_PATH_NOT_FOUND, winerr.ErrorPathNotFound},
		{windows.STATUS_OBJECT_NAME_COLLISION, winerr.ErrorAlreadyExists},
		{windows.STATUS_OBJECT_NAME_INVALID, winerr.ErrorInvalidName},
		{windows.STATUS_NOT_A_DIRECTORY, winerr.ErrorDirectory},
		{windows.STATUS_FILE_IS_A_DIRECTORY, winerr.ErrorAccessDenied},
		{windows.STATUS_SHARING_VIOLATION, winerr.ErrorSharingViolation},
		{windows.STATUS_DIRECTORY_NOT_EMPTY, winerr.ErrorDirNotEmpty},
		{windows.STATUS_ACCESS_DENIED, winerr.ErrorAccessDenied},
		{windows.STATUS_CANNOT_DELETE, winerr.ErrorAccessDenied},
		{windows.STATUS_DELETE_PENDING, winerr.ErrorDeletePending},
		{windows.STATUS_FILE_DELETED, winerr.ErrorDeletePending},
		{windows.STATUS_CANCELLED, winerr.ErrorOperationAborted},
		{windows.STATUS_BAD_NETWORK_PATH, winerr.ErrorBadNetPath},
		{windows.STATUS_BAD_NETWORK_NAME, winerr.ErrorBadNetName},
		{windows.STATUS_REPARSE_POINT_ENCOUNTERED, winerr.Errno(windows.ERROR_REPARSE_POINT_ENCOUNTERED)},
		{windows.CR_ACCESS_DENIED, winerr.ErrorAccessDenied},
		{windows.CR_NO_SUCH_DEVICE_INTERFACE, winerr.ErrorNotFound},
		{windows.CR_NO_SUCH_DEVNODE, winerr.ErrorNotFound},
	} {
		if got := errno(tt.err); !errors.Is(got, tt.want) {
			t.Errorf("%#v becomes %v; want %v", tt.err, got, tt.want)
		}
	}
}
