// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wmi

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

//sys	coCreateInstance(class *windows.GUID, outer uintptr, context uint32, id *windows.GUID, object **object) (ret HRESULT) = ole32.CoCreateInstance
//sys	coSetProxyBlanket(proxy *object, authn uint32, authz uint32, principal *uint16, level uint32, impersonation uint32, identity uintptr, capabilities uint32) (ret HRESULT) = ole32.CoSetProxyBlanket
//sys	getErrorInfo(reserved uint32, info **object) (ret HRESULT) = oleaut32.GetErrorInfo
//sys	setErrorInfo(reserved uint32, info *object) (ret HRESULT) = oleaut32.SetErrorInfo
//sys	sysAllocStringLen(s *uint16, length uint32) (ret bstr) = oleaut32.SysAllocStringLen
//sys	sysFreeString(s bstr) = oleaut32.SysFreeString
//sys	variantClear(v *variant) (ret HRESULT) = oleaut32.VariantClear

// object is a COM object in COM's memory. The object begins with the address of its method table.
type object struct {
	table unsafe.Pointer
}

// call calls a method. Pointers among the arguments must be converted in the call itself.
//
//go:uintptrescapes
func (o *object) call(slot int, args ...uintptr) HRESULT {
	method := *(*uintptr)(unsafe.Add(o.table, slot*int(unsafe.Sizeof(uintptr(0)))))
	r, _, _ := syscall.SyscallN(method, append([]uintptr{uintptr(unsafe.Pointer(o))}, args...)...)
	return HRESULT(r)
}

func (o *object) release() {
	if o != nil {
		o.call(slotRelease)
	}
}

// bstr is the address of a BSTR in COM's memory.
type bstr uintptr

// newBSTR copies s. The caller frees the copy with sysFreeString.
func newBSTR(s string) (bstr, error) {
	u, err := windows.UTF16FromString(s)
	if err != nil {
		return 0, winerr.ErrorInvalidParameter // a NUL within
	}
	return copyBSTR(u[:len(u)-1])
}

// copyBSTR copies u, which may be empty. The caller frees the copy with sysFreeString.
func copyBSTR(u []uint16) (bstr, error) {
	b := sysAllocStringLen(unsafe.SliceData(u), uint32(len(u)))
	if b == 0 {
		return 0, winerr.Errno(windows.ERROR_NOT_ENOUGH_MEMORY)
	}
	return b, nil
}

// text returns length characters from COM's memory.
func (b bstr) text(length int) []uint16 {
	return unsafe.Slice(*(**uint16)(unsafe.Pointer(&b)), length)
}

// bstrs makes BSTRs for one call and frees them afterwards.
type bstrs struct {
	all []bstr
	err error // of the first string that couldn't be made
}

func (b *bstrs) make(s string) uintptr {
	made, err := newBSTR(s)
	if err != nil {
		if b.err == nil {
			b.err = err
		}
		return 0
	}
	b.all = append(b.all, made)
	return uintptr(made)
}

func (b *bstrs) free() {
	for _, s := range b.all {
		sysFreeString(s)
	}
}
