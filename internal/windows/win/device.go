// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"fmt"
	"maps"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Access is the desired access of a handle (ACCESS_MASK).
//
// Source: https://learn.microsoft.com/windows/win32/fileio/file-access-rights-constants
type Access uint32

// Access rights. Open each handle with the least access for its calls.
const (
	AccessNone Access = 0 // enough for control codes with FILE_ANY_ACCESS

	FileListDirectory   Access = 0x1 // the same bit as FILE_READ_DATA
	FileAddFile         Access = 0x2 // FILE_WRITE_DATA
	FileAddSubdirectory Access = 0x4 // FILE_APPEND_DATA
	FileTraverse        Access = 0x20
	FileDeleteChild     Access = 0x40
	FileReadAttributes  Access = 0x80
	FileWriteAttributes Access = 0x100
	Delete              Access = 0x10000
	ReadControl         Access = 0x20000 // for the access list
	WriteDAC            Access = 0x40000 // to change it
	Synchronize         Access = 0x100000

	GenericAll     Access = 0x10000000
	GenericExecute Access = 0x20000000
	GenericWrite   Access = 0x40000000
	GenericRead    Access = 0x80000000

	// The generic rights for files.
	FileGenericRead    Access = 0x120089
	FileGenericWrite   Access = 0x120116
	FileGenericExecute Access = 0x1200A0

	// icacls calls these (RX), (M) and (F).
	FileReadExecute Access = 0x1200A9
	FileModify      Access = 0x1301BF
	FileFullControl Access = 0x1F01FF
)

// IoctlCode is a device or file system control code:
// device type << 16 | access << 14 | function << 2 | method.
type IoctlCode uint32

// Control codes.
//
// Source: winioctl.h, ntddscsi.h and mountmgr.h of the Windows SDK.
const (
	IoctlStorageGetDeviceNumber IoctlCode = 0x002D1080
	IoctlStorageQueryProperty   IoctlCode = 0x002D1400
	IoctlScsiGetAddress         IoctlCode = 0x00041018

	IoctlDiskGetDriveGeometryEx IoctlCode = 0x000700A0
	IoctlDiskGetLengthInfo      IoctlCode = 0x0007405C
	IoctlDiskGetDriveLayoutEx   IoctlCode = 0x00070050
	// IoctlDiskSetDriveLayoutEx replaces the whole partition table: a partition that it leaves out
	// is gone. The volumes of new partitions arrive afterwards.
	IoctlDiskSetDriveLayoutEx IoctlCode = 0x0007C054
	// IoctlDiskCreateDisk makes an empty partition table. An offline or read-only disk gives
	// ErrorWriteProtect.
	IoctlDiskCreateDisk        IoctlCode = 0x0007C058
	IoctlDiskUpdateProperties  IoctlCode = 0x00070140
	IoctlDiskUpdateDriveSize   IoctlCode = 0x0007C0C8
	IoctlDiskGrowPartition     IoctlCode = 0x0007C0D0
	IoctlDiskGetDiskAttributes IoctlCode = 0x000700F0
	// IoctlDiskIsWritable succeeds on a writable disk or volume. Else the error is
	// ErrorWriteProtect.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ni-winioctl-ioctl_disk_is_writable
	IoctlDiskIsWritable IoctlCode = 0x00070024
	// IoctlDiskAreVolumesReady waits until all volumes of a disk are ready for use. A handle makes
	// one call at a time, and further calls on the same handle wait too. The handle needs
	// GenericRead. mingw-w64 lacks the code; rpi-imager has the number.
	//
	// Source: https://learn.microsoft.com/windows/win32/fileio/ioctl-disk-are-volumes-ready
	IoctlDiskAreVolumesReady IoctlCode = 0x0007421C
	// IoctlDiskSetDiskAttributes takes a disk offline or online. The volumes of a disk that is
	// offline are gone, and come again, with their names, when it is online.
	IoctlDiskSetDiskAttributes IoctlCode = 0x0007C0F4

	IoctlVolumeGetVolumeDiskExtents IoctlCode = 0x00560000
	IoctlVolumeOnline               IoctlCode = 0x0056C008
	// IoctlVolumeOffline makes a volume's reads and writes fail with ErrorNotReady, until
	// IoctlVolumeOnline; opening the volume still succeeds. A mounted file system must be
	// dismounted before.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ni-winioctl-ioctl_volume_offline
	IoctlVolumeOffline IoctlCode = 0x0056C00C

	// FsctlLockVolume gives the volume to the handle alone: whoever opens the volume or a file on
	// it afterwards gets ErrorAccessDenied, until FsctlUnlockVolume or the end of the handle. It
	// writes out cached data, and dismounts the file system. It fails with ErrorAccessDenied while
	// anybody has something open on the volume, or the handle has locked it already, and on the
	// volume that Windows runs from, or that has a page file. The handle needs GenericRead.
	//
	// Undocumented: whether FsctlLockVolume waits for a moment for files being closed.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ni-winioctl-fsctl_lock_volume
	FsctlLockVolume   IoctlCode = 0x00090018
	FsctlUnlockVolume IoctlCode = 0x0009001C
	// FsctlDismountVolume dismounts the file system, even while in use: what is open on it then
	// fails with ErrorNotReady, and so do new opens and a second dismount, until the handle is
	// closed. The next use of the volume then mounts it again.
	//
	// Undocumented: whether Windows' own volume is refused, and the errors. The errors here are
	// those of Microsoft's driver for FAT.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ni-winioctl-fsctl_dismount_volume
	FsctlDismountVolume IoctlCode = 0x00090020
	// FsctlIsVolumeDirty tells whether Windows wants to check the file system
	// ([DecodeVolumeIsDirty]). The handle needs GenericRead.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ni-winioctl-fsctl_is_volume_dirty
	FsctlIsVolumeDirty IoctlCode = 0x00090078

	FsctlExtendVolume       IoctlCode = 0x000900F0
	FsctlGetNtfsVolumeData  IoctlCode = 0x00090064
	FsctlGetRefsVolumeData  IoctlCode = 0x000902D8
	FsctlGetReparsePoint    IoctlCode = 0x000900A8
	FsctlSetReparsePoint    IoctlCode = 0x000900A4
	FsctlDeleteReparsePoint IoctlCode = 0x000900AC
)

var ioctlNames = map[IoctlCode]string{
	IoctlStorageGetDeviceNumber:     "IOCTL_STORAGE_GET_DEVICE_NUMBER",
	IoctlStorageQueryProperty:       "IOCTL_STORAGE_QUERY_PROPERTY",
	IoctlScsiGetAddress:             "IOCTL_SCSI_GET_ADDRESS",
	IoctlDiskGetDriveGeometryEx:     "IOCTL_DISK_GET_DRIVE_GEOMETRY_EX",
	IoctlDiskGetLengthInfo:          "IOCTL_DISK_GET_LENGTH_INFO",
	IoctlDiskGetDriveLayoutEx:       "IOCTL_DISK_GET_DRIVE_LAYOUT_EX",
	IoctlDiskSetDriveLayoutEx:       "IOCTL_DISK_SET_DRIVE_LAYOUT_EX",
	IoctlDiskCreateDisk:             "IOCTL_DISK_CREATE_DISK",
	IoctlDiskUpdateProperties:       "IOCTL_DISK_UPDATE_PROPERTIES",
	IoctlDiskUpdateDriveSize:        "IOCTL_DISK_UPDATE_DRIVE_SIZE",
	IoctlDiskGrowPartition:          "IOCTL_DISK_GROW_PARTITION",
	IoctlDiskGetDiskAttributes:      "IOCTL_DISK_GET_DISK_ATTRIBUTES",
	IoctlDiskSetDiskAttributes:      "IOCTL_DISK_SET_DISK_ATTRIBUTES",
	IoctlDiskIsWritable:             "IOCTL_DISK_IS_WRITABLE",
	IoctlDiskAreVolumesReady:        "IOCTL_DISK_ARE_VOLUMES_READY",
	FsctlLockVolume:                 "FSCTL_LOCK_VOLUME",
	FsctlUnlockVolume:               "FSCTL_UNLOCK_VOLUME",
	FsctlDismountVolume:             "FSCTL_DISMOUNT_VOLUME",
	FsctlIsVolumeDirty:              "FSCTL_IS_VOLUME_DIRTY",
	IoctlVolumeGetVolumeDiskExtents: "IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS",
	IoctlVolumeOnline:               "IOCTL_VOLUME_ONLINE",
	IoctlVolumeOffline:              "IOCTL_VOLUME_OFFLINE",
	FsctlExtendVolume:               "FSCTL_EXTEND_VOLUME",
	FsctlGetNtfsVolumeData:          "FSCTL_GET_NTFS_VOLUME_DATA",
	FsctlGetRefsVolumeData:          "FSCTL_GET_REFS_VOLUME_DATA",
	FsctlGetReparsePoint:            "FSCTL_GET_REPARSE_POINT",
	FsctlSetReparsePoint:            "FSCTL_SET_REPARSE_POINT",
	FsctlDeleteReparsePoint:         "FSCTL_DELETE_REPARSE_POINT",
}

// IoctlCodes returns the control codes above, in no particular order.
func IoctlCodes() []IoctlCode { return slices.Collect(maps.Keys(ioctlNames)) }

// Name returns the code's name in the Windows headers, if the code is one of those above.
func (c IoctlCode) Name() (name string, ok bool) {
	name, ok = ioctlNames[c]
	return name, ok
}

// String returns the code's name or, for an unknown code, its number.
func (c IoctlCode) String() string {
	if name, ok := c.Name(); ok {
		return name
	}
	return fmt.Sprintf("control code %#08x", uint32(c))
}

// RequiredAccess is the access that the I/O manager asks of a handle before a
// control code reaches the driver: bits 14 and 15 of the code are
// FILE_READ_ACCESS (1) and FILE_WRITE_ACCESS (2).
func (c IoctlCode) RequiredAccess() Access {
	var a Access
	if c>>14&1 != 0 {
		a |= GenericRead
	}
	if c>>14&2 != 0 {
		a |= GenericWrite
	}
	return a
}

// PhysicalDrive is the path of the disk with a number.
func PhysicalDrive(number csiproxy.DiskNumber) string { return `\\.\PhysicalDrive` + number.String() }

// Device is an open handle to a disk (\\.\PhysicalDriveN or a device interface) or to a volume
// (\\?\Volume{guid} without the backslash at its end). Close handles at the end of each operation:
// an open handle can hold up the removal of a disk. Methods fail with an Errno or with ctx's error;
// a call given up by ctx may still finish in Windows.
type Device interface {
	// Control is DeviceIoControl. It returns the number of bytes that the driver put into out. A
	// handle that lacks code's RequiredAccess gives ErrorAccessDenied. A device that doesn't know
	// code gives ErrorInvalidFunction, or ErrorNotSupported. If out is too small for the answer,
	// nothing is in it and the error is ErrorInsufficientBuffer. Two answers are cut instead, and
	// begin with their length: a storage property, and, with ErrorMoreData, the extents of a
	// volume.
	Control(ctx context.Context, code IoctlCode, in, out []byte) (int, error)
	// ReadAt reads len(p) bytes at the byte offset off. Both must be multiples of the sector size,
	// or the error is ErrorInvalidParameter. The handle needs GenericRead. Reading past the end
	// gives fewer bytes without an error. An offline volume gives ErrorNotReady.
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	// Flush is FlushFileBuffers: on a volume it writes out all its files. The handle needs
	// GenericWrite, without which the error is ErrorAccessDenied.
	Flush(ctx context.Context) error
	// ProcessIDs is [File.ProcessIDs] of the device.
	//
	// Undocumented: whether the processes of a volume include all processes with open files on the
	// volume, or only those with the volume itself open.
	ProcessIDs(ctx context.Context) ([]ProcessID, error)
	// Close ends the handle.
	Close() error
}
