// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"fmt"
	"io/fs"
	"time"
)

// Errno is a Windows system error number as GetLastError returns it. It is the
// only form in which the seam reports that Windows refused a call.
//
// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes
type Errno uint32

// The error numbers that operations tell apart or that the simulated node gives.
const (
	ErrorInvalidFunction    Errno = 1
	ErrorFileNotFound       Errno = 2
	ErrorPathNotFound       Errno = 3
	ErrorAccessDenied       Errno = 5
	ErrorInvalidHandle      Errno = 6
	ErrorNotSameDevice      Errno = 17
	ErrorNoMoreFiles        Errno = 18
	ErrorWriteProtect       Errno = 19
	ErrorNotReady           Errno = 21
	ErrorCRC                Errno = 23
	ErrorSectorNotFound     Errno = 27
	ErrorGenFailure         Errno = 31
	ErrorSharingViolation   Errno = 32
	ErrorLockViolation      Errno = 33
	ErrorHandleEOF          Errno = 38
	ErrorNotSupported       Errno = 50
	ErrorBadNetPath         Errno = 53
	ErrorDevNotExist        Errno = 55
	ErrorNetNameDeleted     Errno = 64
	ErrorBadNetName         Errno = 67
	ErrorFileExists         Errno = 80
	ErrorInvalidPassword    Errno = 86
	ErrorInvalidParameter   Errno = 87
	ErrorDiskFull           Errno = 112
	ErrorSemTimeout         Errno = 121
	ErrorInsufficientBuffer Errno = 122
	ErrorInvalidName        Errno = 123
	ErrorDirNotEmpty        Errno = 145
	ErrorLabelTooLong       Errno = 154
	ErrorBusy               Errno = 170
	ErrorAlreadyExists      Errno = 183
	ErrorFilenameExcedRange Errno = 206
	ErrorMoreData           Errno = 234
	ErrorNoMoreItems        Errno = 259
	ErrorDirectory          Errno = 267
	ErrorDeletePending      Errno = 303
	ErrorOperationAborted   Errno = 995
	ErrorUnrecognizedVolume Errno = 1005
	ErrorServiceNotActive   Errno = 1062
	ErrorIODevice           Errno = 1117
	ErrorDeviceNotConnected Errno = 1167
	ErrorNotFound           Errno = 1168
	ErrorRetry              Errno = 1237
	ErrorPrivilegeNotHeld   Errno = 1314
	ErrorLogonFailure       Errno = 1326
	ErrorFileCorrupt        Errno = 1392
	ErrorDiskCorrupt        Errno = 1393
	ErrorNotAReparsePoint   Errno = 4390
	ErrorInvalidReparseData Errno = 4392
	ErrorReparseTagInvalid  Errno = 4393
	ErrorReparseTagMismatch Errno = 4394
	// ErrorReparsePointEncountered is the answer to an open that refuses reparse
	// points on its way (OBJ_DONT_REPARSE).
	ErrorReparsePointEncountered Errno = 4395
	ErrorResourceNotAvailable    Errno = 5006
	// FVELockedVolume is FVE_E_LOCKED_VOLUME: BitLocker holds the volume locked.
	FVELockedVolume Errno = 0x80310000
)

var errnoText = map[Errno]string{
	ErrorInvalidFunction:         "incorrect function",
	ErrorFileNotFound:            "file not found",
	ErrorPathNotFound:            "path not found",
	ErrorAccessDenied:            "access is denied",
	ErrorInvalidHandle:           "the handle is invalid",
	ErrorNotSameDevice:           "not the same disk",
	ErrorNoMoreFiles:             "no more files",
	ErrorWriteProtect:            "the media is write protected",
	ErrorNotReady:                "the device is not ready",
	ErrorCRC:                     "data error (cyclic redundancy check)",
	ErrorSectorNotFound:          "the sector is not found",
	ErrorGenFailure:              "a device attached to the system is not functioning",
	ErrorSharingViolation:        "in use by another process",
	ErrorLockViolation:           "locked by another process",
	ErrorHandleEOF:               "end of file",
	ErrorNotSupported:            "the request is not supported",
	ErrorBadNetPath:              "the network path was not found",
	ErrorDevNotExist:             "the device does not exist",
	ErrorNetNameDeleted:          "the network name is no longer available",
	ErrorBadNetName:              "the network name cannot be found",
	ErrorFileExists:              "the file exists",
	ErrorInvalidPassword:         "the network password is not correct",
	ErrorInvalidParameter:        "the parameter is incorrect",
	ErrorDiskFull:                "not enough space on the disk",
	ErrorSemTimeout:              "the semaphore timeout period has expired",
	ErrorInsufficientBuffer:      "the data area passed to a system call is too small",
	ErrorInvalidName:             "the name or path syntax is incorrect",
	ErrorDirNotEmpty:             "the directory is not empty",
	ErrorLabelTooLong:            "the volume label is too long",
	ErrorBusy:                    "the resource is in use",
	ErrorAlreadyExists:           "the file already exists",
	ErrorFilenameExcedRange:      "the name is too long",
	ErrorMoreData:                "more data is available",
	ErrorNoMoreItems:             "no more data is available",
	ErrorDirectory:               "the directory name is invalid",
	ErrorDeletePending:           "the file is being deleted",
	ErrorOperationAborted:        "the operation was aborted",
	ErrorUnrecognizedVolume:      "the volume holds no recognized file system",
	ErrorServiceNotActive:        "the service has not been started",
	ErrorIODevice:                "I/O device error",
	ErrorDeviceNotConnected:      "the device is not connected",
	ErrorNotFound:                "element not found",
	ErrorRetry:                   "the operation could not be completed; a retry should be performed",
	ErrorPrivilegeNotHeld:        "a required privilege is not held",
	ErrorLogonFailure:            "the user name or password is incorrect",
	ErrorFileCorrupt:             "the file or directory is corrupted",
	ErrorDiskCorrupt:             "the disk structure is corrupted",
	ErrorNotAReparsePoint:        "not a reparse point",
	ErrorInvalidReparseData:      "the reparse point data is invalid",
	ErrorReparseTagInvalid:       "the reparse tag is invalid",
	ErrorReparseTagMismatch:      "the reparse tags differ",
	ErrorReparsePointEncountered: "there is a reparse point on the way",
	ErrorResourceNotAvailable:    "the resource is unavailable",
	FVELockedVolume:              "the volume is locked by BitLocker drive encryption",
}

// Error gives a short English text and the number. The text is ours, not the
// system's: system texts are localized, so nothing may depend on them.
func (e Errno) Error() string {
	if text, ok := errnoText[e]; ok {
		return fmt.Sprintf("%s (Windows error %d)", text, uint32(e))
	}
	return fmt.Sprintf("Windows error %d", uint32(e))
}

// Is lets errors.Is match the portable file system errors.
func (e Errno) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e == ErrorFileNotFound || e == ErrorPathNotFound
	case fs.ErrExist:
		return e == ErrorFileExists || e == ErrorAlreadyExists || e == ErrorDirNotEmpty
	case fs.ErrPermission:
		return e == ErrorAccessDenied || e == ErrorPrivilegeNotHeld
	}
	return false
}

// Gone reports that the device behind a handle or a name has left the node.
func (e Errno) Gone() bool {
	switch e {
	case ErrorFileNotFound, ErrorPathNotFound, ErrorDevNotExist, ErrorDeviceNotConnected:
		return true
	}
	return false
}

// Sleep waits for d or until ctx ends, and returns ctx's error in that case.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
