// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// GetDiskNumber returns the number of an open disk.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ni-winioctl-ioctl_storage_get_device_number
func (DiskAPI) GetDiskNumber(disk syscall.Handle) (uint32, error) {
	var number StorageDeviceNumber
	var n uint32
	err := windows.DeviceIoControl(windows.Handle(disk), IOCTL_STORAGE_GET_DEVICE_NUMBER, nil, 0,
		(*byte)(unsafe.Pointer(&number)), uint32(unsafe.Sizeof(number)), &n, nil)
	if err == nil && n < uint32(unsafe.Sizeof(number)) {
		err = fmt.Errorf("IOCTL_STORAGE_GET_DEVICE_NUMBER returned %d bytes", n)
	}
	return number.DeviceNumber, err
}

// GetDiskPage83ID returns the identifier of page 83 of an open disk.
func (d DiskAPI) GetDiskPage83ID(disk syscall.Handle) (string, error) {
	number, err := d.GetDiskNumber(disk)
	if err != nil {
		return "", err
	}
	return d.page83(number)
}

// GetDiskNumberAndPage83ID returns the number of the disk with a device path, and its
// identifier of page 83.
func (d DiskAPI) GetDiskNumberAndPage83ID(path string) (uint32, string, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, "", err
	}
	h, err := windows.CreateFile(name, 0, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, nil, windows.OPEN_EXISTING,
		0, 0)
	if err != nil {
		return 0, "", fmt.Errorf("%s: %w", path, err)
	}
	defer windows.CloseHandle(h)
	number, err := d.GetDiskNumber(syscall.Handle(h))
	if err != nil {
		return 0, "", err
	}
	id, err := d.page83(number)
	return number, id, err
}
