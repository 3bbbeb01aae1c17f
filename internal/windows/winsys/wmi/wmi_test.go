// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wmi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unsafe"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// What a C compiler made of the headers of Windows.
const abiDir = "../../win/testdata/abi"

func TestABI(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	for method, got := range map[string]int{
		"IWbemLocator.QueryInterface":    slotQueryInterface,
		"IWbemLocator.Release":           slotRelease,
		"IWbemLocator.ConnectServer":     slotConnectServer,
		"IWbemServices.GetObject":        slotGetObject,
		"IWbemServices.ExecQuery":        slotExecQuery,
		"IWbemServices.ExecMethod":       slotExecMethod,
		"IEnumWbemClassObject.Next":      slotEnumNext,
		"IWbemClassObject.Get":           slotGet,
		"IWbemClassObject.Put":           slotPut,
		"IWbemClassObject.SpawnInstance": slotSpawnInstance,
		"IWbemClassObject.GetMethod":     slotGetMethod,
	} {
		if want := abi.Slot(method); got != want {
			t.Errorf("%s is in slot %d; want %d", method, got, want)
		}
	}
	abi.Check(abitest.Constants{
		"VT_EMPTY": vtEmpty, "VT_NULL": vtNull, "VT_I2": vtI2, "VT_I4": vtI4,
		"VT_BSTR": vtBSTR, "VT_BOOL": vtBool, "VT_UI1": vtUI1,

		"WBEM_FLAG_CONNECT_USE_MAX_WAIT": connectUseMaxWait,
		"WBEM_FLAG_RETURN_IMMEDIATELY":   returnImmediately,
		"WBEM_FLAG_FORWARD_ONLY":         forwardOnly,
		"RPC_C_AUTHN_WINNT":              authnWinNT,
		"RPC_C_AUTHZ_NONE":               authzNone,
		"RPC_C_AUTHN_LEVEL_PKT_PRIVACY":  packetPrivacy,
		"RPC_C_IMP_LEVEL_IMPERSONATE":    impersonate,
		"EOAC_NONE":                      noCapabilities,

		"E_NOINTERFACE":            uint64(errNoInterface),
		"REGDB_E_CLASSNOTREG":      uint64(errClassNotReg),
		"RPC_E_CHANGED_MODE":       uint64(errChangedMode),
		"WBEM_E_NOT_FOUND":         uint64(errNotFound),
		"WBEM_E_ACCESS_DENIED":     uint64(errAccessDenied),
		"WBEM_E_INVALID_PARAMETER": uint64(errInvalidParameter),
		"WBEM_E_INVALID_NAMESPACE": uint64(errInvalidNamespace),
		"WBEM_E_INVALID_CLASS":     uint64(errInvalidClass),
		"WBEM_E_TRANSPORT_FAILURE": uint64(errTransport),
		"WBEM_E_SHUTTING_DOWN":     uint64(errShuttingDown),
		"RPC_S_SERVER_UNAVAILABLE": uint64(errServerGone & 0xFFFF), // within FACILITY_WIN32
		"WBEM_S_TIMEDOUT":          uint64(resultTimedOut),
	})
	var v variant
	if want := abi.Size("VARIANT"); int(unsafe.Sizeof(v)) != want {
		t.Errorf("VARIANT takes %d bytes; want %d", unsafe.Sizeof(v), want)
	}
	abi.CheckOffsets(map[string]uintptr{
		"VARIANT.vt":      unsafe.Offsetof(v.vt),
		"VARIANT.bstrVal": unsafe.Offsetof(v.value),
		"VARIANT.boolVal": unsafe.Offsetof(v.value),
		"VARIANT.lVal":    unsafe.Offsetof(v.value),
	})
}

func TestHRESULT(t *testing.T) {
	for r, want := range map[HRESULT]winerr.Errno{
		errAccessDenied: winerr.ErrorAccessDenied,
		errServerGone:   winerr.ErrorServiceNotActive,
		0x80070422:      winerr.ErrorServiceDisabled,
		0x80041001:      winerr.WBEMFailed,
		0x8004100E:      winerr.WBEMInvalidNamespace,
		0x80041010:      winerr.WBEMInvalidClass,
		0xC000A000:      winerr.StatusInvalidSignature,
		0x80070005:      winerr.ErrorAccessDenied, // of Win32
		0x80070070:      winerr.ErrorDiskFull,
		0x8000FFFF:      winerr.ErrorGenFailure,
	} {
		if !r.failed() || !errors.Is(r, want) {
			t.Errorf("%v is %v; want %v", r, errors.Unwrap(r), want)
		}
	}
	for _, r := range []HRESULT{0, 1, resultTimedOut} {
		if r.failed() {
			t.Errorf("%v is taken for a failure", r)
		}
	}
}

func TestExplained(t *testing.T) {
	const failed HRESULT = 0x80041001 // WBEM_E_FAILED
	for _, tt := range []struct {
		r      HRESULT
		kind   string
		number uint32
		id     string
		want   winerr.Errno
	}{
		{failed, "WIN32", 53, "", winerr.ErrorBadNetPath},
		{failed, "WIN32", 1219, "", winerr.ErrorSessionCredentialConflict},
		{failed, "HRESULT", 0x80070043, "", winerr.ErrorBadNetName},
		{failed, "HRESULT", 0x80041003, "", winerr.ErrorAccessDenied},
		{errAccessDenied, "MI", 1, "", winerr.ErrorAccessDenied},
		{0x80070056, "", 0, "", winerr.ErrorInvalidPassword},
		{0x80070056, "WIN32", 0, "", winerr.ErrorInvalidPassword},
		{failed, "Windows System Error", 53, "", winerr.WBEMFailed}, // a kind that nobody knows
		{failed, "MI", 1, "Windows System Error 1326", winerr.ErrorLogonFailure},
		{failed, "", 0, "Windows System Error 86", winerr.ErrorInvalidPassword},
		{failed, "WIN32", 53, "Windows System Error 86", winerr.ErrorBadNetPath},
		{failed, "MI", 1, "Windows System Error x", winerr.WBEMFailed},
		{failed, "MI", 1, "HRESULT 86", winerr.WBEMFailed},
	} {
		if err := explained(tt.r, tt.kind, tt.number, tt.id); !errors.Is(err, tt.want) {
			t.Errorf("%v with %s %#x is %v; want %v", tt.r, tt.kind, tt.number, err, tt.want)
		}
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	s := Secret(utf16.Encode([]rune("hidden")))
	in := map[string]any{"Credential": s}
	for _, verb := range []string{"%v", "%+v", "%#v", "%d", "%x", "%c", "%s", "%q"} {
		if got := fmt.Sprintf(verb, in); !strings.Contains(got, "[secret]") || strings.Contains(got, "104") {
			t.Errorf("%s prints %s", verb, got)
		}
	}
}
