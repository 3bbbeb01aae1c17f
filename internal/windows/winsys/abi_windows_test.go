// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"bytes"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// What is taken from golang.org/x/sys/windows.
func TestABIOfSys(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	abi.Check(abitest.Constants{
		"CM_GET_DEVICE_INTERFACE_LIST_PRESENT":            windows.CM_GET_DEVICE_INTERFACE_LIST_PRESENT,
		"CR_SUCCESS":                                      uint64(windows.CR_SUCCESS),
		"FileBasicInfo":                                   windows.FileBasicInfo,
		"FileDispositionInfo":                             windows.FileDispositionInfo,
		"FileAttributeTagInfo":                            windows.FileAttributeTagInfo,
		"FileFullDirectoryInfo":                           windows.FileFullDirectoryInfo,
		"FileFullDirectoryRestartInfo":                    windows.FileFullDirectoryRestartInfo,
		"FileDispositionInfoEx":                           windows.FileDispositionInfoEx,
		"FILE_DISPOSITION_FLAG_DELETE":                    windows.FILE_DISPOSITION_DELETE,
		"FILE_DISPOSITION_FLAG_POSIX_SEMANTICS":           windows.FILE_DISPOSITION_POSIX_SEMANTICS,
		"FILE_DISPOSITION_FLAG_IGNORE_READONLY_ATTRIBUTE": windows.FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE,
		"OBJ_CASE_INSENSITIVE":                            windows.OBJ_CASE_INSENSITIVE,
		"OBJ_DONT_REPARSE":                                windows.OBJ_DONT_REPARSE,
		"FILE_SYNCHRONOUS_IO_NONALERT":                    windows.FILE_SYNCHRONOUS_IO_NONALERT,
		"STATUS_DELETE_PENDING":                           uint64(windows.STATUS_DELETE_PENDING),
		"ERROR_SECTOR_NOT_FOUND":                          uint64(winerr.ErrorSectorNotFound),
	})
	var object windows.OBJECT_ATTRIBUTES
	var overlapped windows.Overlapped
	abi.CheckSizes(map[string]uintptr{
		"OBJECT_ATTRIBUTES": unsafe.Sizeof(object),
		"IO_STATUS_BLOCK":   unsafe.Sizeof(windows.IO_STATUS_BLOCK{}),
		"UNICODE_STRING":    unsafe.Sizeof(windows.NTUnicodeString{}),
		"OVERLAPPED":        unsafe.Sizeof(overlapped),
	})
	abi.CheckOffsets(map[string]uintptr{
		"OBJECT_ATTRIBUTES.RootDirectory": unsafe.Offsetof(object.RootDirectory),
		"OBJECT_ATTRIBUTES.ObjectName":    unsafe.Offsetof(object.ObjectName),
		"OBJECT_ATTRIBUTES.Attributes":    unsafe.Offsetof(object.Attributes),
		"OVERLAPPED.Offset":               unsafe.Offsetof(overlapped.Offset),
	})
	key := (*[20]byte)(unsafe.Pointer(&devpkeyDeviceInstanceID))[:]
	if want := abi.Sample("DEVPKEY_Device_InstanceId"); !bytes.Equal(key, want) {
		t.Errorf("DEVPKEY_Device_InstanceId is %x; want %x", key, want)
	}
	guid := toGUID(win.InterfaceClassDisk)
	if got, want := (*[16]byte)(unsafe.Pointer(&guid))[:], abi.Sample("GUID_DEVINTERFACE_DISK"); !bytes.Equal(got, want) {
		t.Errorf("GUID_DEVINTERFACE_DISK is %x; want %x", got, want)
	}
}
