// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"os"
	"syscall"
)

const (
	fileReadAttributes   = 0x80       // FILE_READ_ATTRIBUTES, what Stat needs
	fileOpenReparsePoint = 0x00200000 // FILE_FLAG_OPEN_REPARSE_POINT
)

// openAppend opens the file so that it can be renamed and deleted while it is open, by
// rotation, an operator or a log collector. os.OpenFile doesn't share deletion.
//
// A link is opened itself, and then refused as no regular file: who can write to the directory
// must not lead the log of SYSTEM elsewhere.
//
// With FILE_APPEND_DATA and without FILE_WRITE_DATA each write goes to the end of
// the file, even after somebody else has emptied it.
//
// https://learn.microsoft.com/en-us/windows/win32/api/fileapi/nf-fileapi-createfilew
// https://learn.microsoft.com/en-us/windows/win32/fileio/file-access-rights-constants
func openAppend(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	handle, err := syscall.CreateFile(path, syscall.FILE_APPEND_DATA|fileReadAttributes|syscall.SYNCHRONIZE,
		syscall.FILE_SHARE_READ|syscall.FILE_SHARE_WRITE|syscall.FILE_SHARE_DELETE,
		nil, // not inherited
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL|fileOpenReparsePoint, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(handle), name), nil
}
