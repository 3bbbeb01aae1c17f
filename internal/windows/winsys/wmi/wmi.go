// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wmi makes the calls to Windows Management Instrumentation for package winsys: selecting
// objects and executing methods on this computer, through the COM interfaces of wbemcli.h.
//
// COM is bound to a thread. Therefore a connection, and all its objects, can be used only within
// one function call, which stays on its operating system thread.
package wmi

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

//go:generate go run golang.org/x/sys/windows/mkwinsyscall -output zsyscall_windows.go syscall_windows.go

// Slots of methods in the tables of their interfaces, from 0.
//
// Source: wbemcli.h of the Windows SDK.
const (
	slotQueryInterface = 0 // IUnknown
	slotRelease        = 2

	slotConnectServer = 3 // IWbemLocator

	slotGetObject  = 6 // IWbemServices
	slotExecQuery  = 20
	slotExecMethod = 24

	slotEnumNext = 4 // IEnumWbemClassObject

	slotGet           = 4 // IWbemClassObject
	slotPut           = 5
	slotSpawnInstance = 15
	slotGetMethod     = 19
)

// Flags and levels.
//
// Source: wbemcli.h, rpcdce.h and objidl.h of the Windows SDK.
const (
	connectUseMaxWait = 0x80 // WBEM_FLAG_CONNECT_USE_MAX_WAIT: two minutes
	returnImmediately = 0x10 // WBEM_FLAG_RETURN_IMMEDIATELY
	forwardOnly       = 0x20 // WBEM_FLAG_FORWARD_ONLY

	authnWinNT     = 10 // RPC_C_AUTHN_WINNT
	authzNone      = 0  // RPC_C_AUTHZ_NONE
	packetPrivacy  = 6  // RPC_C_AUTHN_LEVEL_PKT_PRIVACY
	impersonate    = 3  // RPC_C_IMP_LEVEL_IMPERSONATE
	noCapabilities = 0  // EOAC_NONE
)

// VARENUM values.
//
// Source: https://learn.microsoft.com/windows/win32/api/wtypes/ne-wtypes-varenum
const (
	vtEmpty = 0
	vtNull  = 1
	vtI2    = 2
	vtI4    = 3
	vtBSTR  = 8
	vtBool  = 11
	vtUI1   = 17
)

// variant is VARIANT: 24 bytes on 64-bit Windows.
//
// Source: https://learn.microsoft.com/windows/win32/api/oaidl/ns-oaidl-variant
type variant struct {
	vt    uint16
	_     [3]uint16
	value uint64 // BSTR and integers begin at its first byte
	_     uint64
}

// HRESULT is the result of a failed COM call.
type HRESULT uint32

// Results with a meaning of their own.
//
// Source: https://learn.microsoft.com/windows/win32/wmisdk/wmi-error-constants
const (
	errNoInterface      HRESULT = 0x80004002 // E_NOINTERFACE
	errClassNotReg      HRESULT = 0x80040154 // REGDB_E_CLASSNOTREG
	errFailed           HRESULT = 0x80041001 // WBEM_E_FAILED
	errNotFound         HRESULT = 0x80041002 // WBEM_E_NOT_FOUND
	errAccessDenied     HRESULT = 0x80041003 // WBEM_E_ACCESS_DENIED
	errInvalidParameter HRESULT = 0x80041008 // WBEM_E_INVALID_PARAMETER
	errInvalidNamespace HRESULT = 0x8004100E // WBEM_E_INVALID_NAMESPACE
	errInvalidClass     HRESULT = 0x80041010 // WBEM_E_INVALID_CLASS
	errTransport        HRESULT = 0x80041015 // WBEM_E_TRANSPORT_FAILURE
	errShuttingDown     HRESULT = 0x80041033 // WBEM_E_SHUTTING_DOWN
	errInvalidSignature HRESULT = 0xC000A000 // STATUS_INVALID_SIGNATURE
	errServerGone       HRESULT = 0x800706BA // RPC_S_SERVER_UNAVAILABLE: the service isn't running
	errChangedMode      HRESULT = 0x80010106 // RPC_E_CHANGED_MODE

	resultTimedOut HRESULT = 0x40004 // WBEM_S_TIMEDOUT
)

var errnos = map[HRESULT]winerr.Errno{
	errClassNotReg:      winerr.ErrorNotSupported,
	errFailed:           winerr.WBEMFailed,
	errNotFound:         winerr.ErrorNotFound,
	errAccessDenied:     winerr.ErrorAccessDenied,
	errInvalidParameter: winerr.ErrorInvalidParameter,
	errInvalidNamespace: winerr.WBEMInvalidNamespace,
	errInvalidClass:     winerr.WBEMInvalidClass,
	errInvalidSignature: winerr.StatusInvalidSignature,
	errTransport:        winerr.ErrorServiceNotActive,
	errShuttingDown:     winerr.ErrorServiceNotActive,
	errServerGone:       winerr.ErrorServiceNotActive,
}

// Kinds of error numbers in an error of a provider.
//
// Source: https://learn.microsoft.com/windows/win32/api/mi/nf-mi-mi_context_posterror
const (
	kindWin32   = "WIN32"   // MI_RESULT_TYPE_WIN32
	kindHRESULT = "HRESULT" // MI_RESULT_TYPE_HRESULT
)

// systemError begins the message id of a provider's error if the number is Windows'. The message id
// isn't localized.
//
// Seen in https://github.com/kubernetes-csi/csi-proxy/issues/206.
const systemError = "Windows System Error "

// explained returns the error of a method whose provider gave an error number of some kind, and a
// message id. They are more specific than the result r, which may be WBEM_E_FAILED for any cause.
func explained(r HRESULT, kind string, number uint32, messageID string) error {
	if text, ok := strings.CutPrefix(messageID, systemError); ok && kind != kindWin32 && kind != kindHRESULT {
		if n, err := strconv.ParseUint(text, 10, 32); err == nil {
			kind, number = kindWin32, uint32(n)
		}
	}
	switch {
	case number == 0: // not said
		return r
	case kind == kindWin32:
		return fmt.Errorf("%v: %w", r, winerr.Errno(number))
	case kind == kindHRESULT:
		return fmt.Errorf("%v: %w", r, HRESULT(number))
	}
	return r
}

// Secret is a secret parameter of a method, in UTF-16 without a NUL. The copy for COM is erased
// before being freed. The caller must clear the original. COM's own copies on the way to the
// provider remain in memory.
type Secret []uint16

// Format writes a placeholder for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[secret]") }

func (r HRESULT) failed() bool { return int32(r) < 0 }

func (r HRESULT) Error() string { return fmt.Sprintf("HRESULT %#08x", uint32(r)) }

// Unwrap returns the Windows error number with the same meaning.
func (r HRESULT) Unwrap() error {
	const facilityWin32 = 0x80070000
	if errno, ok := errnos[r]; ok {
		return errno
	}
	if r&0xFFFF0000 == facilityWin32 {
		return winerr.Errno(r & 0xFFFF)
	}
	return winerr.ErrorGenFailure
}
