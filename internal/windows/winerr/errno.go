// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winerr has the error numbers of Windows, and their meanings.
package winerr

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Errno is a Windows system error number from GetLastError. The seam reports every refused call as
// an Errno.
//
// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes
type Errno uint32

// The error numbers distinguished by operations or returned by the simulated node.
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
	ErrorHandleDiskFull             Errno = 39
	ErrorNotSupported               Errno = 50
	ErrorRemNotList                 Errno = 51
	ErrorBadNetPath                 Errno = 53
	ErrorNetworkBusy                Errno = 54
	ErrorDevNotExist                Errno = 55
	ErrorTooManyCmds                Errno = 56
	ErrorBadNetResp                 Errno = 58
	ErrorUnexpNetErr                Errno = 59
	ErrorNetNameDeleted             Errno = 64
	ErrorNetworkAccessDenied        Errno = 65
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
	ErrorVCDisconnected             Errno = 240
	ErrorNoMoreItems                Errno = 259
	ErrorDirectory                  Errno = 267
	ErrorDeletePending              Errno = 303
	ErrorSMB1NotAvailable           Errno = 384
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
	ErrorExtended                   Errno = 1208
	ErrorSessionCredentialConflict  Errno = 1219
	ErrorNoNetwork                  Errno = 1222
	ErrorConnectionRefused          Errno = 1225
	ErrorNetworkUnreachable         Errno = 1231
	ErrorHostUnreachable            Errno = 1232
	ErrorPortUnreachable            Errno = 1234
	ErrorConnectionAborted          Errno = 1236
	ErrorRetry                      Errno = 1237
	ErrorDowngradeDetected          Errno = 1265
	ErrorSMBGuestLogonBlocked       Errno = 1272
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
	ErrorWrongTargetName            Errno = 1396
	ErrorNoSystemResources          Errno = 1450
	ErrorTimeout                    Errno = 1460
	ErrorDeviceRemoved              Errno = 1617
	ErrorUnsupportedType            Errno = 1630
	ErrorTrustedRelationshipFailure Errno = 1789
	ErrorPasswordMustChange         Errno = 1907
	ErrorAccountLockedOut           Errno = 1909
	ErrorNTLMBlocked                Errno = 1937
	NERRWkstaNotStarted             Errno = 2138
	ErrorBadUsername                Errno = 2202
	ErrorNotConnected               Errno = 2250
	ErrorOpenFiles                  Errno = 2401
	ErrorDeviceInUse                Errno = 2404
	NERRTimeDiffAtDC                Errno = 2457
	ErrorNotAReparsePoint           Errno = 4390
	ErrorInvalidReparseData         Errno = 4392
	ErrorReparseTagInvalid          Errno = 4393
	ErrorReparseTagMismatch         Errno = 4394
	// ErrorReparsePointEncountered is the error of an open with OBJ_DONT_REPARSE for a reparse
	// point on the way.
	ErrorReparsePointEncountered Errno = 4395
	ErrorResourceNotAvailable    Errno = 5006
	// FVELockedVolume is FVE_E_LOCKED_VOLUME: BitLocker holds the volume locked.
	FVELockedVolume Errno = 0x80310000
	// StatusInvalidSignature is the NTSTATUS of an SMB answer with a wrong signature.
	StatusInvalidSignature Errno = 0xC000A000
)

// The results of WMI distinguished by operations.
//
// Source: https://learn.microsoft.com/windows/win32/wmisdk/wmi-error-constants
const (
	WBEMFailed           Errno = 0x80041001 // for any reason
	WBEMInvalidNamespace Errno = 0x8004100E
	WBEMInvalidClass     Errno = 0x80041010
)

// The status codes of the iSCSI initiator (ISDSC_*) distinguished by operations.
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

// Error returns a short English text and the number. The text is ours: system texts are localized,
// and unusable for comparisons.
func (e Errno) Error() string {
	// Numbers have the form used on Microsoft's pages, for searching.
	format := "Windows error %d"
	if e > 0xFFFF {
		format = "Windows error 0x%08X"
	}
	number := fmt.Sprintf(format, uint32(e))
	if known, ok := errnos[e]; ok {
		return known.text + " (" + number + ")"
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
	case ErrorFileNotFound, ErrorPathNotFound, ErrorDevNotExist, ErrorNoSuchDevice, ErrorDeviceNotConnected,
		ErrorDeviceRemoved:
		return true
	}
	return false
}

// IsGone reports whether err is a number for a device that has left the node. A single error proves
// nothing: an arriving device may give the same number.
func IsGone(err error) bool {
	errno := Errno(0)
	return errors.As(err, &errno) && errno.Gone()
}

// IsAnswer reports whether err is the answer of a present device that refuses a query: a number, and
// not of a device that has left or isn't ready.
func IsAnswer(err error) bool {
	return errors.As(err, new(Errno)) && !IsGone(err) && !errors.Is(err, ErrorNotReady)
}

// IsAny reports whether err is one of some numbers.
func IsAny(err error, numbers ...Errno) bool {
	return slices.ContainsFunc(numbers, func(n Errno) bool { return errors.Is(err, n) })
}
