// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// volumeNameLen has room for \\?\Volume{guid}\ and the NUL at its end.
const volumeNameLen = 50

// FindVolumes is FindFirstVolumeW and FindNextVolumeW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-findfirstvolumew
func (s *System) FindVolumes(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := make([]uint16, volumeNameLen)
	search, err := windows.FindFirstVolume(&name[0], volumeNameLen)
	if err != nil {
		return nil, errno(err)
	}
	defer windows.FindVolumeClose(search)
	var names []string
	for {
		names = append(names, windows.UTF16ToString(name))
		err := windows.FindNextVolume(search, &name[0], volumeNameLen)
		if err == windows.ERROR_NO_MORE_FILES {
			return names, nil
		}
		if err != nil {
			return nil, errno(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// VolumeInformation is GetVolumeInformationW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumeinformationw
func (s *System) VolumeInformation(ctx context.Context, root string) (win.VolumeInformation, error) {
	path, err := utf16Ptr(directoryPath(root))
	if err != nil {
		return win.VolumeInformation{}, err
	}
	var label, fileSystem [windows.MAX_PATH + 1]uint16
	var serial, flags uint32
	err = interruptible(ctx, func() error {
		return errno(windows.GetVolumeInformation(path, &label[0], uint32(len(label)), &serial, nil, &flags,
			&fileSystem[0], uint32(len(fileSystem))))
	})
	if err != nil {
		return win.VolumeInformation{}, err
	}
	return win.VolumeInformation{
		FileSystem: windows.UTF16ToString(fileSystem[:]),
		Label:      windows.UTF16ToString(label[:]),
		Serial:     serial,
		Flags:      win.FileSystemFlags(flags),
	}, nil
}

// DiskFreeSpace is GetDiskFreeSpaceExW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getdiskfreespaceexw
func (s *System) DiskFreeSpace(ctx context.Context, directory string) (win.DiskSpace, error) {
	path, err := utf16Ptr(directoryPath(directory))
	if err != nil {
		return win.DiskSpace{}, err
	}
	var space win.DiskSpace
	err = interruptible(ctx, func() error {
		return errno(windows.GetDiskFreeSpaceEx(path, &space.Available, &space.Total, &space.Free))
	})
	if err != nil {
		return win.DiskSpace{}, err
	}
	return space, nil
}

// VolumeNameForMountPoint is GetVolumeNameForVolumeMountPointW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumenameforvolumemountpointw
func (s *System) VolumeNameForMountPoint(ctx context.Context, mountPoint string) (string, error) {
	path, err := utf16Ptr(directoryPath(mountPoint))
	if err != nil {
		return "", err
	}
	var name [volumeNameLen]uint16
	err = interruptible(ctx, func() error {
		return errno(windows.GetVolumeNameForVolumeMountPoint(path, &name[0], volumeNameLen))
	})
	if err != nil {
		return "", err
	}
	return windows.UTF16ToString(name[:]), nil
}

// maxPathNames bounds the list of a volume's mount points, in UTF-16 units. From a longer list,
// Windows may return an arbitrary part. Anyone with write access to a directory of an NTFS volume
// can make any number of mount points there.
const maxPathNames = 16 << 20

// VolumePathNames is GetVolumePathNamesForVolumeNameW.
//
// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getvolumepathnamesforvolumenamew
func (s *System) VolumePathNames(ctx context.Context, volume string) ([]string, error) {
	name, err := utf16Ptr(directoryPath(volume))
	if err != nil {
		return nil, err
	}
	units := uint32(windows.MAX_PATH + 1)
	for range growAttempts {
		names := make([]uint16, units)
		var needed uint32
		err = interruptible(ctx, func() error {
			return errno(windows.GetVolumePathNamesForVolumeName(name, &names[0], units, &needed))
		})
		switch {
		case err == nil:
			return multiString(names), nil
		case err != winerr.ErrorMoreData || needed > maxPathNames:
			return nil, err
		}
		units = max(needed, 2*units)
	}
	return nil, err
}

// SetVolumeMountPoint is SetVolumeMountPointW.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-setvolumemountpointw
func (s *System) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := utf16Ptr(directoryPath(mountPoint))
	if err != nil {
		return err
	}
	name, err := utf16Ptr(directoryPath(volume))
	if err != nil {
		return err
	}
	return errno(windows.SetVolumeMountPoint(path, name))
}

// DeleteVolumeMountPoint is DeleteVolumeMountPointW.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-deletevolumemountpointw
func (s *System) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := utf16Ptr(directoryPath(mountPoint))
	if err != nil {
		return err
	}
	return errno(windows.DeleteVolumeMountPoint(path))
}
