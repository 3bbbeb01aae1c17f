// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csiproxy has what all who use CSI Proxy share: the storage API, the ids of disks,
// volumes and iSCSI targets, secrets and errors.
//
// [StorageOperations] does whole tasks of a CSI node in one call each: find a disk, stage a
// volume, publish it, grow it, and all of that back again. It is v1alpha1, as its API group is:
// names and fields may still change. The operations of the older groups are in package
// published. Package node does both in process, package client over the daemon's pipes.
//
// A caller tells errors apart with errors.Is and the sentinels below, in process and over a pipe.
package csiproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The classes of errors. Every error of an operation is exactly one of these, or
// context.Canceled or context.DeadlineExceeded.
//
// What to do differs by class. ErrUnavailable: try the same call again, after a pause.
// ErrFailedPrecondition: change the node's state first, as the text says. ErrInvalidArgument
// and ErrUnimplemented: change the call. A driver that returns an error to kubelet needs no
// rule of its own: client.Code has the code, and kubelet tries all of them again.
var (
	// ErrInvalidArgument says that the request is wrong in every state of the node: a path
	// outside of the kubelet directory, a volume id that isn't one, a size below zero.
	//
	// If the request is right, and something is missing on the node, it is ErrNotFound or
	// ErrFailedPrecondition.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrNotFound says that the object of the call doesn't exist: no disk has the serial
	// number, nothing is mounted at the path of GetVolume, the server has no such share.
	//
	// It isn't returned by calls that remove or unmount what is gone already: they succeed.
	// An object that can't be asked for the moment is ErrUnavailable. So a disk that isn't
	// found has left, or has never come.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists says that something else is where the call makes something: a file is
	// at the target path of PublishVolume, a directory with entries at the path of a link.
	//
	// If the same thing is there, made by an earlier try, the call succeeds.
	ErrAlreadyExists = errors.New("already exists")
	// ErrFailedPrecondition says that the node's state forbids the call, and that trying
	// again doesn't help until somebody changes that state: the disk holds data of another
	// system, a process uses the volume, another user has mapped the share.
	//
	// A state that passes by itself is ErrUnavailable: a disk that is still coming online.
	ErrFailedPrecondition = errors.New("failed precondition")
	// ErrPermissionDenied says that Windows, an SMB server or the rules for paths don't allow
	// the call to whoever makes it: the service's account lacks a privilege, a link leads out
	// of the kubelet directory, the user may not use the share.
	//
	// A user whom the server doesn't know, or a wrong password, is ErrUnauthenticated.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrUnauthenticated says that a server doesn't accept the credentials: the password of a
	// share is wrong or has expired, the CHAP secret of a target isn't this one.
	//
	// A user whom the server knows, but who may not use the share, is ErrPermissionDenied.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrResourceExhausted says that a limit is reached: the volume is full, the client has
	// too many calls under way.
	//
	// A server that takes no more connections for the moment, and Windows without memory,
	// are ErrUnavailable.
	ErrResourceExhausted = errors.New("resource exhausted")
	// ErrUnavailable says that the same call may succeed later, without anybody changing
	// anything: the daemon isn't there, Windows hasn't answered an earlier call on the disk,
	// the storage or the server behind a path isn't reached. A daemon without the group of the
	// call, such as the published daemon without the storage group, looks as one that isn't there.
	//
	// If somebody has to act first, it is ErrFailedPrecondition. A caller that gave up gets
	// context.DeadlineExceeded.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnimplemented says that the operation is missing from the daemon, the version of the
	// API, Windows or the device. Examples are a call that came with a newer version of its group
	// than the daemon serves, and a spot fix on ReFS.
	//
	// Flags and requests that exclude each other are ErrInvalidArgument.
	ErrUnimplemented = errors.New("unimplemented")
	// ErrInternal says that none of the others fits: Windows gave an error number that isn't
	// known here, or the daemon is at fault. Please report it, with the log.
	ErrInternal = errors.New("internal error")
)

// Error is the error of a storage operation.
type Error struct {
	// Op is the operation's name in the API: "PartitionDisk".
	Op string
	// Object is what Op works on: "disk 3". It may be empty.
	Object string
	// Kind is one of the sentinels of this package. If nil, it is derived from
	// Err: see KindOf.
	Kind error
	// Detail says in words what is wrong, if Err doesn't.
	Detail string
	// WindowsError is the Windows error number of an error that came over the
	// wire, where Err can't be sent; 0 if there is none. The function
	// WindowsErrorOf looks in both.
	WindowsError uint32
	// Err is the cause. It may be nil.
	Err error
}

// Errorf returns an error with a formatted text. kind, its class, is one of the
// sentinels of this package.
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

// Is reports whether target is the class of the error, as KindOf returns it. For an
// error that came over the wire, the Windows error number counts too: it may match
// fs.ErrNotExist, for example.
func (e *Error) Is(target error) bool {
	return target == KindOf(e) || e.WindowsError != 0 && winerr.Errno(e.WindowsError).Is(target)
}

// KindOf returns the class of err: a sentinel of this package, context.Canceled
// or context.DeadlineExceeded; nil for nil. The class is that of the outermost
// *Error with a Kind or the outermost sentinel. If there is neither, the Windows
// error number decides. If there is no number either, it is ErrInternal.
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

// WindowsErrorOf returns the Windows error number in err, if it has one.
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

// find calls f for err and the errors that it wraps, from the outside in, and returns
// the first result other than nil. errors.Is would call Error.Is, and so find, without end.
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

// errnosOf has the Windows error numbers of each class, for errors to which the
// operation didn't give a class. Other numbers are ErrInternal. A handle is invalid (6) when
// what it led to was taken from it. Requests are checked before Windows sees them, so an
// invalid parameter (87) is one that Windows refuses in the state that the node has.
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
