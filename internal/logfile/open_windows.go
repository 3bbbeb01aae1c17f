// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package logfile

import (
	"os"
	"syscall"
)

// fileReadAttributes is FILE_READ_ATTRIBUTES, what Stat needs.
const fileReadAttributes = 0x80

// openAppend shares deletion, which includes renaming, so that an operator or a
// collector can move the file away, and rotation can. os.OpenFile doesn't.
//
// With FILE_APPEND_DATA and without FILE_WRITE_DATA each write goes to the end of
// the file, also after somebody else has emptied it.
//
// https://learn.microsoft.com/en-us/windows/win32/api/fileapi/nf-fileapi-createfilew
// https://learn.microsoft.com/en-us/windows/win32/fileio/file-access-rights-constants
func openAppend(name string) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	handle, err := syscall.CreateFile(path,
		syscall.FILE_APPEND_DATA|fileReadAttributes|syscall.SYNCHRONIZE,
		syscall.FILE_SHARE_READ|syscall.FILE_SHARE_WRITE|syscall.FILE_SHARE_DELETE,
		nil, // not inherited
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(handle), name), nil
}
