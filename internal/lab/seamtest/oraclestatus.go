// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// statuses are what the facts call the answers, by the names of NTSTATUS without STATUS_,
// or of Windows' errors where a source has those. The number is what
// RtlNtStatusToDosError makes of it, but for a file that is being deleted, or was: package
// winsys keeps these apart from one that mustn't be.
//
// Source: https://learn.microsoft.com/openspecs/windows_protocols/ms-erref and
// https://learn.microsoft.com/windows/win32/debug/system-error-codes
var statuses = map[string]winerr.Errno{
	"ACCESS_DENIED":              winerr.ErrorAccessDenied,
	"BAD_NETWORK_NAME":           winerr.ErrorBadNetName,
	"BAD_NETWORK_PATH":           winerr.ErrorBadNetPath,
	"BUFFER_OVERFLOW":            winerr.ErrorMoreData,
	"BUFFER_TOO_SMALL":           winerr.ErrorInsufficientBuffer,
	"CANNOT_DELETE":              winerr.ErrorAccessDenied,
	"DELETE_PENDING":             winerr.ErrorDeletePending,
	"DIRECTORY_NOT_EMPTY":        winerr.ErrorDirNotEmpty,
	"FILE_DELETED":               winerr.ErrorDeletePending,
	"FILE_IS_A_DIRECTORY":        winerr.ErrorAccessDenied,
	"INFO_LENGTH_MISMATCH":       24,
	"INVALID_DEVICE_REQUEST":     winerr.ErrorInvalidFunction,
	"INVALID_PARAMETER":          winerr.ErrorInvalidParameter,
	"IO_REPARSE_DATA_INVALID":    winerr.ErrorInvalidReparseData,
	"IO_REPARSE_TAG_INVALID":     winerr.ErrorReparseTagInvalid,
	"IO_REPARSE_TAG_MISMATCH":    winerr.ErrorReparseTagMismatch,
	"IO_REPARSE_TAG_NOT_HANDLED": 1920,
	"LOGON_FAILURE":              winerr.ErrorLogonFailure,
	"MEDIA_WRITE_PROTECTED":      winerr.ErrorWriteProtect,
	"LOCK_NOT_GRANTED":           winerr.ErrorLockViolation,
	"NOT_A_DIRECTORY":            winerr.ErrorDirectory,
	"NOT_A_REPARSE_POINT":        winerr.ErrorNotAReparsePoint,
	"NOT_LOCKED":                 158,
	"NO_MORE_FILES":              winerr.ErrorNoMoreFiles,
	"NOT_SUPPORTED":              winerr.ErrorNotSupported,
	"OBJECT_NAME_COLLISION":      winerr.ErrorAlreadyExists,
	"OBJECT_NAME_INVALID":        winerr.ErrorInvalidName,
	"OBJECT_NAME_NOT_FOUND":      winerr.ErrorFileNotFound,
	"OBJECT_PATH_NOT_FOUND":      winerr.ErrorPathNotFound,
	"REPARSE_POINT_NOT_RESOLVED": 1921,
	"REPARSE_POINT_ENCOUNTERED":  winerr.ErrorReparsePointEncountered,
	"SHARING_VIOLATION":          winerr.ErrorSharingViolation,
	"UNSUCCESSFUL":               winerr.ErrorGenFailure,
	"UNRECOGNIZED_VOLUME":        winerr.ErrorUnrecognizedVolume,
	"VOLUME_DISMOUNTED":          winerr.ErrorNotReady,
	"ERROR_INVALID_NAME":         winerr.ErrorInvalidName,
	"ERROR_FILE_NOT_FOUND":       winerr.ErrorFileNotFound,
	"ERROR_INVALID_PARAMETER":    winerr.ErrorInvalidParameter,
	"ERROR_NOT_A_REPARSE_POINT":  winerr.ErrorNotAReparsePoint,
	"ERROR_DIR_NOT_EMPTY":        winerr.ErrorDirNotEmpty,
	"ERROR_DIR_NOT_ROOT":         144,

	"ERROR_DEPENDENT_SERVICES_RUNNING": winerr.ErrorDependentServicesRunning,
	"ERROR_NOT_CONNECTED":              winerr.ErrorNotConnected,
	"ERROR_RETRY":                      winerr.ErrorRetry,
	"ERROR_SEM_TIMEOUT":                winerr.ErrorSemTimeout,
	"ERROR_SERVICE_ALREADY_RUNNING":    winerr.ErrorServiceAlreadyRunning,
	"ERROR_SERVICE_DISABLED":           winerr.ErrorServiceDisabled,
	"ERROR_SERVICE_DOES_NOT_EXIST":     winerr.ErrorServiceDoesNotExist,
	"ERROR_SERVICE_NOT_ACTIVE":         winerr.ErrorServiceNotActive,
	"ERROR_UNSUPPORTED_TYPE":           winerr.ErrorUnsupportedType,
}
