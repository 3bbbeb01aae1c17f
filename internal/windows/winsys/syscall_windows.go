// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import "golang.org/x/sys/windows"

// Functions missing from golang.org/x/sys/windows; go generate makes zsyscall_windows.go.

//sys	cancelSynchronousIo(thread windows.Handle) (err error) = kernel32.CancelSynchronousIo
//sys	getSystemFirmwareTable(provider uint32, id uint32, buffer *byte, size uint32) (length uint32, err error) = kernel32.GetSystemFirmwareTable
//sys	ntQueryAttributesFile(object *windows.OBJECT_ATTRIBUTES, information *fileBasicInfo) (ntstatus error) = ntdll.NtQueryAttributesFile
//sys	getKernelObjectSecurity(handle windows.Handle, information windows.SECURITY_INFORMATION, descriptor *byte, size uint32, needed *uint32) (err error) = advapi32.GetKernelObjectSecurity

//sys	cmLocateDevNode(devInst *windows.DEVINST, deviceID *uint16, flags uint32) (ret windows.CONFIGRET) = cfgmgr32.CM_Locate_DevNodeW
//sys	cmReenumerateDevNode(devInst windows.DEVINST, flags uint32) (ret windows.CONFIGRET) = cfgmgr32.CM_Reenumerate_DevNode
//sys	cmGetDeviceInterfaceProperty(deviceInterface *uint16, key *windows.DEVPROPKEY, propertyType *uint32, buffer *uint16, size *uint32, flags uint32) (ret windows.CONFIGRET) = cfgmgr32.CM_Get_Device_Interface_PropertyW
//sys	cmRegisterNotification(filter *notifyFilter, context *watcher, callback uintptr, notification *windows.Handle) (ret windows.CONFIGRET) = cfgmgr32.CM_Register_Notification
//sys	cmUnregisterNotification(notification windows.Handle) (ret windows.CONFIGRET) = cfgmgr32.CM_Unregister_Notification

// devpkeyDeviceInstanceID is DEVPKEY_Device_InstanceId, also a property of device interfaces.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/install/devpkey-device-instanceid
var devpkeyDeviceInstanceID = windows.DEVPROPKEY{
	FmtID: windows.DEVPROPGUID{
		Data1: 0x78c34fc8, Data2: 0x104a, Data3: 0x4aca,
		Data4: [8]byte{0x9e, 0xa4, 0x52, 0x4d, 0x52, 0x99, 0x6e, 0x57},
	},
	PID: 256,
}
