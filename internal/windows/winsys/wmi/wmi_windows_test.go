// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wmi

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func connect(t *testing.T, namespace string, f func(s *Services) error) {
	t.Helper()
	if err := Connect(t.Context(), namespace, f); err != nil {
		t.Error(err)
	}
}

func TestSelect(t *testing.T) {
	connect(t, `root\cimv2`, func(s *Services) error {
		count := 0
		err := s.Select(t.Context(), "SELECT * FROM Win32_OperatingSystem", func(o *Object) error {
			count++
			for name, want := range map[string]any{
				"Caption": "", "Primary": true, "ServicePackMajorVersion": int64(0), "TotalVisibleMemorySize": "",
			} {
				got, err := o.Get(name)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				switch want.(type) { // strings and numbers differ from system to system
				case string:
					if s, ok := got.(string); !ok || s == "" {
						t.Errorf("%s = %#v; want a string", name, got)
					}
				case int64:
					if _, ok := got.(int64); !ok {
						t.Errorf("%s = %#v; want an integer", name, got)
					}
				default:
					if got != want {
						t.Errorf("%s = %#v; want %#v", name, got, want)
					}
				}
			}
			if path, err := o.String("__PATH"); err != nil || !strings.Contains(path, "Win32_OperatingSystem") {
				t.Errorf("path %q, %v", path, err)
			}
			if v, err := o.Uint32("Caption"); err == nil {
				t.Errorf("a string is the integer %d", v)
			}
			_, err := o.Get("NoSuchProperty")
			wantErrno(t, "an unknown property", err, winerr.ErrorNotFound)
			return nil
		})
		if count != 1 {
			t.Errorf("%d operating systems", count)
		}
		return err
	})
}

func TestSelectEnds(t *testing.T) {
	connect(t, `root\cimv2`, func(s *Services) error {
		enough := errors.New("enough")
		count := 0
		err := s.Select(t.Context(), "SELECT * FROM Win32_Process", func(*Object) error {
			if count++; count == 2 {
				return enough
			}
			return nil
		})
		if err != enough || count != 2 {
			t.Errorf("error %v after %d objects", err, count)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = s.Select(ctx, "SELECT * FROM Win32_Process", func(*Object) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v; want Canceled", err)
		}
		return nil
	})
}

func TestCall(t *testing.T) {
	connect(t, `root\default`, func(s *Services) error {
		const localMachine = uint32(0x80000002)
		out, err := s.Call("StdRegProv", "StdRegProv", "GetStringValue", map[string]any{
			"hDefKey":     localMachine,
			"sSubKeyName": `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`,
			"sValueName":  "OS",
		})
		if err != nil {
			return err
		}
		defer out.Close()
		if result, err := out.Uint32("ReturnValue"); err != nil || result != 0 {
			t.Errorf("result %d, %v", result, err)
		}
		if got, err := out.String("sValue"); err != nil || got != "Windows_NT" {
			t.Errorf("OS is %q, %v", got, err)
		}
		if _, err := s.Call("StdRegProv", "StdRegProv", "GetStringValue",
			map[string]any{"NoSuchParameter": "x"}); err == nil {
			t.Error("an unknown parameter is accepted")
		}
		_, err = s.Call("StdRegProv", "StdRegProv", "NoSuchMethod", nil)
		wantErrno(t, "an unknown method", err, winerr.ErrorNotFound)
		_, err = s.Call("NoSuchClass", "NoSuchClass", "NoSuchMethod", nil)
		wantErrno(t, "an unknown class", err, winerr.ErrorNotFound)
		_, err = s.Call("StdRegProv", "StdRegProv", "GetStringValue", map[string]any{"sValueName": 1.5})
		wantErrno(t, "a value of an unknown type", err, winerr.ErrorInvalidParameter)
		return nil
	})
}

// A method of one object, found by the path of that.
func TestCallOfObject(t *testing.T) {
	called := false
	connect(t, `root\cimv2`, func(s *Services) error {
		return s.Select(t.Context(), "SELECT * FROM Win32_Process WHERE Name LIKE '%.test.exe'", func(o *Object) error {
			path, err := o.String("__PATH")
			if err != nil {
				return err
			}
			out, err := s.Call("Win32_Process", path, "GetOwner", nil)
			if err != nil {
				return err
			}
			defer out.Close()
			if user, err := out.String("User"); err != nil || user == "" {
				t.Errorf("owner of %s: %q, %v", path, user, err)
			}
			called = true
			return nil
		})
	})
	if !called {
		t.Error("this process isn't among the processes")
	}
}

func TestErrors(t *testing.T) {
	none := func(*Services) error { t.Error("connected"); return nil }
	err := Connect(t.Context(), `root\no\such\namespace`, none)
	wantErrno(t, "an unknown namespace", err, winerr.WBEMInvalidNamespace)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Connect(ctx, `root\cimv2`, none); err != context.Canceled {
		t.Errorf("error %v; want Canceled", err)
	}
	connect(t, `root\cimv2`, func(s *Services) error {
		err := s.Select(t.Context(), "SELECT * FROM", func(*Object) error { return nil })
		if err == nil {
			t.Error("a bad query is accepted")
		}
		return nil
	})
}

func TestGUIDs(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	for name, guid := range map[string]*windows.GUID{
		"CLSID_WbemLocator":    &clsidWbemLocator,
		"IID_IWbemLocator":     &iidIWbemLocator,
		"IID_IWbemClassObject": &iidIWbemObject,
	} {
		if got, want := (*[16]byte)(unsafe.Pointer(guid))[:], abi.Sample(name); !bytes.Equal(got, want) {
			t.Errorf("%s is %x; want %x", name, got, want)
		}
	}
}

// A copy of a string that is to be erased is reached to its last character.
func TestBSTR(t *testing.T) {
	for _, text := range []string{"", "hidden", `a\:é💾`} {
		b, err := newBSTR(text)
		if err != nil {
			t.Fatal(err)
		}
		characters := utf16.Encode([]rune(text))
		got := b.text(len(characters) + 1) // with the NUL that COM adds
		if want := append(characters, 0); !slices.Equal(got, want) {
			t.Errorf("%q: %x; want %x", text, got, want)
		}
		sysFreeString(b)
	}
	if _, err := newBSTR("\x00"); err != winerr.ErrorInvalidParameter {
		t.Errorf("of a NUL: error %v", err)
	}
}

func TestSecretParameter(t *testing.T) {
	connect(t, `root\default`, func(s *Services) error {
		value := utf16.Encode([]rune("OS"))
		out, err := s.Call("StdRegProv", "StdRegProv", "GetStringValue", map[string]any{
			"hDefKey":     uint32(0x80000002),
			"sSubKeyName": `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`,
			"sValueName":  Secret(value),
		})
		if err != nil {
			return err
		}
		defer out.Close()
		if got, err := out.String("sValue"); err != nil || got != "Windows_NT" {
			t.Errorf("OS is %q, %v", got, err)
		}
		if got := string(utf16.Decode(value)); got != "OS" {
			t.Errorf("the caller's copy is %q after the call", got)
		}
		return nil
	})
}

// parameters is a COM object that plays a method's parameters, and notes the address
// of the text that it is given.
type parameters struct {
	table *[20]uintptr
	text  *uint16
	seen  string
}

// What is left of a secret in memory that was given back is zeros, or what COM writes
// into free memory.
func TestSecretIsErased(t *testing.T) {
	p := &parameters{table: &[20]uintptr{
		slotPut: windows.NewCallback(func(o *parameters, _ *uint16, _ uintptr, v *variant, _ uintptr) uintptr {
			o.text = *(**uint16)(unsafe.Pointer(&v.value))
			o.seen = windows.UTF16PtrToString(o.text)
			return 0
		}),
	}}
	const password = "a password of many characters"
	var pinner runtime.Pinner // while COM has its address
	pinner.Pin(p)
	defer pinner.Unpin()
	o := (*object)(unsafe.Pointer(p))
	if err := o.put("Credential", Secret(utf16.Encode([]rune(password)))); err != nil || p.seen != password {
		t.Fatalf("the parameter is %q, error %v", p.seen, err)
	}
	left := unsafe.Slice(p.text, len(password))
	if got := string(utf16.Decode(left)); strings.Contains(got, "characters") {
		t.Errorf("left in memory: %q", got)
	}
}

// errorInfo is a COM object that plays what a provider leaves after an error.
type errorInfo struct {
	table      *[20]uintptr
	references int32
	unlike     bool   // anything but IErrorInfo
	kind       string // error_Type; empty if there is no such property
	number     uint32 // error_Code
}

// errorInfoTable is the table of IErrorInfo as well as of IWbemClassObject, as far
// as they are called.
var errorInfoTable = sync.OnceValue(func() *[20]uintptr {
	return &[20]uintptr{
		slotQueryInterface: windows.NewCallback(func(o *errorInfo, id *windows.GUID, as **errorInfo) uintptr {
			if o.unlike && *id == iidIWbemObject {
				return uintptr(errNoInterface)
			}
			o.references++
			*as = o
			return 0
		}),
		1:           windows.NewCallback(func(o *errorInfo) uintptr { o.references++; return uintptr(o.references) }),
		slotRelease: windows.NewCallback(func(o *errorInfo) uintptr { o.references--; return uintptr(o.references) }),
		slotGet: windows.NewCallback(func(o *errorInfo, name *uint16, _ uintptr, v *variant, _, _ uintptr) uintptr {
			switch name := windows.UTF16PtrToString(name); {
			case o.kind == "":
				return uintptr(errNotFound)
			case name == "error_Type":
				s, err := newBSTR(o.kind)
				if err != nil {
					return uintptr(errInvalidParameter)
				}
				v.vt, v.value = vtBSTR, uint64(s)
			case name == "error_Code":
				v.vt, v.value = vtI4, uint64(o.number)
			default:
				return uintptr(errNotFound)
			}
			return 0
		}),
	}
})

func TestProviderError(t *testing.T) {
	const failed HRESULT = 0x80041001 // WBEM_E_FAILED
	leave := func(t *testing.T, info *errorInfo) {
		info.table = errorInfoTable()
		var pinner runtime.Pinner // while COM has its address
		pinner.Pin(info)
		t.Cleanup(pinner.Unpin)
		if r := setErrorInfo(0, (*object)(unsafe.Pointer(info))); r != 0 {
			t.Fatal(r)
		}
	}
	connect(t, `root\cimv2`, func(s *Services) error {
		for _, tt := range []struct {
			info errorInfo
			want winerr.Errno
		}{
			{errorInfo{kind: "WIN32", number: 67}, winerr.ErrorBadNetName},
			{errorInfo{kind: "HRESULT", number: 0x80070056}, winerr.ErrorInvalidPassword},
			{errorInfo{kind: "MI", number: 1}, winerr.WBEMFailed},
			{errorInfo{}, winerr.WBEMFailed},
			{errorInfo{kind: "WIN32", number: 67, unlike: true}, winerr.WBEMFailed},
		} {
			info := tt.info
			leave(t, &info)
			if err := providerError(failed); !errors.Is(err, tt.want) {
				t.Errorf("%+v: error %v; want %v", tt.info, err, tt.want)
			}
			if info.references != 0 {
				t.Errorf("%+v: %d references are left", tt.info, info.references)
			}
		}
		if err := providerError(failed); err != failed {
			t.Errorf("without an object: error %v", err)
		}

		// What an earlier call has left isn't of this one.
		leave(t, &errorInfo{kind: "WIN32", number: 67})
		_, err := s.Call("Win32_Process", `Win32_Process.Handle="4294967295"`, "GetOwner", nil)
		if err == nil || errors.Is(err, winerr.ErrorBadNetName) {
			t.Errorf("a method of no object: error %v", err)
		}
		return nil
	})
}

func wantErrno(t *testing.T, what string, err error, want winerr.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v; want %v", what, err, want)
	}
}
