// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"encoding/binary"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// errorBadLength is ERROR_BAD_LENGTH: an input is too short (STATUS_INFO_LENGTH_MISMATCH).
const errorBadLength winerr.Errno = 24

// Control is DeviceIoControl on a disk.
func (m *Manager) Control(d *Disk, code win.IoctlCode, in, out []byte) (int, error) {
	switch code {
	case win.IoctlStorageGetDeviceNumber:
		n := win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: d.Number, PartitionNumber: 0}
		return Reply(out, n.Encode())
	case win.IoctlStorageQueryProperty:
		return m.queryProperty(d, in, out)
	case win.IoctlScsiGetAddress:
		if d.Spec.SCSIAddressError != 0 {
			return 0, d.Spec.SCSIAddressError
		}
		return Reply(out, d.Spec.SCSI.Encode())
	case win.IoctlDiskGetDriveGeometryEx:
		return Reply(out, d.Geometry().Encode())
	case win.IoctlDiskGetLengthInfo:
		// The driver reads the capacity at each call; for the geometry of a fixed disk it doesn't.
		//
		// Source: https://github.com/microsoft/Windows-driver-samples/blob/main/storage/class/disk/src/disk.c
		// (DiskIoctlGetLengthInfo, DiskIoctlGetDriveGeometryEx)
		d.readCapacity()
		return Reply(out, win.EncodeInt64(d.Seen))
	case win.IoctlDiskGetDriveLayoutEx:
		l := d.Layout()
		if how := m.config.Settings.OfflineLayout; d.Is(win.DiskOffline) && how != settings.OfflineShown {
			if how == settings.OfflineNotReady {
				return 0, winerr.ErrorNotReady
			}
			l = &win.DriveLayout{Style: win.StyleRAW}
		}
		if l.Style == win.StyleRAW {
			switch m.config.Settings.BlankDisk {
			case settings.BlankMBR:
				l.Style = win.StyleMBR
			case settings.BlankRefused:
				return 0, winerr.ErrorInvalidFunction
			}
		}
		return Reply(out, l.Encode())
	case win.IoctlDiskIsWritable:
		if !d.Writable() {
			return 0, winerr.ErrorWriteProtect
		}
		return 0, nil
	case win.IoctlDiskGetDiskAttributes:
		return Reply(out, win.EncodeGetDiskAttributes(d.Attributes))
	case win.IoctlDiskSetDiskAttributes:
		a, err := win.DecodeSetDiskAttributes(in)
		if err != nil {
			return 0, winerr.ErrorInvalidParameter
		}
		if err := m.config.Settings.Refused(d.justCame); err != nil {
			return 0, err
		}
		wasOffline := d.Is(win.DiskOffline)
		if m.config.Settings.OfflineRefusesLocked && !wasOffline && a.Mask&a.Attributes&win.DiskOffline != 0 &&
			m.Volumes.HasLocked(d) {
			return 0, winerr.ErrorAccessDenied
		}
		if err := m.setAttributes(d, a); err != nil {
			return 0, err
		}
		if d.fresh && wasOffline && !d.Is(win.DiskOffline) && m.config.Settings.OfflineAfterArrival {
			m.node.Later(m.config.VolumeArrival/2, func() { // before its volumes come
				if d.Present() {
					d.Attributes |= win.DiskOffline
					d.touch()
					m.Volumes.Scan(d)
				}
			})
		}
		d.fresh = false
		return 0, nil
	case win.IoctlDiskUpdateProperties: // the table is read from the disk at each call
		return 0, nil
	case win.IoctlDiskUpdateDriveSize:
		if len(out) < win.DiskGeometrySize {
			return 0, winerr.ErrorInsufficientBuffer
		}
		if err := d.updateSize(); err != nil {
			return 0, err
		}
		return copy(out, d.Geometry().Encode()[:win.DiskGeometrySize]), nil
	case win.IoctlDiskCreateDisk, win.IoctlDiskSetDriveLayoutEx, win.IoctlDiskGrowPartition:
		return 0, m.changeTable(d, code, in)
	}
	return 0, winerr.ErrorInvalidFunction
}

// changeTable is the ioctls that write the partition table.
func (m *Manager) changeTable(d *Disk, code win.IoctlCode, in []byte) error {
	var change func() error
	switch code {
	case win.IoctlDiskCreateDisk:
		c, err := win.DecodeCreateDisk(in)
		if err != nil {
			return winerr.ErrorInvalidParameter
		}
		change = func() error { return d.createTable(c, m.config.Settings.AutomaticMSR) }
	case win.IoctlDiskSetDriveLayoutEx:
		l, err := win.DecodeDriveLayout(in)
		if err != nil {
			return winerr.ErrorInvalidParameter
		}
		change = func() error { return d.SetLayout(l) }
	case win.IoctlDiskGrowPartition:
		g, err := win.DecodeGrowPartition(in)
		if err != nil {
			return winerr.ErrorInsufficientBuffer
		}
		change = func() error { return d.growPartition(g, m.config.Settings.GrowTooFar) }
	}
	switch {
	// That a table can be replaced while its disk is offline is a guess: diskpart gives
	// such a disk new ids.
	case d.Is(win.DiskReadOnly), d.Is(win.DiskOffline) && code != win.IoctlDiskSetDriveLayoutEx:
		return winerr.ErrorWriteProtect
	case d.System && code != win.IoctlDiskGrowPartition: // Windows doesn't saw off its branch
		return winerr.ErrorAccessDenied
	}
	if err := change(); err != nil {
		return err
	}
	m.Volumes.Scan(d)
	return nil
}

// setAttributes is IOCTL_DISK_SET_DISK_ATTRIBUTES.
//
// Guess: the disk that Windows runs from can't be made offline or read-only, with error 5,
// and an attribute that nobody knows gives error 87.
func (m *Manager) setAttributes(d *Disk, a win.SetDiskAttributes) error {
	const known = win.DiskOffline | win.DiskReadOnly
	switch {
	case a.Mask&^known != 0 || a.Attributes&^known != 0:
		return winerr.ErrorInvalidParameter
	case d.System && a.Attributes&a.Mask != 0:
		return winerr.ErrorAccessDenied
	}
	wasOffline, wasReadOnly := d.Is(win.DiskOffline), d.Is(win.DiskReadOnly)
	set := func(old win.DiskAttributes) win.DiskAttributes { return old&^a.Mask | a.Attributes&a.Mask }
	d.Attributes = set(d.Attributes)
	if a.Persist {
		d.Persistent = set(d.Persistent)
		if m.config.Settings.AttributesOfInstance {
			if m.Instances == nil {
				m.Instances = map[string]win.DiskAttributes{}
			}
			m.Instances[d.instance()] = d.Persistent
			m.node.KeptChanged()
		}
	}
	d.MountedReadOnly = !wasOffline && !d.Is(win.DiskOffline|win.DiskReadOnly) &&
		(d.MountedReadOnly || wasReadOnly && m.config.Settings.ReadOnlyMounts)
	switch isOffline := d.Is(win.DiskOffline); {
	case isOffline && !wasOffline:
		d.OfflineReason = win.OfflinePolicy
	case wasOffline && !isOffline:
		d.OfflineReason = win.OfflineUnknown
		// Guess: a clone that Windows gives no new ids goes offline again a moment later.
		if !m.giveNewIDs(d) {
			m.node.Later(m.config.VolumeArrival, func() { m.settleClone(d) })
		}
	}
	d.touch()
	m.Volumes.Scan(d)
	return nil
}

// Geometry is what IOCTL_DISK_GET_DRIVE_GEOMETRY_EX says.
func (d *Disk) Geometry() win.DiskGeometryEx {
	return win.DiskGeometryEx{BytesPerSector: d.Spec.SectorSize, DiskSize: d.Seen}
}

// queryProperty is IOCTL_STORAGE_QUERY_PROPERTY. As much of the answer is given
// as fits: its header tells how much there is.
func (m *Manager) queryProperty(d *Disk, in, out []byte) (int, error) {
	id, err := win.DecodePropertyQuery(in)
	if err != nil || len(in) < len(win.EncodePropertyQuery(id)) {
		return 0, errorBadLength
	}
	var fault winerr.Errno
	var answer []byte
	switch id {
	case win.PropertyDevice:
		answer = win.DeviceDescriptor{
			BusType: d.Spec.BusType, VendorID: d.Spec.VendorID, ProductID: d.Spec.ProductID, Revision: d.Spec.Revision,
			SerialNumber: serial(d.Spec),
		}.Encode()
	case win.PropertyDeviceID:
		fault, answer = d.Spec.Page83Error, win.EncodeDeviceIDs(d.Spec.Page83)
	case win.PropertyAccessAlignment:
		answer = d.alignment()
	case win.PropertyDeviceLocation:
		a := d.Spec.SCSI
		fault, answer = d.Spec.LocationError, win.DeviceLocation{
			Adapter: uint32(a.PortNumber), Port: uint32(a.PathID), Target: uint32(a.TargetID), LUN: uint32(a.LUN),
			Text: d.Spec.Location,
		}.Encode()
	case win.PropertyProtocolSpecific:
		answer, err = m.namespace(d, in)
		if err != nil {
			return 0, err
		}
		return Reply(out, answer)
	default:
		fault = winerr.ErrorInvalidFunction
	}
	const headerSize = 8
	switch {
	case fault != 0:
		return 0, fault
	case len(out) < headerSize:
		return 0, winerr.ErrorInsufficientBuffer
	}
	return copy(out, answer), nil
}

// namespace is the query for an NVMe namespace.
func (m *Manager) namespace(d *Disk, in []byte) ([]byte, error) {
	id, err := win.DecodeNVMeNamespaceQuery(in)
	switch {
	case d.Spec.NVMeError != 0:
		return nil, d.Spec.NVMeError
	case d.Spec.NVMe == nil, m.config.Settings.NoNVMeIdentify:
		return nil, winerr.ErrorInvalidFunction
	case err != nil || id != d.Spec.NVMe.Namespace:
		return nil, winerr.ErrorInvalidParameter
	}
	return win.EncodeNVMeNamespace(id, namespaceIDs(d.Spec.NVMe)), nil
}

// alignment is STORAGE_ACCESS_ALIGNMENT_DESCRIPTOR.
func (d *Disk) alignment() []byte {
	b := make([]byte, 28)
	binary.LittleEndian.PutUint32(b[0:], 28)
	binary.LittleEndian.PutUint32(b[4:], 28)
	binary.LittleEndian.PutUint32(b[16:], d.Spec.SectorSize)
	binary.LittleEndian.PutUint32(b[20:], 4096) // physical sector
	return b
}

// Reply copies an answer that the caller gets whole or not at all.
func Reply(out, answer []byte) (int, error) {
	if len(out) < len(answer) {
		return 0, winerr.ErrorInsufficientBuffer
	}
	return copy(out, answer), nil
}
