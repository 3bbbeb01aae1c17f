// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wmi

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

var (
	clsidWbemLocator = windows.GUID{Data1: 0x4590f811, Data2: 0x1d3a, Data3: 0x11d0,
		Data4: [8]byte{0x89, 0x1f, 0x00, 0xaa, 0x00, 0x4b, 0x2e, 0x24}}
	iidIWbemLocator = windows.GUID{Data1: 0xdc12a687, Data2: 0x737f, Data3: 0x11cf,
		Data4: [8]byte{0x88, 0x4d, 0x00, 0xaa, 0x00, 0x4b, 0x2e, 0x24}}
	// IID_IWbemClassObject
	iidIWbemObject = windows.GUID{Data1: 0xdc12a681, Data2: 0x737f, Data3: 0x11cf,
		Data4: [8]byte{0x88, 0x4d, 0x00, 0xaa, 0x00, 0x4b, 0x2e, 0x24}}
)

// Services is a connection to a namespace (IWbemServices).
type Services struct {
	o *object
}

// Connect connects to a namespace, such as `root\cimv2`, calls f and returns its error. The
// connection and its objects can be used only within f. Connecting takes two minutes at most.
//
// Source: https://learn.microsoft.com/windows/win32/wmisdk/creating-a-wmi-application-using-c-
func Connect(ctx context.Context, namespace string, f func(*Services) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	switch r := initialize(); {
	case r == errChangedMode: // the thread is in another apartment, which works too
	case r.failed():
		return fmt.Errorf("CoInitializeEx: %w", r)
	default:
		defer windows.CoUninitialize()
	}

	var locator *object
	if r := coCreateInstance(&clsidWbemLocator, 0, windows.CLSCTX_INPROC_SERVER, &iidIWbemLocator, &locator); r.failed() {
		return fmt.Errorf("CoCreateInstance WbemLocator: %w", r)
	}
	defer locator.release()

	var strings bstrs
	defer strings.free()
	resource := strings.make(namespace)
	if strings.err != nil {
		return strings.err
	}
	var services *object
	if r := locator.call(slotConnectServer, resource, 0, 0, 0, connectUseMaxWait, 0, 0,
		uintptr(unsafe.Pointer(&services))); r.failed() {
		return fmt.Errorf("IWbemLocator.ConnectServer %s: %w", namespace, r)
	}
	defer services.release()
	if err := services.actForCaller(); err != nil {
		return err
	}
	return f(&Services{services})
}

// initialize makes the thread a member of the multithreaded apartment.
func initialize() HRESULT {
	switch err := windows.CoInitializeEx(0, windows.COINIT_MULTITHREADED).(type) {
	case nil:
		return 0
	case windows.Errno:
		return HRESULT(err)
	default:
		return HRESULT(0x8000FFFF) // E_UNEXPECTED
	}
}

// actForCaller lets the service act with this process's identity. By default, the service can only
// identify the caller.
//
// Source: https://learn.microsoft.com/windows/win32/wmisdk/setting-the-security-levels-on-a-wmi-connection
func (o *object) actForCaller() error {
	r := coSetProxyBlanket(o, authnWinNT, authzNone, nil, packetPrivacy, impersonate, 0, noCapabilities)
	if r.failed() && r != errNoInterface { // an object of this process has no proxy
		return fmt.Errorf("CoSetProxyBlanket: %w", r)
	}
	return nil
}

// Select calls f with each object selected by a query, until f fails. An object is valid until f
// returns. Queries must be free of external text.
func (s *Services) Select(ctx context.Context, query string, f func(*Object) error) error {
	var strings bstrs
	defer strings.free()
	language, text := strings.make("WQL"), strings.make(query)
	if strings.err != nil {
		return strings.err
	}
	var objects *object
	if r := s.o.call(slotExecQuery, language, text, returnImmediately|forwardOnly, 0,
		uintptr(unsafe.Pointer(&objects))); r.failed() {
		return fmt.Errorf("IWbemServices.ExecQuery %s: %w", query, r)
	}
	defer objects.release()
	if err := objects.actForCaller(); err != nil {
		return err
	}
	for {
		o, more, err := next(ctx, objects)
		if err != nil {
			return fmt.Errorf("IEnumWbemClassObject.Next of %s: %w", query, err)
		}
		if !more {
			return nil
		}
		err = f(&Object{o})
		o.release()
		if err != nil {
			return err
		}
	}
}

// next waits for the next object, and checks ctx now and then.
func next(ctx context.Context, objects *object) (o *object, more bool, err error) {
	const timeout = 500 // milliseconds
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		var count uint32
		r := objects.call(slotEnumNext, timeout, 1, uintptr(unsafe.Pointer(&o)), uintptr(unsafe.Pointer(&count)))
		switch {
		case r.failed():
			return nil, false, r
		case count == 1:
			return o, true, nil
		case r != resultTimedOut:
			return nil, false, nil
		}
	}
}

// Call executes a method of the object with the given path, or of the class if path is the class's
// name, and waits for its end. A parameter in in is a string, a Secret, a bool or a uint32; missing
// parameters stay NULL. The caller closes the result, which has the method's ReturnValue and out
// parameters.
func (s *Services) Call(class, path, method string, in map[string]any) (*Object, error) {
	parameters, err := s.parameters(class, method, in)
	if err != nil {
		return nil, fmt.Errorf("parameters of %s.%s: %w", class, method, err)
	}
	defer parameters.release()
	var strings bstrs
	defer strings.free()
	objectPath, name := strings.make(path), strings.make(method)
	if strings.err != nil {
		return nil, strings.err
	}
	setErrorInfo(0, nil) // so that error information found later is from this call
	var out *object
	if r := s.o.call(slotExecMethod, objectPath, name, 0, 0, uintptr(unsafe.Pointer(parameters)),
		uintptr(unsafe.Pointer(&out)), 0); r.failed() {
		return nil, fmt.Errorf("%s.%s: %w", class, method, providerError(r))
	}
	if out == nil {
		return nil, fmt.Errorf("%s.%s: no result: %w", class, method, winerr.ErrorGenFailure)
	}
	return &Object{out}, nil
}

// providerError returns the error of a call that has just failed with r on this thread. Providers
// leave an MSFT_WmiError object with their own error number. Only the number is used: the object's
// texts are localized, and may contain parameters of the call, including secrets.
//
// Source: https://learn.microsoft.com/windows/win32/api/wbemcli/nf-wbemcli-iwbemservices-execmethod
// and https://learn.microsoft.com/previous-versions/windows/desktop/ramgmtpsprov/msft-wmierror
func providerError(r HRESULT) error {
	var info, details *object
	if getErrorInfo(0, &info) != 0 { // S_FALSE: there is none
		return r
	}
	defer info.release()
	if info.call(slotQueryInterface, uintptr(unsafe.Pointer(&iidIWbemObject)),
		uintptr(unsafe.Pointer(&details))).failed() {
		return r
	}
	defer details.release()
	o := Object{details}
	kind, err := o.String("error_Type")
	if err != nil { // an object of another class
		return r
	}
	number, err := o.Uint32("error_Code")
	if err != nil {
		return r
	}
	messageID, err := o.String("MessageID")
	if err != nil {
		messageID = ""
	}
	return explained(r, kind, number, messageID)
}

// parameters returns the object with a method's in parameters, or nil for a method without in
// parameters. An unknown class or method is an error.
func (s *Services) parameters(class, method string, in map[string]any) (*object, error) {
	var strings bstrs
	defer strings.free()
	className := strings.make(class)
	methodName, err := windows.UTF16PtrFromString(method)
	if err != nil || strings.err != nil {
		return nil, winerr.ErrorInvalidParameter
	}
	var definition, signature, parameters *object
	if r := s.o.call(slotGetObject, className, 0, 0, uintptr(unsafe.Pointer(&definition)), 0); r.failed() {
		return nil, r
	}
	defer definition.release()
	if r := definition.call(slotGetMethod, uintptr(unsafe.Pointer(methodName)), 0, uintptr(unsafe.Pointer(&signature)),
		0); r.failed() {
		return nil, r
	}
	defer signature.release()
	if len(in) == 0 {
		return nil, nil
	}
	if signature == nil {
		return nil, fmt.Errorf("the method has none: %w", winerr.ErrorInvalidParameter)
	}
	if r := signature.call(slotSpawnInstance, 0, uintptr(unsafe.Pointer(&parameters))); r.failed() {
		return nil, r
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if err := parameters.put(name, in[name]); err != nil {
			parameters.release()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return parameters, nil
}

// put sets a property.
func (o *object) put(name string, value any) error {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return err
	}
	var v variant
	switch value := value.(type) {
	case string:
		s, err := newBSTR(value)
		if err != nil {
			return err
		}
		defer sysFreeString(s)
		v.vt, v.value = vtBSTR, uint64(s)
	case Secret:
		s, err := copyBSTR(value)
		if err != nil {
			return err
		}
		defer sysFreeString(s)
		defer clear(s.text(len(value)))
		v.vt, v.value = vtBSTR, uint64(s)
	case bool:
		v.vt = vtBool
		if value {
			v.value = 0xFFFF // VARIANT_TRUE
		}
	case uint32:
		v.vt, v.value = vtI4, uint64(value) // WMI passes unsigned integers as signed
	default:
		return fmt.Errorf("a value of type %T: %w", value, winerr.ErrorInvalidParameter)
	}
	if r := o.call(slotPut, uintptr(unsafe.Pointer(p)), 0, uintptr(unsafe.Pointer(&v)), 0); r.failed() {
		return r
	}
	return nil
}

// Object is an object, or the result of a method (IWbemClassObject).
type Object struct {
	o *object
}

// Close releases the object.
func (o *Object) Close() { o.o.release() }

// Get returns a property: a string, a bool, an int64, or nil if it is NULL. WMI
// passes integers of 64 bits as strings.
func (o *Object) Get(name string) (any, error) {
	p, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	v := new(variant)
	if r := o.o.call(slotGet, uintptr(unsafe.Pointer(p)), 0, uintptr(unsafe.Pointer(v)), 0, 0); r.failed() {
		return nil, fmt.Errorf("property %s: %w", name, r)
	}
	defer variantClear(v)
	switch v.vt {
	case vtEmpty, vtNull:
		return nil, nil
	case vtBSTR:
		return windows.UTF16PtrToString(*(**uint16)(unsafe.Pointer(&v.value))), nil
	case vtBool:
		return uint16(v.value) != 0, nil
	case vtUI1:
		return int64(uint8(v.value)), nil
	case vtI2:
		return int64(int16(v.value)), nil
	case vtI4:
		return int64(int32(v.value)), nil
	}
	return nil, fmt.Errorf("property %s: VARIANT of type %d: %w", name, v.vt, winerr.ErrorNotSupported)
}

// String returns a string property; NULL is empty.
func (o *Object) String(name string) (string, error) {
	v, err := o.Get(name)
	if err != nil || v == nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("property %s is not a string: %w", name, winerr.ErrorInvalidParameter)
	}
	return s, nil
}

// Uint32 returns an unsigned integer property.
func (o *Object) Uint32(name string) (uint32, error) {
	v, err := o.Get(name)
	if err != nil {
		return 0, err
	}
	n, ok := v.(int64)
	if !ok {
		return 0, fmt.Errorf("property %s is not an integer: %w", name, winerr.ErrorInvalidParameter)
	}
	return uint32(n), nil
}

// Uint64 returns a 64-bit unsigned integer property, which WMI passes as a string.
func (o *Object) Uint64(name string) (uint64, error) {
	text, err := o.String(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("property %s is not an integer: %w", name, winerr.ErrorInvalidParameter)
	}
	return n, nil
}
