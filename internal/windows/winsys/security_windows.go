// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// CreationDenied implements [win.File].
func (f *file) CreationDenied(ctx context.Context) (denied bool, err error) {
	err = interruptible(ctx, func() error {
		descriptor, err := f.security(windows.DACL_SECURITY_INFORMATION)
		if err != nil {
			return err
		}
		denied, err = creationDenied(descriptor)
		return err
	})
	return denied, err
}

// Private implements [win.File].
func (f *file) Private(ctx context.Context) (private bool, err error) {
	err = interruptible(ctx, func() error {
		user, err := windows.GetCurrentProcessToken().GetTokenUser()
		if err != nil {
			return errno(err)
		}
		descriptor, err := f.security(windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION)
		if err != nil {
			return err
		}
		self := unsafe.Slice((*byte)(unsafe.Pointer(user.User.Sid)), user.User.Sid.Len())
		private, err = isPrivate(descriptor, self)
		return err
	})
	return private, err
}

// privateDescriptor returns the security descriptor of [win.OpenOptions].Private.
var privateDescriptor = sync.OnceValues(func() (*windows.SECURITY_DESCRIPTOR, error) {
	return windows.SecurityDescriptorFromString(privateSDDL)
})

// AccessList implements [win.File].
func (f *file) AccessList(ctx context.Context) (list []win.ACE, err error) {
	err = interruptible(ctx, func() error {
		descriptor, err := f.security(windows.DACL_SECURITY_INFORMATION)
		if err != nil {
			return err
		}
		list, err = decodeAccess(descriptor)
		return err
	})
	return list, err
}

// DenyCreation implements [win.File].
func (f *file) DenyCreation(ctx context.Context, deny bool) error {
	return f.changeAccess(ctx, func(descriptor []byte) ([]byte, error) { return denyCreation(descriptor, deny) })
}

// AddAccess implements [win.File].
func (f *file) AddAccess(ctx context.Context, entries []win.ACE) error {
	return f.changeAccess(ctx, func(descriptor []byte) ([]byte, error) { return addAccess(descriptor, entries) })
}

// changeAccess replaces the access list by the result of change, unless the result is nil.
// SetSecurityInfo would also pass inherited entries down to everything below the directory and,
// through a mount point, on the volume.
func (f *file) changeAccess(ctx context.Context, change func(descriptor []byte) ([]byte, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	descriptor, err := f.security(windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return err
	}
	changed, err := change(descriptor)
	if err != nil || changed == nil {
		return err
	}
	buf := aligned(len(changed))
	copy(buf, changed)
	return errno(windows.SetKernelObjectSecurity(f.h, windows.DACL_SECURITY_INFORMATION,
		(*windows.SECURITY_DESCRIPTOR)(unsafe.Pointer(&buf[0]))))
}

// security returns parts of the security descriptor of the file.
func (f *file) security(parts windows.SECURITY_INFORMATION) ([]byte, error) {
	if f.h == windows.InvalidHandle { // it would be taken for the process
		return nil, winerr.ErrorInvalidHandle
	}
	const usual = 1 << 10 // bytes: that of a directory has a few entries
	return grown(usual, func(buf []byte) (needed uint32, err error) {
		err = getKernelObjectSecurity(f.h, parts, &buf[0], uint32(len(buf)), &needed)
		return needed, errno(err)
	})
}
