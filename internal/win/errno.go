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
	ErrorInvalidFunction            Errno = 1
	ErrorFileNotFound               Errno = 2
	ErrorPathNotFound               Errno = 3
	ErrorAccessDenied               Errno = 5
	ErrorInvalidHandle              Errno = 6
	ErrorNotEnoughMemory            Errno = 8
	ErrorNotSameDevice              Errno = 17
	ErrorNoMoreFiles                Errno = 18
	ErrorWriteProtect               Errno = 19
	ErrorNotReady                   Errno = 21
	ErrorCRC                        Errno = 23
	ErrorSectorNotFound             Errno = 27
	ErrorGenFailure                 Errno = 31
	ErrorSharingViolation           Errno = 32
	ErrorLockViolation              Errno = 33
	ErrorHandleEOF                  Errno = 38
	ErrorNotSupported               Errno = 50
	ErrorRemNotList                 Errno = 51
	ErrorBadNetPath                 Errno = 53
	ErrorNetworkBusy                Errno = 54
	ErrorDevNotExist                Errno = 55
	ErrorTooManyCmds                Errno = 56
	ErrorUnexpNetErr                Errno = 59
	ErrorNetNameDeleted             Errno = 64
	ErrorBadNetName                 Errno = 67
	ErrorSharingPaused              Errno = 70
	ErrorReqNotAccep                Errno = 71
	ErrorFileExists                 Errno = 80
	ErrorAlreadyAssigned            Errno = 85
	ErrorInvalidPassword            Errno = 86
	ErrorInvalidParameter           Errno = 87
	ErrorDiskFull                   Errno = 112
	ErrorSemTimeout                 Errno = 121
	ErrorInsufficientBuffer         Errno = 122
	ErrorInvalidName                Errno = 123
	ErrorModNotFound                Errno = 126
	ErrorProcNotFound               Errno = 127
	ErrorDirNotEmpty                Errno = 145
	ErrorLabelTooLong               Errno = 154
	ErrorBusy                       Errno = 170
	ErrorAlreadyExists              Errno = 183
	ErrorFilenameExcedRange         Errno = 206
	ErrorMoreData                   Errno = 234
	ErrorNoMoreItems                Errno = 259
	ErrorDirectory                  Errno = 267
	ErrorDeletePending              Errno = 303
	ErrorNoSuchDevice               Errno = 433
	ErrorDeviceHardware             Errno = 483
	ErrorOperationAborted           Errno = 995
	ErrorNoAccess                   Errno = 998
	ErrorUnrecognizedVolume         Errno = 1005
	ErrorFileInvalid                Errno = 1006
	ErrorDependentServicesRunning   Errno = 1051
	ErrorInvalidServiceControl      Errno = 1052
	ErrorServiceRequestTimeout      Errno = 1053
	ErrorServiceAlreadyRunning      Errno = 1056
	ErrorServiceDisabled            Errno = 1058
	ErrorServiceDoesNotExist        Errno = 1060
	ErrorServiceCannotAcceptCtrl    Errno = 1061
	ErrorServiceNotActive           Errno = 1062
	ErrorServiceSpecificError       Errno = 1066
	ErrorProcessAborted             Errno = 1067
	ErrorServiceDependencyFail      Errno = 1068
	ErrorServiceLogonFailed         Errno = 1069
	ErrorServiceMarkedForDelete     Errno = 1072
	ErrorShutdownInProgress         Errno = 1115
	ErrorIODevice                   Errno = 1117
	ErrorDeviceNotConnected         Errno = 1167
	ErrorNotFound                   Errno = 1168
	ErrorDeviceAlreadyRemembered    Errno = 1202
	ErrorNoNetOrBadPath             Errno = 1203
	ErrorSessionCredentialConflict  Errno = 1219
	ErrorNoNetwork                  Errno = 1222
	ErrorConnectionRefused          Errno = 1225
	ErrorNetworkUnreachable         Errno = 1231
	ErrorHostUnreachable            Errno = 1232
	ErrorPortUnreachable            Errno = 1234
	ErrorConnectionAborted          Errno = 1236
	ErrorRetry                      Errno = 1237
	ErrorDowngradeDetected          Errno = 1265
	ErrorNoLogonServers             Errno = 1311
	ErrorNoSuchLogonSession         Errno = 1312
	ErrorPrivilegeNotHeld           Errno = 1314
	ErrorLogonFailure               Errno = 1326
	ErrorAccountRestriction         Errno = 1327
	ErrorPasswordExpired            Errno = 1330
	ErrorAccountDisabled            Errno = 1331
	ErrorLogonTypeNotGranted        Errno = 1385
	ErrorFileCorrupt                Errno = 1392
	ErrorDiskCorrupt                Errno = 1393
	ErrorNoSystemResources          Errno = 1450
	ErrorTimeout                    Errno = 1460
	ErrorDeviceRemoved              Errno = 1617
	ErrorUnsupportedType            Errno = 1630
	ErrorTrustedRelationshipFailure Errno = 1789
	ErrorPasswordMustChange         Errno = 1907
	ErrorAccountLockedOut           Errno = 1909
	ErrorBadUsername                Errno = 2202
	ErrorNotConnected               Errno = 2250
	ErrorOpenFiles                  Errno = 2401
	ErrorDeviceInUse                Errno = 2404
	ErrorNotAReparsePoint           Errno = 4390
	ErrorInvalidReparseData         Errno = 4392
	ErrorReparseTagInvalid          Errno = 4393
	ErrorReparseTagMismatch         Errno = 4394
	// ErrorReparsePointEncountered is the answer to an open that refuses reparse
	// points on its way (OBJ_DONT_REPARSE).
	ErrorReparsePointEncountered Errno = 4395
	ErrorResourceNotAvailable    Errno = 5006
	// FVELockedVolume is FVE_E_LOCKED_VOLUME: BitLocker holds the volume locked.
	FVELockedVolume Errno = 0x80310000
)

// The status codes of the iSCSI initiator (ISDSC_*) that operations tell apart.
//
// Source: iscsierr.h of the Windows SDK
const (
	ISDSCShortCHAPSecret               Errno = 0xAFFF0048
	ISDSCLoginFailed                   Errno = 0xEFFF0002
	ISDSCConnectionFailed              Errno = 0xEFFF0003
	ISDSCAuthenticationFailed          Errno = 0xEFFF0009
	ISDSCAuthorizationFailed           Errno = 0xEFFF000A
	ISDSCNotFound                      Errno = 0xEFFF000B
	ISDSCServiceUnavailable            Errno = 0xEFFF0013
	ISDSCSessionAlreadyExists          Errno = 0xEFFF0016
	ISDSCInvalidSessionID              Errno = 0xEFFF001C
	ISDSCSessionBusy                   Errno = 0xEFFF001F
	ISDSCLogonFailed                   Errno = 0xEFFF0022
	ISDSCTransportError                Errno = 0xEFFF0024
	ISDSCAuthInfoUnavailable           Errno = 0xEFFF0028
	ISDSCTargetNotFound                Errno = 0xEFFF0029
	ISDSCLoginUserInfoBad              Errno = 0xEFFF002A
	ISDSCTargetPortalAlreadyExists     Errno = 0xEFFF0032
	ISDSCRequestNotSupported           Errno = 0xEFFF0037
	ISDSCDidNotRespond                 Errno = 0xEFFF0039
	ISDSCNoPortalSpecified             Errno = 0xEFFF003C
	ISDSCServiceNotRunning             Errno = 0xEFFF003E
	ISDSCTargetAlreadyLoggedIn         Errno = 0xEFFF003F
	ISDSCDeviceBusyOnSession           Errno = 0xEFFF0040
	ISDSCCouldNotSavePersistentLogin   Errno = 0xEFFF0041
	ISDSCCouldNotRemovePersistentLogin Errno = 0xEFFF0042
	ISDSCPortalNotFound                Errno = 0xEFFF0043
	ISDSCInitiatorNotFound             Errno = 0xEFFF0044
	ISDSCInvalidCHAPSecret             Errno = 0xEFFF004A
	ISDSCInvalidISCSIName              Errno = 0xEFFF0051
	ISDSCBufferTooSmall                Errno = 0xEFFF0054
	ISDSCDeviceNotFound                Errno = 0xEFFF005D
	ISDSCDNSNameUnresolved             Errno = 0xEFFF005F
	ISDSCRemoveConnectionInProgress    Errno = 0xEFFF0062
)

var errnoText = map[Errno]string{
	ErrorInvalidFunction:               "incorrect function",
	ErrorFileNotFound:                  "The system cannot find the file specified",
	ErrorPathNotFound:                  "The system cannot find the path specified",
	ErrorAccessDenied:                  "access is denied",
	ErrorInvalidHandle:                 "the handle is invalid",
	ErrorNotEnoughMemory:               "not enough memory resources",
	ErrorNotSameDevice:                 "not the same disk",
	ErrorNoMoreFiles:                   "no more files",
	ErrorWriteProtect:                  "the media is write protected",
	ErrorNotReady:                      "the device is not ready",
	ErrorCRC:                           "data error (cyclic redundancy check)",
	ErrorSectorNotFound:                "the sector is not found",
	ErrorGenFailure:                    "a device attached to the system is not functioning",
	ErrorSharingViolation:              "in use by another process",
	ErrorLockViolation:                 "locked by another process",
	ErrorHandleEOF:                     "end of file",
	ErrorNotSupported:                  "the request is not supported",
	ErrorRemNotList:                    "the remote computer is not available",
	ErrorBadNetPath:                    "the network path was not found",
	ErrorNetworkBusy:                   "the network is busy",
	ErrorDevNotExist:                   "the device does not exist",
	ErrorTooManyCmds:                   "the network command limit is reached",
	ErrorUnexpNetErr:                   "an unexpected network error occurred",
	ErrorNetNameDeleted:                "the network name is no longer available",
	ErrorBadNetName:                    "the network name cannot be found",
	ErrorSharingPaused:                 "the remote server is paused or starting",
	ErrorReqNotAccep:                   "no more connections can be made to the remote computer",
	ErrorFileExists:                    "the file exists",
	ErrorAlreadyAssigned:               "the local device name is already in use",
	ErrorInvalidPassword:               "the network password is not correct",
	ErrorInvalidParameter:              "the parameter is incorrect",
	ErrorDiskFull:                      "not enough space on the disk",
	ErrorSemTimeout:                    "the semaphore timeout period has expired",
	ErrorInsufficientBuffer:            "the data area passed to a system call is too small",
	ErrorInvalidName:                   "the name or path syntax is incorrect",
	ErrorModNotFound:                   "the module was not found",
	ErrorProcNotFound:                  "the procedure was not found",
	ErrorDirNotEmpty:                   "the directory is not empty",
	ErrorLabelTooLong:                  "the volume label is too long",
	ErrorBusy:                          "the resource is in use",
	ErrorAlreadyExists:                 "the file already exists",
	ErrorFilenameExcedRange:            "the name is too long",
	ErrorMoreData:                      "more data is available",
	ErrorNoMoreItems:                   "no more data is available",
	ErrorDirectory:                     "the directory name is invalid",
	ErrorDeletePending:                 "the file is being deleted",
	ErrorNoSuchDevice:                  "a device which does not exist was specified",
	ErrorDeviceHardware:                "the request failed due to a fatal device hardware error",
	ErrorOperationAborted:              "the operation was aborted",
	ErrorNoAccess:                      "invalid access to memory location",
	ErrorUnrecognizedVolume:            "the volume holds no recognized file system",
	ErrorFileInvalid:                   "the volume of the open file has left, or was dismounted",
	ErrorDependentServicesRunning:      "services that depend on it are running",
	ErrorInvalidServiceControl:         "the control is not valid for this service",
	ErrorServiceRequestTimeout:         "the service did not respond in time",
	ErrorServiceAlreadyRunning:         "the service is running already",
	ErrorServiceDisabled:               "the service is disabled",
	ErrorServiceDoesNotExist:           "there is no such service",
	ErrorServiceCannotAcceptCtrl:       "the service cannot accept control messages at this time",
	ErrorServiceNotActive:              "the service has not been started",
	ErrorServiceSpecificError:          "the service ended with an error of its own",
	ErrorProcessAborted:                "the process ended unexpectedly",
	ErrorServiceDependencyFail:         "a service that it depends on failed to start",
	ErrorServiceLogonFailed:            "the service did not start because of a logon failure",
	ErrorServiceMarkedForDelete:        "the service is marked for deletion",
	ErrorShutdownInProgress:            "the system is shutting down",
	ErrorIODevice:                      "I/O device error",
	ErrorDeviceNotConnected:            "the device is not connected",
	ErrorNotFound:                      "element not found",
	ErrorDeviceAlreadyRemembered:       "the connection is remembered already",
	ErrorNoNetOrBadPath:                "no network provider accepted the path",
	ErrorSessionCredentialConflict:     "other credentials are in use for this server",
	ErrorNoNetwork:                     "the network is not present or not started",
	ErrorConnectionRefused:             "the remote computer refused the connection",
	ErrorNetworkUnreachable:            "the network cannot be reached",
	ErrorHostUnreachable:               "the host cannot be reached",
	ErrorPortUnreachable:               "no service answers at the remote port",
	ErrorConnectionAborted:             "the connection was aborted",
	ErrorRetry:                         "the operation could not be completed; a retry should be performed",
	ErrorDowngradeDetected:             "the system cannot contact a domain controller",
	ErrorNoLogonServers:                "no logon servers are available",
	ErrorNoSuchLogonSession:            "the logon session does not exist",
	ErrorPrivilegeNotHeld:              "a required privilege is not held",
	ErrorLogonFailure:                  "the user name or password is incorrect",
	ErrorAccountRestriction:            "an account restriction prevents the logon",
	ErrorPasswordExpired:               "the password has expired",
	ErrorAccountDisabled:               "the account is disabled",
	ErrorLogonTypeNotGranted:           "the account may not log on in this way",
	ErrorFileCorrupt:                   "the file or directory is corrupted",
	ErrorDiskCorrupt:                   "the disk structure is corrupted",
	ErrorNoSystemResources:             "insufficient system resources",
	ErrorDeviceRemoved:                 "the device has been removed",
	ErrorUnsupportedType:               "the value has another type",
	ErrorTimeout:                       "the operation timed out",
	ErrorTrustedRelationshipFailure:    "the trust relationship with the domain failed",
	ErrorPasswordMustChange:            "the password must be changed first",
	ErrorAccountLockedOut:              "the account is locked out",
	ErrorBadUsername:                   "the user name is invalid",
	ErrorNotConnected:                  "there is no such network connection",
	ErrorOpenFiles:                     "there are open files on the network connection",
	ErrorDeviceInUse:                   "the device is in use",
	ErrorNotAReparsePoint:              "not a reparse point",
	ErrorInvalidReparseData:            "the reparse point data is invalid",
	ErrorReparseTagInvalid:             "the reparse tag is invalid",
	ErrorReparseTagMismatch:            "the reparse tags differ",
	ErrorReparsePointEncountered:       "there is a reparse point on the way",
	ErrorResourceNotAvailable:          "the resource is unavailable",
	FVELockedVolume:                    "the volume is locked by BitLocker drive encryption",
	ISDSCShortCHAPSecret:               "the CHAP secret is too short",
	ISDSCLoginFailed:                   "the iSCSI login failed",
	ISDSCConnectionFailed:              "the iSCSI connection failed",
	ISDSCAuthenticationFailed:          "the iSCSI target refused the authentication",
	ISDSCAuthorizationFailed:           "the iSCSI target refused the authorization",
	ISDSCNotFound:                      "the iSCSI target was not found at the portal",
	ISDSCServiceUnavailable:            "the iSCSI target's service is unavailable",
	ISDSCSessionAlreadyExists:          "the iSCSI session exists already",
	ISDSCInvalidSessionID:              "there is no such iSCSI session",
	ISDSCSessionBusy:                   "the iSCSI session is busy",
	ISDSCLogonFailed:                   "the iSCSI logon failed",
	ISDSCTransportError:                "the iSCSI transport failed",
	ISDSCAuthInfoUnavailable:           "the iSCSI authentication information is not available",
	ISDSCTargetNotFound:                "the iSCSI target is not known",
	ISDSCLoginUserInfoBad:              "the iSCSI login's user information is invalid",
	ISDSCTargetPortalAlreadyExists:     "the iSCSI target portal exists already",
	ISDSCRequestNotSupported:           "the iSCSI request is not supported",
	ISDSCDidNotRespond:                 "the iSCSI target did not respond",
	ISDSCNoPortalSpecified:             "no iSCSI target portal was specified",
	ISDSCServiceNotRunning:             "the iSCSI initiator service is not running",
	ISDSCTargetAlreadyLoggedIn:         "the iSCSI target is logged in already",
	ISDSCDeviceBusyOnSession:           "a device of the iSCSI session is in use",
	ISDSCCouldNotSavePersistentLogin:   "the persistent iSCSI login could not be saved",
	ISDSCCouldNotRemovePersistentLogin: "the persistent iSCSI login could not be removed",
	ISDSCPortalNotFound:                "the iSCSI target portal is not known",
	ISDSCInitiatorNotFound:             "the iSCSI initiator was not found",
	ISDSCInvalidCHAPSecret:             "the CHAP secret is invalid",
	ISDSCInvalidISCSIName:              "the iSCSI name is invalid",
	ISDSCBufferTooSmall:                "the buffer is too small",
	ISDSCDeviceNotFound:                "the iSCSI device was not found",
	ISDSCDNSNameUnresolved:             "the name of the iSCSI target portal cannot be resolved",
	ISDSCRemoveConnectionInProgress:    "the iSCSI connection is being removed",
}

// Error gives a short English text and the number. The text is ours, not the
// system's: system texts are localized, so nothing may depend on them.
func (e Errno) Error() string {
	// The numbers have the form of Microsoft's pages, so that people can search for them.
	format := "Windows error %d"
	if e > 0xFFFF {
		format = "Windows error 0x%08X"
	}
	number := fmt.Sprintf(format, uint32(e))
	if text, ok := errnoText[e]; ok {
		return text + " (" + number + ")"
	}
	return number
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

// Gone reports whether the device behind a handle or a name has left the node.
func (e Errno) Gone() bool {
	switch e {
	case ErrorFileNotFound, ErrorPathNotFound, ErrorDevNotExist, ErrorNoSuchDevice, ErrorDeviceNotConnected, ErrorDeviceRemoved:
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
