// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"encoding/binary"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Control is DeviceIoControl on a handle of a volume.
func (m *Manager) Control(v *Volume, h Handle, code win.IoctlCode, in, out []byte) (int, error) {
	switch code {
	case win.FsctlLockVolume:
		return 0, m.lock(v, h)
	case win.FsctlUnlockVolume:
		return 0, v.unlock(h)
	case win.FsctlDismountVolume:
		return 0, m.dismount(v, h)
	case win.FsctlIsVolumeDirty:
		return v.isDirty(h, out)
	case win.IoctlDiskIsWritable:
		if !v.hasWritableDisk() {
			return 0, winerr.ErrorWriteProtect
		}
		return 0, nil
	case win.IoctlStorageGetDeviceNumber:
		return disks.Reply(out, win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: v.Disk.Number,
			PartitionNumber: v.Number}.Encode())
	case win.IoctlVolumeGetVolumeDiskExtents:
		return v.extents(out)
	case win.IoctlDiskGetLengthInfo:
		return disks.Reply(out, win.EncodeInt64(v.Length))
	case win.IoctlDiskGetDriveGeometryEx:
		return disks.Reply(out, v.Disk.Geometry().Encode())
	case win.IoctlVolumeOffline:
		// Guess: to take Windows' own volume offline gives error 5. The documentation only
		// says that it can't be.
		if v.Disk.System {
			return 0, winerr.ErrorAccessDenied
		}
		// Guess: the files of a file system that is mounted can't be used until the
		// volume is online again.
		v.Offline = true
		m.touch(v.Unique)
		return 0, nil
	case win.IoctlVolumeOnline:
		v.Offline = false
		m.touch(v.Unique)
		return 0, nil
	case win.FsctlExtendVolume:
		sectors, err := win.DecodeInt64(in)
		if err != nil {
			return 0, winerr.ErrorInvalidParameter
		}
		if err := v.extend(sectors); err != nil {
			return 0, fsctlError(err)
		}
		return 0, nil
	case win.FsctlGetNtfsVolumeData, win.FsctlGetRefsVolumeData:
		return v.fileSystemData(code, out)
	}
	return 0, winerr.ErrorInvalidFunction
}

// extents is IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS: with room for the count only,
// it gives that and ErrorMoreData.
func (v *Volume) extents(out []byte) (int, error) {
	const headerSize = 8
	answer := win.EncodeDiskExtents([]win.DiskExtent{
		{DiskNumber: v.Disk.Number, StartingOffset: v.Offset, Length: v.Length}})
	switch {
	case len(out) < headerSize:
		return 0, winerr.ErrorInsufficientBuffer
	case len(out) < len(answer):
		return copy(out, answer[:headerSize]), winerr.ErrorMoreData
	}
	return copy(out, answer), nil
}

func (v *Volume) fileSystemData(code win.IoctlCode, out []byte) (int, error) {
	t, b, err := v.content()
	if err != nil {
		return 0, fsctlError(err)
	}
	var answer []byte
	switch {
	case code == win.FsctlGetNtfsVolumeData && b.kind == kindNTFS:
		answer = win.EncodeNTFSVolumeData(t.data(b))
		binary.LittleEndian.PutUint64(answer, b.serial)
	case code == win.FsctlGetRefsVolumeData && b.kind == kindReFS:
		answer = encodeReFSVolumeData(b.serial, t.data(b))
	default:
		return 0, winerr.ErrorInvalidFunction
	}
	return disks.Reply(out, answer)
}

// fsctlError is what a file system control gives on a volume that has none of the
// known file systems: the raw file system doesn't know the code.
func fsctlError(err error) error {
	if err == winerr.ErrorUnrecognizedVolume {
		return winerr.ErrorInvalidFunction
	}
	return err
}
