// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import "github.com/csi-proxy/csi-proxy/internal/windows/win"

// statuses are what the facts call the answers, by the names of NTSTATUS without STATUS_,
// or of Windows' errors where a source has those. The number is what
// RtlNtStatusToDosError makes of it, but for a file that is being deleted, or was: package
// winsys keeps these apart from one that mustn't be.
//
// Source: https://learn.microsoft.com/openspecs/windows_protocols/ms-erref and
// https://learn.microsoft.com/windows/win32/debug/system-error-codes
var statuses = map[string]win.Errno{
	"ACCESS_DENIED":              win.ErrorAccessDenied,
	"BAD_NETWORK_NAME":           win.ErrorBadNetName,
	"BAD_NETWORK_PATH":           win.ErrorBadNetPath,
	"BUFFER_OVERFLOW":            win.ErrorMoreData,
	"BUFFER_TOO_SMALL":           win.ErrorInsufficientBuffer,
	"CANNOT_DELETE":              win.ErrorAccessDenied,
	"DELETE_PENDING":             win.ErrorDeletePending,
	"DIRECTORY_NOT_EMPTY":        win.ErrorDirNotEmpty,
	"FILE_DELETED":               win.ErrorDeletePending,
	"FILE_IS_A_DIRECTORY":        win.ErrorAccessDenied,
	"INFO_LENGTH_MISMATCH":       24,
	"INVALID_DEVICE_REQUEST":     win.ErrorInvalidFunction,
	"INVALID_PARAMETER":          win.ErrorInvalidParameter,
	"IO_REPARSE_DATA_INVALID":    win.ErrorInvalidReparseData,
	"IO_REPARSE_TAG_INVALID":     win.ErrorReparseTagInvalid,
	"IO_REPARSE_TAG_MISMATCH":    win.ErrorReparseTagMismatch,
	"IO_REPARSE_TAG_NOT_HANDLED": 1920,
	"LOGON_FAILURE":              win.ErrorLogonFailure,
	"MEDIA_WRITE_PROTECTED":      win.ErrorWriteProtect,
	"LOCK_NOT_GRANTED":           win.ErrorLockViolation,
	"NOT_A_DIRECTORY":            win.ErrorDirectory,
	"NOT_A_REPARSE_POINT":        win.ErrorNotAReparsePoint,
	"NOT_LOCKED":                 158,
	"NO_MORE_FILES":              win.ErrorNoMoreFiles,
	"NOT_SUPPORTED":              win.ErrorNotSupported,
	"OBJECT_NAME_COLLISION":      win.ErrorAlreadyExists,
	"OBJECT_NAME_INVALID":        win.ErrorInvalidName,
	"OBJECT_NAME_NOT_FOUND":      win.ErrorFileNotFound,
	"OBJECT_PATH_NOT_FOUND":      win.ErrorPathNotFound,
	"REPARSE_POINT_NOT_RESOLVED": 1921,
	"REPARSE_POINT_ENCOUNTERED":  win.ErrorReparsePointEncountered,
	"SHARING_VIOLATION":          win.ErrorSharingViolation,
	"UNSUCCESSFUL":               win.ErrorGenFailure,
	"UNRECOGNIZED_VOLUME":        win.ErrorUnrecognizedVolume,
	"VOLUME_DISMOUNTED":          win.ErrorNotReady,
	"ERROR_INVALID_NAME":         win.ErrorInvalidName,
	"ERROR_FILE_NOT_FOUND":       win.ErrorFileNotFound,
	"ERROR_INVALID_PARAMETER":    win.ErrorInvalidParameter,
	"ERROR_NOT_A_REPARSE_POINT":  win.ErrorNotAReparsePoint,
	"ERROR_DIR_NOT_EMPTY":        win.ErrorDirNotEmpty,
	"ERROR_DIR_NOT_ROOT":         144,

	"ERROR_DEPENDENT_SERVICES_RUNNING": win.ErrorDependentServicesRunning,
	"ERROR_NOT_CONNECTED":              win.ErrorNotConnected,
	"ERROR_RETRY":                      win.ErrorRetry,
	"ERROR_SEM_TIMEOUT":                win.ErrorSemTimeout,
	"ERROR_SERVICE_ALREADY_RUNNING":    win.ErrorServiceAlreadyRunning,
	"ERROR_SERVICE_DISABLED":           win.ErrorServiceDisabled,
	"ERROR_SERVICE_DOES_NOT_EXIST":     win.ErrorServiceDoesNotExist,
	"ERROR_SERVICE_NOT_ACTIVE":         win.ErrorServiceNotActive,
	"ERROR_UNSUPPORTED_TYPE":           win.ErrorUnsupportedType,
}
