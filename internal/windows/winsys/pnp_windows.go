// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// DeviceInterfaces is CM_Get_Device_Interface_ListW for present interfaces.
//
// Source: https://learn.microsoft.com/windows/win32/api/cfgmgr32/nf-cfgmgr32-cm_get_device_interface_listw
func (s *System) DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return deviceInterfaces(class)
}

func deviceInterfaces(class winid.GUID) ([]string, error) {
	guid := toGUID(class)
	paths, err := windows.CM_Get_Device_Interface_List("", &guid, windows.CM_GET_DEVICE_INTERFACE_LIST_PRESENT)
	if err == windows.ERROR_NO_SUCH_DEVICE_INTERFACE { // x/sys returns this for an empty list
		return nil, nil
	}
	return paths, errno(err)
}

func toGUID(g winid.GUID) windows.GUID {
	return windows.GUID{
		Data1: le.Uint32(g[0:]), Data2: le.Uint16(g[4:]), Data3: le.Uint16(g[6:]), Data4: [8]byte(g[8:]),
	}
}

// ReenumerateDevice implements [win.Devices].
//
// Source: https://learn.microsoft.com/windows/win32/api/cfgmgr32/nf-cfgmgr32-cm_reenumerate_devnode
func (s *System) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var instance *uint16 // nil for the root
	if interfacePath != "" {
		id, err := deviceInstance(interfacePath)
		if err != nil {
			return err
		}
		instance = &id[0]
	}
	var node windows.DEVINST
	if err := cm(cmLocateDevNode(&node, instance, cmLocateDevNodeNormal)); err != nil {
		return err
	}
	return cm(cmReenumerateDevNode(node, cmReenumerateSynchronous))
}

// deviceInstance returns the id of the device instance behind an interface, with the NUL at its
// end.
//
// Source: https://learn.microsoft.com/windows/win32/api/cfgmgr32/nf-cfgmgr32-cm_get_device_interface_propertyw
func deviceInstance(interfacePath string) (id [maxDeviceIDLen + 1]uint16, err error) {
	path, err := utf16Ptr(interfacePath)
	if err != nil {
		return id, err
	}
	var propertyType uint32
	size := uint32(2 * maxDeviceIDLen)
	if err := cm(cmGetDeviceInterfaceProperty(path, &devpkeyDeviceInstanceID, &propertyType, &id[0], &size,
		0)); err != nil {
		return id, err
	}
	if propertyType != devpropTypeString {
		return id, winerr.ErrorInvalidParameter
	}
	return id, nil
}

// cm returns the error of a configuration manager call.
func cm(ret windows.CONFIGRET) error {
	if ret == windows.CR_SUCCESS {
		return nil
	}
	return errno(ret)
}

// NotifyArrivals implements [win.Notices]. If Windows sends no notices, the interfaces are listed
// every second instead.
//
// Source: https://learn.microsoft.com/windows/win32/api/cfgmgr32/nf-cfgmgr32-cm_register_notification
func (s *System) NotifyArrivals(ctx context.Context, class winid.GUID) (arrived <-chan struct{}, stop func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	w := &watcher{make(chan struct{}, 1)}
	stop, err = w.register(class)
	if err != nil {
		s.noNotices.Do(func() {
			s.log.Warn("Windows sends no notices of arriving devices; they are listed every second instead", "error", err)
		})
		stopped := make(chan struct{})
		go poll(func() ([]string, error) { return deviceInterfaces(class) }, w.arrived, stopped)
		stop = func() { close(stopped) }
	}
	unregister, closed := stop, s.tracker.Track("notifications of arrivals")
	return w.arrived, sync.OnceFunc(func() { unregister(); closed() }), nil
}

// watcher is the context of a registration. Windows keeps its address.
type watcher struct {
	arrived chan struct{}
}

func (w *watcher) register(class winid.GUID) (stop func(), err error) {
	filter := notifyFilter{filterType: cmNotifyDeviceInterface, classGUID: class}
	filter.size = uint32(unsafe.Sizeof(filter))
	pinner := new(runtime.Pinner)
	pinner.Pin(w)
	var notification windows.Handle
	if err := cm(cmRegisterNotification(&filter, w, arrivalCallback(), &notification)); err != nil {
		pinner.Unpin()
		return nil, err
	}
	return func() {
		cmUnregisterNotification(notification) // returns when no callback is running
		pinner.Unpin()
	}, nil
}

// arrivalCallback is the CM_NOTIFY_CALLBACK of all registrations, because the number of a program's
// callbacks is limited and they are never freed.
var arrivalCallback = sync.OnceValue(func() uintptr { return windows.NewCallback(onArrival) })

// onArrival runs on a thread of Windows and must be quick. The only actions are the
// arrival and the removal of an interface of the class.
func onArrival(_ windows.Handle, w *watcher, _ uintptr, _ *byte, _ uintptr) uintptr {
	signal(w.arrived)
	return uintptr(windows.ERROR_SUCCESS)
}
