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

// withService calls f with a service, opened with only the given rights. Some services of Windows
// refuse further rights even to administrators.
//
// Source: https://learn.microsoft.com/windows/win32/services/service-security-and-access-rights
func withService(ctx context.Context, name string, rights uint32, f func(service windows.Handle) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name16, err := utf16Ptr(name)
	if err != nil {
		return err
	}
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return errno(err)
	}
	defer windows.CloseServiceHandle(manager) // nothing depends on it
	service, err := windows.OpenService(manager, name16, rights)
	if err != nil {
		return errno(err)
	}
	defer windows.CloseServiceHandle(service) // nothing depends on it
	return errno(f(service))
}

// QueryService is QueryServiceConfigW and QueryServiceStatusEx.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-queryserviceconfigw
// and https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-queryservicestatusex
func (s *System) QueryService(ctx context.Context, name string) (queried win.Service, err error) {
	err = withService(ctx, name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS,
		func(service windows.Handle) error {
			const usual = 1 << 10 // bytes
			buf, err := grown(usual, func(buf []byte) (needed uint32, err error) {
				err = windows.QueryServiceConfig(service, (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buf[0])),
					uint32(len(buf)), &needed)
				return needed, errno(err)
			})
			if err != nil {
				return err
			}
			config := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buf[0]))
			var status windows.SERVICE_STATUS_PROCESS
			var needed uint32
			if err := windows.QueryServiceStatusEx(service, windows.SC_STATUS_PROCESS_INFO,
				(*byte)(unsafe.Pointer(&status)), uint32(unsafe.Sizeof(status)), &needed); err != nil {
				return err
			}
			queried = win.Service{
				DisplayName:      windows.UTF16PtrToString(config.DisplayName),
				StartType:        win.ServiceStartType(config.StartType),
				State:            win.ServiceState(status.CurrentState),
				ExitCode:         winerr.Errno(status.Win32ExitCode),
				SpecificExitCode: status.ServiceSpecificExitCode,
			}
			return nil
		})
	return queried, err
}

// StartService implements [win.Services].
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-startservicew
func (s *System) StartService(ctx context.Context, name string) error {
	return withService(ctx, name, windows.SERVICE_START, func(service windows.Handle) error {
		return windows.StartService(service, 0, nil)
	})
}

// StopService implements [win.Services].
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-controlservice
func (s *System) StopService(ctx context.Context, name string) error {
	return withService(ctx, name, windows.SERVICE_STOP, func(service windows.Handle) error {
		var status windows.SERVICE_STATUS
		return windows.ControlService(service, windows.SERVICE_CONTROL_STOP, &status)
	})
}

// ActiveDependentServices implements [win.Services].
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-enumdependentservicesw
func (s *System) ActiveDependentServices(ctx context.Context, name string) (names []string, err error) {
	err = withService(ctx, name, windows.SERVICE_ENUMERATE_DEPENDENTS, func(service windows.Handle) error {
		const usual = 4 << 10 // bytes
		var count uint32
		buf, err := grown(usual, func(buf []byte) (needed uint32, err error) {
			err = windows.EnumDependentServices(service, windows.SERVICE_ACTIVE,
				(*windows.ENUM_SERVICE_STATUS)(unsafe.Pointer(&buf[0])), uint32(len(buf)), &needed, &count)
			return needed, errno(err)
		})
		if err != nil {
			return err
		}
		for _, dependent := range unsafe.Slice((*windows.ENUM_SERVICE_STATUS)(unsafe.Pointer(&buf[0])), count) {
			names = append(names, windows.UTF16PtrToString(dependent.ServiceName))
		}
		return nil
	})
	return names, err
}
