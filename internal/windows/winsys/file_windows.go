// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// OpenFile is NtCreateFile with an unchanged full path. Links on the way are followed.
func (s *System) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	name, err := ntPath(path)
	if err != nil {
		return nil, err
	}
	return s.openFile(ctx, 0, name, windows.OBJ_CASE_INSENSITIVE, o)
}

// OpenAt implements [win.File].
func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	if err := checkBelow(name); err != nil {
		return nil, err
	}
	if f.h == windows.InvalidHandle { // NtCreateFile would take it for the process
		return nil, winerr.ErrorInvalidHandle
	}
	return f.sys.openFile(ctx, f.h, name, windows.OBJ_CASE_INSENSITIVE|windows.OBJ_DONT_REPARSE, o)
}

// FileAttributes is GetFileAttributesW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getfileattributesw
func (s *System) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	path, err := extendedPath(path)
	if err != nil {
		return 0, err
	}
	name, err := utf16Ptr(path)
	if err != nil {
		return 0, err
	}
	var attributes uint32
	err = interruptible(ctx, func() (err error) {
		attributes, err = windows.GetFileAttributes(name)
		return errno(err)
	})
	return win.FileAttributes(attributes), err
}

// AttributesWithoutLinks implements [win.Files].
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/nf-wdm-zwqueryfullattributesfile
func (s *System) AttributesWithoutLinks(ctx context.Context, path string) (win.FileAttributes, error) {
	path, err := ntPath(path)
	if err != nil {
		return 0, err
	}
	name, err := windows.NewNTUnicodeString(path)
	if err != nil {
		return 0, winerr.ErrorInvalidName // a NUL within, or more than 32,766 units
	}
	object := windows.OBJECT_ATTRIBUTES{ObjectName: name,
		Attributes: windows.OBJ_CASE_INSENSITIVE | windows.OBJ_DONT_REPARSE}
	object.Length = uint32(unsafe.Sizeof(object))
	var information fileBasicInfo
	err = interruptible(ctx, func() error { return errno(ntQueryAttributesFile(&object, &information)) })
	return win.FileAttributes(information.attributes), err
}

// file is an open file or directory.
type file struct {
	handle
}

// openFile opens a name below the directory root, or a full path if root is 0.
func (s *System) openFile(ctx context.Context, root windows.Handle, name string, attributes uint32,
	o win.OpenOptions) (win.File, error) {
	var h windows.Handle
	open := func() (err error) {
		h, err = ntCreateFile(root, name, attributes, o)
		return err
	}
	var err error
	if o.Disposition == win.FileOpen {
		err = interruptible(ctx, open)
	} else if err = ctx.Err(); err == nil {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	return &file{s.own(h, name)}, nil
}

// ntCreateFile opens a file for synchronous calls.
//
// Source: https://learn.microsoft.com/windows/win32/api/winternl/nf-winternl-ntcreatefile
func ntCreateFile(root windows.Handle, name string, attributes uint32,
	o win.OpenOptions) (h windows.Handle, err error) {
	objectName, err := windows.NewNTUnicodeString(name)
	if err != nil {
		return 0, winerr.ErrorInvalidName // a NUL within, or more than 32,766 units
	}
	object := windows.OBJECT_ATTRIBUTES{RootDirectory: root, ObjectName: objectName, Attributes: attributes}
	object.Length = uint32(unsafe.Sizeof(object))
	if o.Private {
		if object.SecurityDescriptor, err = privateDescriptor(); err != nil {
			return 0, errno(err)
		}
	}
	var status windows.IO_STATUS_BLOCK
	err = windows.NtCreateFile(&h, uint32(o.Access)|windows.SYNCHRONIZE, &object, &status, nil,
		windows.FILE_ATTRIBUTE_NORMAL, uint32(o.Share), uint32(o.Disposition),
		uint32(o.Options)|windows.FILE_SYNCHRONOUS_IO_NONALERT, 0, 0)
	if s, ok := err.(windows.NTStatus); ok && int32(s) >= 0 {
		return h, nil // success, even with a status such as STATUS_OPLOCK_BREAK_IN_PROGRESS
	}
	return h, errno(err)
}

// Info implements [win.File].
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-getfileinformationbyhandleex
func (f *file) Info(ctx context.Context) (info win.FileInfo, err error) {
	err = interruptible(ctx, func() error {
		var i fileTagInfo
		err := windows.GetFileInformationByHandleEx(f.h, windows.FileAttributeTagInfo, (*byte)(unsafe.Pointer(&i)),
			uint32(unsafe.Sizeof(i)))
		if err == windows.ERROR_INVALID_PARAMETER { // a file system without reparse points, such as FAT
			var byHandle windows.ByHandleFileInformation
			err = windows.GetFileInformationByHandle(f.h, &byHandle)
			i.attributes = byHandle.FileAttributes
		}
		info = fileInfo(i.attributes, i.reparseTag)
		return errno(err)
	})
	return info, err
}

// FinalPath implements [win.File].
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getfinalpathnamebyhandlew
func (f *file) FinalPath(ctx context.Context) (string, error) {
	path := make([]uint16, windows.MAX_LONG_PATH+1)
	var n uint32
	err := interruptible(ctx, func() (err error) {
		n, err = windows.GetFinalPathNameByHandle(f.h, &path[0], uint32(len(path)), volumeNameGUID)
		return errno(err)
	})
	if err != nil {
		return "", err
	}
	if int(n) >= len(path) { // n is the length that the path needs
		return "", winerr.ErrorFilenameExcedRange
	}
	return windows.UTF16ToString(path[:n]), nil
}

// Volume implements [win.File].
func (f *file) Volume(ctx context.Context) (string, error) {
	path, err := f.FinalPath(ctx)
	if err != nil {
		return "", err
	}
	return volumeOfPath(path)
}

// directoryBuffer is the number of bytes of a directory read at a time: several hundred entries.
const directoryBuffer = 64 << 10

// ReadDir implements [win.File] with FileFullDirectoryInfo, which every file system supports.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-getfileinformationbyhandleex
func (f *file) ReadDir(ctx context.Context, restart bool) (entries []win.DirEntry, err error) {
	class := uint32(windows.FileFullDirectoryInfo)
	if restart {
		class = windows.FileFullDirectoryRestartInfo
	}
	buf := aligned(directoryBuffer)
	for len(entries) == 0 { // a buffer may hold "." and ".." only
		err = interruptible(ctx, func() error {
			return errno(windows.GetFileInformationByHandleEx(f.h, class, &buf[0], directoryBuffer))
		})
		if err == winerr.ErrorFileNotFound { // the root directory is empty
			err = winerr.ErrorNoMoreFiles
		}
		if err == nil {
			entries, err = decodeDirectory(buf)
		}
		if err != nil {
			return nil, err
		}
		class = windows.FileFullDirectoryInfo
	}
	return entries, nil
}

// Read implements [win.File].
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-readfile
func (f *file) Read(ctx context.Context, p []byte) (int, error) {
	var n uint32
	var start windows.Overlapped // the handle is synchronous, so this is the offset only
	err := interruptible(ctx, func() error { return errno(windows.ReadFile(f.h, p, &n, &start)) })
	if err == winerr.ErrorHandleEOF {
		err = nil
	}
	return int(n), err
}

// Delete implements [win.File]. SetFileInformationByHandle would give the same error for a deleted
// file and for a file protected from deletion.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntifs/nf-ntifs-ntsetinformationfile
// and https://learn.microsoft.com/windows-hardware/drivers/ddi/ntddk/ns-ntddk-_file_disposition_information_ex
func (f *file) Delete(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	flags := uint32(windows.FILE_DISPOSITION_DELETE | windows.FILE_DISPOSITION_POSIX_SEMANTICS |
		windows.FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE)
	var status windows.IO_STATUS_BLOCK
	err := errno(windows.NtSetInformationFile(f.h, &status, (*byte)(unsafe.Pointer(&flags)),
		uint32(unsafe.Sizeof(flags)), windows.FileDispositionInformationEx))
	switch err {
	case winerr.ErrorInvalidParameter, winerr.ErrorNotSupported, winerr.ErrorInvalidFunction:
		return f.deleteOnClose() // the file system, or this Windows, doesn't support the call or a flag
	}
	return err
}

// LockByte implements [win.File].
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-lockfileex and MS-FSA 2.1.5.8
func (f *file) LockByte(ctx context.Context, offset int64) error {
	return interruptible(ctx, func() error {
		overlapped := windows.Overlapped{Offset: uint32(offset), OffsetHigh: uint32(offset >> 32)}
		return errno(windows.LockFileEx(f.h, windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &overlapped))
	})
}

// deleteOnClose marks the file for deletion when its last handle is closed. A read-only file is
// made writable first, and read-only again if the deletion fails.
func (f *file) deleteOnClose() error {
	mark := func() error {
		deleteFile := byte(1) // FILE_DISPOSITION_INFO: BOOLEAN DeleteFile
		return errno(windows.SetFileInformationByHandle(f.h, windows.FileDispositionInfo, &deleteFile, 1))
	}
	err := mark()
	if err != winerr.ErrorAccessDenied {
		return err
	}
	attributes, infoErr := f.Info(context.Background())
	if infoErr != nil || attributes.Attributes&win.AttributeReadOnly == 0 {
		return err
	}
	if setErr := f.setAttributes(attributes.Attributes &^ win.AttributeReadOnly); setErr != nil {
		return setErr
	}
	if err = mark(); err != nil {
		return errors.Join(err, f.setAttributes(attributes.Attributes))
	}
	return nil
}

// setAttributes sets the attributes of the file through a second handle, opened by the empty name
// relative to f: the file itself.
func (f *file) setAttributes(a win.FileAttributes) error {
	h, err := ntCreateFile(f.h, "", 0, win.OpenOptions{
		Access:      win.FileWriteAttributes,
		Share:       win.ShareRead | win.ShareWrite | win.ShareDelete,
		Disposition: win.FileOpen,
		Options:     win.FileOpenReparsePoint | win.FileOpenForBackup,
	})
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	if a == 0 {
		a = windows.FILE_ATTRIBUTE_NORMAL
	}
	basic := fileBasicInfo{attributes: uint32(a)}
	return errno(windows.SetFileInformationByHandle(h, windows.FileBasicInfo, (*byte)(unsafe.Pointer(&basic)),
		uint32(unsafe.Sizeof(basic))))
}
