// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winread

import (
	"context"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Windows is this node's Windows. Package win documents the results of the methods.
type Windows struct{}

// errno converts an error number of Windows to package winerr's.
func errno(err error) error {
	if e, ok := err.(syscall.Errno); ok {
		return winerr.Errno(e)
	}
	return err
}

// RegistryStrings returns the strings of a value below HKEY_LOCAL_MACHINE.
func (Windows) RegistryStrings(_ context.Context, key, value string) (texts []string, err error) {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, key, registry.QUERY_VALUE)
	if err != nil {
		return nil, errno(err)
	}
	defer k.Close()
	text, _, err := k.GetStringValue(value)
	if err == registry.ErrUnexpectedType {
		texts, _, err = k.GetStringsValue(value)
	} else {
		texts = []string{text}
	}
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" }), errno(err)
}

// RegistryNumber returns a number below HKEY_LOCAL_MACHINE.
func (Windows) RegistryNumber(_ context.Context, key, value string) (uint32, error) {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, key, registry.QUERY_VALUE)
	if err != nil {
		return 0, errno(err)
	}
	defer k.Close()
	number, _, err := k.GetIntegerValue(value)
	return uint32(number), errno(err)
}

// QueryService returns the state and the start type of a service.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-queryservicestatus
func (w Windows) QueryService(ctx context.Context, name string) (service win.Service, _ error) {
	text, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return service, err
	}
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return service, errno(err)
	}
	defer windows.CloseServiceHandle(manager)
	handle, err := windows.OpenService(manager, text, windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return service, errno(err)
	}
	defer windows.CloseServiceHandle(handle)
	var status windows.SERVICE_STATUS
	if err := windows.QueryServiceStatus(handle, &status); err != nil {
		return service, errno(err)
	}
	service.State = win.ServiceState(status.CurrentState)
	start, err := w.RegistryNumber(ctx, `SYSTEM\CurrentControlSet\Services\`+name, "Start")
	service.StartType = win.ServiceStartType(start)
	return service, err
}

// FindVolumes returns the names of all volumes.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-findfirstvolumew
func (Windows) FindVolumes(context.Context) (names []string, _ error) {
	var name [windows.MAX_PATH + 1]uint16
	search, err := windows.FindFirstVolume(&name[0], uint32(len(name)))
	if err != nil {
		return nil, errno(err)
	}
	defer windows.FindVolumeClose(search)
	for {
		names = append(names, windows.UTF16ToString(name[:]))
		err := windows.FindNextVolume(search, &name[0], uint32(len(name)))
		if err == windows.ERROR_NO_MORE_FILES {
			return names, nil
		}
		if err != nil {
			return nil, errno(err)
		}
	}
}

// VolumeInformation returns a volume's file system, by the volume's name or root.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumeinformationw
func (Windows) VolumeInformation(_ context.Context, volume string) (win.VolumeInformation, error) {
	root, err := windows.UTF16PtrFromString(directoryPath(volume))
	if err != nil {
		return win.VolumeInformation{}, err
	}
	var label, fileSystem [windows.MAX_PATH + 1]uint16
	var serial, flags uint32
	err = windows.GetVolumeInformation(root, &label[0], uint32(len(label)), &serial, nil, &flags, &fileSystem[0],
		uint32(len(fileSystem)))
	return win.VolumeInformation{
		FileSystem: windows.UTF16ToString(fileSystem[:]), Label: windows.UTF16ToString(label[:]), Serial: serial,
		Flags: win.FileSystemFlags(flags),
	}, errno(err)
}

// FileAttributes returns the attributes of a file, a directory, or a link itself.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getfileattributesw
func (Windows) FileAttributes(_ context.Context, path string) (win.FileAttributes, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	attributes, err := windows.GetFileAttributes(name)
	return win.FileAttributes(attributes), errno(err)
}

// VolumeOf returns the root of a directory's volume.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumepathnamew
func (Windows) VolumeOf(_ context.Context, directory string) (root string, _ error) {
	path, err := windows.UTF16PtrFromString(directory)
	if err != nil {
		return "", err
	}
	text := make([]uint16, len(directory)+windows.MAX_PATH)
	err = windows.GetVolumePathName(path, &text[0], uint32(len(text)))
	return windows.UTF16ToString(text), errno(err)
}

// directoryPath ends a path with the backslash required by calls about volumes.
func directoryPath(path string) string { return strings.TrimRight(path, `\`) + `\` }
