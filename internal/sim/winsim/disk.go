// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// DiskSpec is the hardware of a disk.
type DiskSpec = hardware.Disk

// DeviceInterfaces is CM_Get_Device_Interface_List for present devices: disks,
// volumes or storage adapters.
func (s *System) DeviceInterfaces(ctx context.Context, class winid.GUID) ([]string, error) {
	return ask(ctx, s, Call{win.CallDeviceInterfaces, class.String()}, func() (paths []string, err error) {
		switch class {
		case win.InterfaceClassDisk:
			for d := range s.disks.All() {
				if d.Present() {
					paths = append(paths, d.InterfacePath())
				}
			}
		case win.InterfaceClassVolume:
			for _, v := range s.volumes.All() {
				paths = append(paths, v.InterfacePath())
			}
		case win.InterfaceClassStoragePort:
			for _, port := range s.disks.Ports() {
				paths = append(paths, disks.PortInterface(port))
			}
		}
		return paths, nil
	})
}

// ReenumerateDevice is CM_Reenumerate_DevNode(SYNCHRONOUS): [disks.Manager.Reenumerate].
func (s *System) ReenumerateDevice(ctx context.Context, interfacePath string) error {
	return s.call(ctx, Call{win.CallReenumerateDevice, interfacePath}, func() error {
		return s.disks.Reenumerate(interfacePath)
	})
}

// The calls below are what the cloud and the administrator do to disks. Each is that of
// [disks.Manager], under the node's lock.

// Disks lists all disks.
func (s *System) Disks() []disks.Record { return look(s, s.disks.Records) }

// AttachDisk attaches a disk.
func (s *System) AttachDisk(spec DiskSpec) (number csiproxy.DiskNumber, err error) {
	err = s.control(func() error { number, err = s.disks.Attach(spec); return err })
	return number, err
}

// CloneDisk attaches a new disk with the contents of another one.
func (s *System) CloneDisk(of csiproxy.DiskNumber, spec DiskSpec) (number csiproxy.DiskNumber, err error) {
	err = s.control(func() error { number, err = s.disks.Clone(of, spec); return err })
	return number, err
}

// SwapDisk puts another disk in the place of an attached one.
func (s *System) SwapDisk(number csiproxy.DiskNumber, spec DiskSpec, keepHandles bool) error {
	return s.control(func() error { return s.disks.Swap(number, spec, keepHandles) })
}

// SetOfflineReason takes a disk offline as Windows does by itself, for a reason.
func (s *System) SetOfflineReason(number csiproxy.DiskNumber, reason win.OfflineReason) error {
	return s.control(func() error { return s.disks.SetOfflineReason(number, reason) })
}

// DetachDisk pulls a disk out, even while it is in use.
func (s *System) DetachDisk(number csiproxy.DiskNumber) error {
	return s.control(func() error { return s.disks.Detach(number) })
}

// DeleteDisk deletes a detached disk with its data.
func (s *System) DeleteDisk(serial string) error {
	return s.control(func() error { return s.disks.Delete(serial) })
}

// TakeDisk moves a detached disk to a file, for another node.
func (s *System) TakeDisk(serial, file string) error {
	return s.control(func() error { return s.disks.Take(serial, file) })
}

// GiveDisk gives the node the disk in a file of TakeDisk.
func (s *System) GiveDisk(file string) error {
	return s.control(func() error { return s.disks.Give(file) })
}

// GrowDisk gives a disk more capacity.
func (s *System) GrowDisk(number csiproxy.DiskNumber, sizeBytes int64) error {
	return s.control(func() error { return s.disks.Grow(number, sizeBytes) })
}

// SetDiskAttributes changes attributes of a disk as an administrator does.
func (s *System) SetDiskAttributes(number csiproxy.DiskNumber, a win.SetDiskAttributes) error {
	return s.control(func() error { return s.disks.SetAttributes(number, a) })
}

// ReadImage reads bytes of a disk below Windows.
func (s *System) ReadImage(number csiproxy.DiskNumber, p []byte, off int64) error {
	return s.control(func() error { return s.disks.ReadImage(number, p, off) })
}

// WriteImage writes bytes of a disk below Windows.
func (s *System) WriteImage(number csiproxy.DiskNumber, p []byte, off int64) error {
	return s.control(func() error { return s.disks.WriteImage(number, p, off) })
}

// ExportImage writes the bytes of a disk to a new sparse file.
func (s *System) ExportImage(number csiproxy.DiskNumber, file string) error {
	return s.control(func() error { return s.disks.ExportImage(number, file) })
}
