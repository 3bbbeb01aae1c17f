// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// OpenDevice is CreateFileW(OPEN_EXISTING), shared for reading and writing.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-createfilew
func (s *System) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	name, err := utf16Ptr(path)
	if err != nil {
		return nil, err
	}
	h := windows.InvalidHandle
	err = interruptible(ctx, func() (err error) {
		h, err = windows.CreateFile(name, uint32(access), windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, nil,
			windows.OPEN_EXISTING, 0, 0)
		return errno(err)
	})
	if err != nil {
		return nil, err
	}
	return &device{s.own(h, path)}, nil
}

// device is an open disk or volume.
type device struct {
	handle
}

// Control implements [win.Device] and [win.File]. in and out are copied through buffers aligned for
// the structures in them.
//
// Source: https://learn.microsoft.com/windows/win32/api/ioapiset/nf-ioapiset-deviceiocontrol
func (h *handle) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	input, output := aligned(len(in)), aligned(len(out))
	copy(input, in)
	var n uint32
	control := func() error {
		return errno(windows.DeviceIoControl(h.h, uint32(code), bytesPtr(input), uint32(len(input)),
			bytesPtr(output), uint32(len(output)), &n, nil))
	}
	var err error
	if onlyReads(code) {
		err = interruptible(ctx, control)
	} else if err = ctx.Err(); err == nil {
		err = control()
	}
	copy(out, output[:min(int(n), len(output))])
	return int(n), err
}

// onlyReads reports whether a control code only reads: calls that only read may be cancelled. The
// access bits in the code are no guide: for example, FSCTL_LOCK_VOLUME requires no access.
func onlyReads(code win.IoctlCode) bool {
	switch code {
	case win.IoctlStorageGetDeviceNumber, win.IoctlStorageQueryProperty, win.IoctlScsiGetAddress,
		win.IoctlDiskGetDriveGeometryEx, win.IoctlDiskGetLengthInfo, win.IoctlDiskGetDriveLayoutEx,
		win.IoctlDiskGetDiskAttributes, win.IoctlVolumeGetVolumeDiskExtents,
		win.IoctlDiskIsWritable, win.IoctlDiskAreVolumesReady, win.FsctlIsVolumeDirty, win.FsctlGetNtfsVolumeData,
		win.FsctlGetRefsVolumeData,
		win.FsctlGetReparsePoint:
		return true
	}
	return false
}

// ReadAt implements [win.Device].
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-readfile
func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, winerr.ErrorInvalidParameter
	}
	n, err := d.read(ctx, p, off)
	switch err {
	case winerr.ErrorHandleEOF:
		return n, nil
	case winerr.ErrorInvalidParameter, winerr.ErrorSectorNotFound:
		// Disks return this error for a read past their end.
		length, lengthErr := d.length(ctx)
		if lengthErr != nil || length-off >= int64(len(p)) {
			return n, err
		}
		return d.read(ctx, p[:max(0, length-off)], off)
	}
	return n, err
}

// read reads at an offset from a synchronous handle. The OVERLAPPED only has the offset; the call
// waits until the read is done.
func (d *device) read(ctx context.Context, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	buf := pageAligned(len(p))
	var n uint32
	overlapped := windows.Overlapped{Offset: uint32(off), OffsetHigh: uint32(off >> 32)}
	err := interruptible(ctx, func() error { return errno(windows.ReadFile(d.h, buf, &n, &overlapped)) })
	copy(p, buf[:min(int(n), len(buf))])
	return int(n), err
}

// pageAligned returns n bytes that begin on a page, enough alignment for every disk.
func pageAligned(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	skip := -uintptr(unsafe.Pointer(&b[0])) % page
	return b[skip:][:n:n]
}

// length returns the size of a disk or volume in bytes.
func (d *device) length(ctx context.Context) (int64, error) {
	var length [8]byte
	n, err := d.Control(ctx, win.IoctlDiskGetLengthInfo, nil, length[:])
	if err != nil {
		return 0, err
	}
	return win.DecodeInt64(length[:n])
}

// Flush implements [win.Device].
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-flushfilebuffers
func (d *device) Flush(ctx context.Context) error {
	return interruptible(ctx, func() error { return errno(windows.FlushFileBuffers(d.h)) })
}
