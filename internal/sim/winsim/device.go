// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// DeviceInterfaces is CM_Get_Device_Interface_List for present devices: disks,
// volumes or storage adapters.
func (s *System) DeviceInterfaces(ctx context.Context, class win.GUID) ([]string, error) {
	var paths []string
	err := s.call(ctx, Call{win.CallDeviceInterfaces, class.String()}, func() error {
		switch class {
		case win.InterfaceClassDisk:
			for d := range s.disks.all() {
				if d.present() {
					paths = append(paths, d.interfacePath())
				}
			}
		case win.InterfaceClassVolume:
			for _, v := range s.volumes.present {
				paths = append(paths, v.interfacePath())
			}
		case win.InterfaceClassStoragePort:
			for _, port := range s.disks.ports() {
				paths = append(paths, portInterface(port))
			}
		}
		return nil
	})
	return paths, err
}

// OpenDevice is CreateFileW of a disk or volume that exists.
func (s *System) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	object := path
	s.mu.Lock()
	if d, ok := s.findDisk(path); ok {
		object = d.object()
	}
	s.mu.Unlock()
	var dev *device
	err := s.call(ctx, Call{win.CallOpen, object}, func() error {
		if d, ok := s.findDisk(path); ok {
			dev = &device{s.open(handle{object: objectName{name: d.object()}, disk: d, length: d.Seen, access: access})}
			return nil
		}
		v, err := s.findVolume(path)
		if err != nil {
			return err
		}
		if err := v.admits(access); err != nil {
			return err
		}
		if v.unique == "" { // it has no name of its own
			dev = &device{s.open(handle{object: objectName{name: path}, volume: v, length: v.length, access: access})}
			return nil
		}
		dev = &device{s.open(handle{object: objectName{name: v.device()}, volume: v, length: v.length, access: access})}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// findDisk finds a present disk by \\.\PhysicalDriveN or its interface path.
func (s *System) findDisk(path string) (*drive, bool) {
	number, numbered := physicalDrive(path)
	if numbered {
		return s.disks.find(func(d *drive) bool { return d.present() && d.Number == number })
	}
	id, ok := diskOfInterface(path)
	d := s.disks.byID[id]
	return d, ok && d != nil && d.present() && strings.EqualFold(d.interfacePath(), path)
}

// physicalDrive reads \\.\PhysicalDriveN.
func physicalDrive(path string) (number disk.Number, ok bool) {
	const prefix = `\\.\PhysicalDrive`
	path = dotted(path)
	if len(path) <= len(prefix) || !strings.EqualFold(path[:len(prefix)], prefix) {
		return 0, false
	}
	digits := path[len(prefix):]
	n, err := strconv.ParseUint(digits, 10, 32)
	return disk.Number(n), err == nil && n != win.NoNumber && digits == strconv.FormatUint(n, 10)
}

// dotted gives a device path the prefix \\.\, which means the same as \\?\.
func dotted(path string) string {
	if rest, ok := strings.CutPrefix(path, `\\?\`); ok {
		return `\\.\` + rest
	}
	return path
}

// findVolumeDevice finds \\?\GLOBALROOT\Device\HarddiskVolumeN. 1 is the EFI system
// partition of the system disk, which isn't among the volumes. Those have the numbers
// after it, in the order of their arrival since the node was opened.
func (s *System) findVolumeDevice(path string) (*volume, bool) {
	const prefix = `\\?\GLOBALROOT\Device\HarddiskVolume`
	if len(path) <= len(prefix) || !strings.EqualFold(path[:len(prefix)], prefix) {
		return nil, false
	}
	n, err := strconv.ParseUint(path[len(prefix):], 10, 32)
	if err != nil || n == 0 {
		return nil, false
	}
	if n > 1 {
		return s.volumes.find(func(v *volume) bool { return v.ntDevice == uint32(n) })
	}
	d, ok := s.disks.find(func(d *drive) bool { return d.System })
	if !ok {
		return nil, false
	}
	for _, p := range d.layout().Partitions {
		if p.Type == win.PartitionTypeEFISystem {
			return &volume{volumeRecord: &volumeRecord{}, disk: d, number: p.Number, offset: p.StartingOffset, length: p.Length}, true
		}
	}
	return nil, false
}

// findVolume finds a present volume by its name without a backslash at the end,
// its drive letter, its interface path or its device.
func (s *System) findVolume(path string) (*volume, error) {
	if v, ok := s.findVolumeDevice(path); ok {
		return v, nil
	}
	if id, ok := parseVolumeInterface(path); ok {
		if v, ok := s.volumes.withID(id); ok && strings.EqualFold(path, v.interfacePath()) {
			return v, nil
		}
		return nil, win.ErrorFileNotFound
	}
	dotted := dotted(path)
	if id, rest, ok := parseVolumeName(`\\?\` + strings.TrimPrefix(dotted, `\\.\`)); ok {
		v, present := s.volumes.withID(id)
		switch {
		case rest == "" && present:
			return v, nil
		case rest != "" && present:
			return nil, win.ErrorAccessDenied // the root directory: not without FILE_FLAG_BACKUP_SEMANTICS
		case rest != "":
			return nil, win.ErrorPathNotFound
		}
		return nil, win.ErrorFileNotFound
	}
	if letter, ok := strings.CutPrefix(dotted, `\\.\`); ok && len(letter) == 2 && letter[1] == ':' {
		if v, ok := s.volumes.withLetter(letter[:1]); ok {
			return v, nil
		}
	}
	return nil, win.ErrorFileNotFound
}

// device is an open disk or volume.
type device struct {
	*handle
}

var _ win.Device = (*device)(nil)

// Control implements [win.Device].
func (d *device) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (n int, err error) {
	err = d.call(ctx, controlName(code), func() error {
		if err := d.need(code.RequiredAccess()); err != nil {
			return err
		}
		if d.stale(code) {
			return win.ErrorInvalidParameter
		}
		if d.disk != nil {
			n, err = d.sys.diskControl(d.disk, code, in, out)
		} else {
			n, err = d.sys.volumeControl(d.handle, code, in, out)
		}
		return err
	})
	return n, err
}

// stale reports whether a control code wants a handle that was opened later.
func (d *device) stale(code win.IoctlCode) bool {
	switch set := d.sys.node.Settings; {
	case d.disk != nil:
		return code == win.IoctlDiskGrowPartition && set.FreshHandleToGrow && d.length != d.disk.Seen
	default:
		return code == win.FsctlExtendVolume && set.FreshHandleToExtend && d.length != d.volume.length
	}
}

// ReadAt implements [win.Device].
func (d *device) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	err = d.call(ctx, win.CallRead, func() error {
		if err := d.need(win.GenericRead); err != nil {
			return err
		}
		on, start, size := d.disk, int64(0), int64(0)
		switch {
		case on != nil:
			size = on.Seen
		case d.volume.Offline:
			return win.ErrorNotReady
		default:
			on, start, size = d.volume.disk, d.volume.offset, d.volume.length
		}
		if off < 0 || off%on.sector() != 0 || int64(len(p))%on.sector() != 0 {
			return win.ErrorInvalidParameter
		}
		n = int(max(0, min(int64(len(p)), size-off)))
		if _, err := on.image.ReadAt(p[:n], start+off); err != nil {
			return win.ErrorIODevice
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// Flush implements [win.Device].
func (d *device) Flush(ctx context.Context) error {
	return d.call(ctx, win.CallFlush, func() error {
		if err := d.need(win.GenericWrite); err != nil {
			return err
		}
		if d.disk != nil { // nothing is kept back between a disk and its image
			return nil
		}
		if !d.volume.writable() {
			return win.ErrorWriteProtect
		}
		t, _, err := d.volume.content()
		if err == win.ErrorUnrecognizedVolume {
			return nil
		}
		if err != nil {
			return err
		}
		t.fs.Flush()
		return nil
	})
}

// ReenumerateDevice is CM_Reenumerate_DevNode(SYNCHRONOUS) of the device behind an
// interface, or of the root with "": adapters find disks that need it, and disks
// read their capacity again.
func (s *System) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return s.call(ctx, Call{win.CallReenumerateDevice, interfacePath}, func() error {
		below := func(d *drive) bool {
			return interfacePath == "" || strings.EqualFold(interfacePath, d.interfacePath()) ||
				strings.EqualFold(interfacePath, portInterface(d.Spec.SCSI.PortNumber))
		}
		isPort := slices.ContainsFunc(s.disks.ports(), func(port byte) bool {
			return strings.EqualFold(interfacePath, portInterface(port))
		})
		if _, isDisk := s.findDisk(interfacePath); interfacePath != "" && !isPort && !isDisk {
			return win.ErrorNotFound
		}
		for d := range s.disks.all() {
			if !below(d) {
				continue
			}
			switch {
			case d.State == DiskAttached && !d.Arriving:
				s.diskArrivesLater(d)
			case d.present() && d.Seen != d.Size && !s.node.Settings.GrownUnseen:
				d.Seen = d.Size
				d.touch()
			}
		}
		return nil
	})
}
