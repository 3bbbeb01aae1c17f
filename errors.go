// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csiproxy contains the types shared by all clients of CSI Proxy: the storage API, the ids
// of disks, volumes and iSCSI targets, secrets and errors.
//
// [StorageOperations] does whole tasks of a CSI node in one call each: find a disk, stage a volume,
// publish it, grow it, and undo each step. Like its API group, StorageOperations is v1alpha1: names
// and fields may still change. The operations of the older groups are in package published. Package
// node does both in process, package client over the daemon's pipes.
//
// Callers distinguish errors with errors.Is and the sentinels below, in process and over a pipe.
package csiproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The classes of errors. Every error of an operation belongs to exactly one class, or is
// context.Canceled or context.DeadlineExceeded.
//
// The class decides the remedy. ErrUnavailable: retry the same call, after a pause.
// ErrFailedPrecondition: change the node's state first, as the text says. ErrInvalidArgument and
// ErrUnimplemented: change the call. A driver that returns errors to kubelet needs no rule of its
// own: client.Code returns the code, and kubelet retries all of them.
var (
	// ErrInvalidArgument means a request that is wrong in every state of the node: a path outside
	// of the kubelet directory, a malformed volume id, a size below zero.
	//
	// For a correct request that lacks something on the node, the error is ErrNotFound or
	// ErrFailedPrecondition.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrNotFound means that the object of the call is missing: no disk has the serial number, the
	// path of GetVolume has no mount, the server has no such share.
	//
	// Calls of the group storage that remove or unmount a missing object succeed instead, and so do
	// UnmountVolume, DisconnectTarget and Rmdir with force. A temporarily unreachable object is
	// ErrUnavailable. Therefore a disk with ErrNotFound has left, or has never come.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists means that something else occupies the place of a new object: a file is at
	// the target path of PublishVolume, a directory with entries at the path of a link.
	//
	// If an earlier attempt has made the same object, the call succeeds.
	ErrAlreadyExists = errors.New("already exists")
	// ErrFailedPrecondition means that the node's state forbids the call, until somebody changes
	// the state: the disk holds data of another system, a process uses the volume, another user has
	// mapped the share.
	//
	// A state that passes by itself is ErrUnavailable: a disk still coming online.
	ErrFailedPrecondition = errors.New("failed precondition")
	// ErrPermissionDenied means that Windows, an SMB server or the rules for paths forbid the call
	// to this caller: the service's account lacks a privilege, a link leads out of the kubelet
	// directory, the user may not use the share.
	//
	// An unknown user, or a wrong password, is ErrUnauthenticated.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrUnauthenticated means that a server refuses the credentials: the password of a share is
	// wrong or has expired, or the CHAP secret of a target differs.
	//
	// A known user without the right to use the share is ErrPermissionDenied.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrResourceExhausted means that a limit is reached: the volume is full, or the client has too
	// many calls in progress.
	//
	// A server refusing connections for the moment, and Windows without memory, are ErrUnavailable.
	ErrResourceExhausted = errors.New("resource exhausted")
	// ErrUnavailable means that the same call may succeed later, without intervention: the daemon
	// is missing, Windows hasn't answered an earlier call on the disk, the storage or the server
	// behind a path is unreachable. A daemon without the group of the call, such as the published
	// daemon without the storage group, looks like a missing daemon.
	//
	// If somebody has to act first, the error is ErrFailedPrecondition. A caller that gave up gets
	// context.DeadlineExceeded.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnimplemented means that the operation is missing from the daemon, the version of the API,
	// Windows or the device. Examples are a call introduced after the daemon's version of the
	// group, and a spot fix on ReFS.
	//
	// Flags and requests that exclude each other are ErrInvalidArgument.
	ErrUnimplemented = errors.New("unimplemented")
	// ErrInternal covers everything else: Windows gave an unknown error number, or the daemon is at
	// fault. Please report the error, with the log.
	ErrInternal = errors.New("internal error")
)

// Error is the error of a storage operation.
type Error struct {
	// Op is the operation's name in the API: "PartitionDisk".
	Op string
	// Object is the object of Op: "disk 3". May be empty.
	Object string
	// Kind is one of the sentinels of this package. If Kind is nil, Err determines the class: see
	// KindOf.
	Kind error
	// Detail describes the problem in words, if Err doesn't.
	Detail string
	// WindowsError is the Windows error number of an error received over the wire, without Err; 0
	// if there is none. WindowsErrorOf looks in both.
	WindowsError uint32
	// Err is the cause. May be nil.
	Err error
}

// Errorf returns an error with a formatted text. kind, the error's class, is one of the sentinels
// of this package.
//
// Inlined at each caller, it would make the program 38 kB larger.
//
//go:noinline
func Errorf(kind error, format string, a ...any) error {
	return &Error{Kind: kind, Detail: fmt.Sprintf(format, a...)}
}

// Error returns "op object: detail: cause" without the empty parts.
func (e *Error) Error() string {
	var parts []string
	if head := strings.TrimSpace(e.Op + " " + e.Object); head != "" {
		parts = append(parts, head)
	}
	if e.Detail != "" {
		parts = append(parts, e.Detail)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	if e.Detail == "" && e.Err == nil && e.Kind != nil {
		parts = append(parts, e.Kind.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the class of the error, as in KindOf. For an error received over the
// wire, the Windows error number counts too: the error may match fs.ErrNotExist, for example.
func (e *Error) Is(target error) bool {
	return target == KindOf(e) || e.WindowsError != 0 && winerr.Errno(e.WindowsError).Is(target)
}

// KindOf returns the class of err: a sentinel of this package, context.Canceled or
// context.DeadlineExceeded; nil for nil. The outermost *Error with a Kind, or the outermost
// sentinel, determines the class. Otherwise the Windows error number decides. Without a number, the
// class is ErrInternal.
func KindOf(err error) error {
	if err == nil {
		return nil
	}
	kind := find(err, func(e error) error {
		if op, ok := e.(*Error); ok {
			return op.Kind
		}
		if i := slices.Index(kinds, e); i >= 0 {
			return kinds[i]
		}
		return nil
	})
	if kind != nil {
		return kind
	}
	if number, ok := WindowsErrorOf(err); ok {
		if kind, ok := kindOfErrno[winerr.Errno(number)]; ok {
			return kind
		}
	}
	return ErrInternal
}

// WindowsErrorOf returns the Windows error number in err, if any.
func WindowsErrorOf(err error) (uint32, bool) {
	found := find(err, func(e error) error {
		switch e := e.(type) {
		case winerr.Errno:
			return e
		case *Error:
			if e.WindowsError != 0 {
				return winerr.Errno(e.WindowsError)
			}
		}
		return nil
	})
	number, ok := found.(winerr.Errno)
	return uint32(number), ok
}

// find calls f for err and all wrapped errors, from the outside in, and returns the first result
// other than nil. errors.Is would call Error.Is, and so find, without end.
func find(err error, f func(error) error) error {
	for err != nil {
		if result := f(err); result != nil {
			return result
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				if result := find(one, f); result != nil {
					return result
				}
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}

var kinds = []error{
	ErrInvalidArgument, ErrNotFound, ErrAlreadyExists, ErrFailedPrecondition,
	ErrPermissionDenied, ErrUnauthenticated, ErrResourceExhausted, ErrUnavailable,
	ErrUnimplemented, ErrInternal, context.Canceled, context.DeadlineExceeded,
}

// errnosOf has the Windows error numbers of each class, for errors of operations without an
// explicit class. All other numbers are ErrInternal. An invalid handle (6) means that its object
// was taken away. Requests are checked before Windows sees them, so an invalid parameter (87) means
// a refusal by Windows in the present state of the node.
var errnosOf = map[error][]winerr.Errno{
	ErrInvalidArgument: {
		winerr.ErrorInvalidName, winerr.ErrorLabelTooLong, winerr.ErrorFilenameExcedRange, winerr.ISDSCShortCHAPSecret,
		winerr.ISDSCNoPortalSpecified, winerr.ISDSCInvalidCHAPSecret, winerr.ISDSCInvalidISCSIName,
	},
	ErrNotFound: {
		winerr.ErrorFileNotFound, winerr.ErrorPathNotFound, winerr.ErrorDevNotExist, winerr.ErrorBadNetName,
		winerr.ErrorNoSuchDevice, winerr.ErrorServiceDoesNotExist, winerr.ErrorDeviceNotConnected, winerr.ErrorNotFound,
		winerr.ErrorDeviceRemoved, winerr.ErrorNotConnected, winerr.ISDSCNotFound, winerr.ISDSCInvalidSessionID,
		winerr.ISDSCTargetNotFound, winerr.ISDSCPortalNotFound, winerr.ISDSCInitiatorNotFound, winerr.ISDSCDeviceNotFound,
	},
	ErrAlreadyExists: {
		winerr.ErrorFileExists, winerr.ErrorAlreadyAssigned, winerr.ErrorAlreadyExists, winerr.ErrorDeviceAlreadyRemembered,
	},
	ErrFailedPrecondition: {
		winerr.ErrorNotSameDevice, winerr.ErrorWriteProtect, winerr.ErrorCRC, winerr.ErrorSectorNotFound,
		winerr.ErrorInvalidParameter, winerr.ErrorDirNotEmpty, winerr.ErrorDirectory, winerr.ErrorDeviceHardware,
		winerr.ErrorUnrecognizedVolume, winerr.ErrorDependentServicesRunning, winerr.ErrorInvalidServiceControl,
		winerr.ErrorServiceDisabled, winerr.ErrorServiceSpecificError, winerr.ErrorServiceDependencyFail,
		winerr.ErrorServiceLogonFailed, winerr.ErrorServiceMarkedForDelete, winerr.ErrorSessionCredentialConflict,
		winerr.ErrorDowngradeDetected, winerr.ErrorFileCorrupt, winerr.ErrorDiskCorrupt, winerr.ErrorTrustedRelationshipFailure,
		winerr.ErrorNotAReparsePoint, winerr.FVELockedVolume, winerr.ErrorBadNetResp, winerr.ErrorSMB1NotAvailable,
		winerr.ErrorExtended, winerr.ErrorSMBGuestLogonBlocked, winerr.ErrorWrongTargetName, winerr.ErrorNTLMBlocked,
		winerr.NERRTimeDiffAtDC, winerr.StatusInvalidSignature,
	},
	ErrPermissionDenied: {winerr.ErrorAccessDenied, winerr.ErrorPrivilegeNotHeld, winerr.ErrorNetworkAccessDenied},
	ErrUnauthenticated: {
		winerr.ErrorInvalidPassword, winerr.ErrorLogonFailure, winerr.ErrorAccountRestriction, winerr.ErrorPasswordExpired,
		winerr.ErrorAccountDisabled, winerr.ErrorLogonTypeNotGranted, winerr.ErrorPasswordMustChange,
		winerr.ErrorAccountLockedOut, winerr.ErrorBadUsername, winerr.ISDSCAuthenticationFailed,
		winerr.ISDSCAuthorizationFailed, winerr.ISDSCLogonFailed, winerr.ISDSCAuthInfoUnavailable, winerr.ISDSCLoginUserInfoBad,
	},
	ErrResourceExhausted: {winerr.ErrorDiskFull, winerr.ErrorHandleDiskFull},
	ErrUnavailable: {
		winerr.ErrorInvalidHandle, winerr.ErrorNotEnoughMemory, winerr.ErrorNotReady, winerr.ErrorGenFailure,
		winerr.ErrorSharingViolation, winerr.ErrorLockViolation, winerr.ErrorRemNotList, winerr.ErrorBadNetPath,
		winerr.ErrorNetworkBusy, winerr.ErrorTooManyCmds, winerr.ErrorUnexpNetErr, winerr.ErrorNetNameDeleted,
		winerr.ErrorSharingPaused, winerr.ErrorReqNotAccep, winerr.ErrorSemTimeout, winerr.ErrorBusy, winerr.ErrorDeletePending,
		winerr.ErrorOperationAborted, winerr.ErrorFileInvalid, winerr.ErrorServiceRequestTimeout,
		winerr.ErrorServiceCannotAcceptCtrl, winerr.ErrorServiceNotActive, winerr.ErrorProcessAborted,
		winerr.ErrorShutdownInProgress, winerr.ErrorIODevice, winerr.ErrorNoNetOrBadPath, winerr.ErrorNoNetwork,
		winerr.ErrorConnectionRefused, winerr.ErrorNetworkUnreachable, winerr.ErrorHostUnreachable, winerr.ErrorPortUnreachable,
		winerr.ErrorConnectionAborted, winerr.ErrorRetry, winerr.ErrorNoLogonServers, winerr.ErrorNoSuchLogonSession,
		winerr.ErrorNoSystemResources, winerr.ErrorTimeout, winerr.ErrorOpenFiles, winerr.ErrorDeviceInUse,
		winerr.ErrorResourceNotAvailable, winerr.ISDSCLoginFailed, winerr.ISDSCConnectionFailed, winerr.ISDSCServiceUnavailable,
		winerr.ISDSCSessionBusy, winerr.ISDSCTransportError, winerr.ISDSCDidNotRespond, winerr.ISDSCServiceNotRunning,
		winerr.ISDSCDeviceBusyOnSession, winerr.ISDSCDNSNameUnresolved, winerr.ISDSCRemoveConnectionInProgress,
		winerr.ErrorVCDisconnected, winerr.NERRWkstaNotStarted, winerr.WBEMFailed,
	},
	ErrUnimplemented: {
		winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, winerr.ErrorModNotFound, winerr.ErrorProcNotFound,
		winerr.ISDSCRequestNotSupported, winerr.WBEMInvalidNamespace, winerr.WBEMInvalidClass,
	},
}

// kindOfErrno has the class of each number in errnosOf.
var kindOfErrno = func() map[winerr.Errno]error {
	kinds := make(map[winerr.Errno]error)
	for kind, numbers := range errnosOf {
		for _, number := range numbers {
			kinds[number] = kind
		}
	}
	return kinds
}()
