// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/windows"
)

// serviceOf returns the name of the service of a process or of its parent, or "" if unknown. With a
// wrapper such as nssm, the wrapper is the service's process, and starts the program.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/nf-winsvc-enumservicesstatusexw
func serviceOf(process uint32) string {
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_ENUMERATE_SERVICE)
	if err != nil {
		return ""
	}
	defer windows.CloseServiceHandle(manager)
	var size, n uint32
	var buffer []byte
	for range 3 { // services may come between two calls
		var services *byte
		if size > 0 {
			buffer = make([]byte, size)
			services = &buffer[0]
		}
		err = windows.EnumServicesStatusEx(manager, windows.SC_ENUM_PROCESS_INFO, windows.SERVICE_WIN32,
			windows.SERVICE_ACTIVE, services, uint32(len(buffer)), &size, &n, nil, nil)
		if !errors.Is(err, windows.ERROR_MORE_DATA) {
			break
		}
		size += uint32(len(buffer))
	}
	if err != nil || n == 0 {
		return ""
	}
	services := unsafe.Slice((*windows.ENUM_SERVICE_STATUS_PROCESS)(unsafe.Pointer(&buffer[0])), n)
	for _, id := range []uint32{process, parentOf(process)} {
		for _, s := range services {
			if id != 0 && s.ServiceStatusProcess.ProcessId == id && id != windows.GetCurrentProcessId() {
				return windows.UTF16PtrToString(s.ServiceName)
			}
		}
	}
	return ""
}

// parentOf returns the parent of a process, or 0 if unknown.
func parentOf(process uint32) uint32 {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return 0
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snapshot, &entry); err == nil; err = windows.Process32Next(snapshot, &entry) {
		if entry.ProcessID == process {
			return entry.ParentProcessID
		}
	}
	return 0
}
