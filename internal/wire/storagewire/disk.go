// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storagewire turns the words of package storage into messages of the API and back,
// for both ends of a call.
package storagewire

import (
	"math"

	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/wire"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// FromSelector returns the message for a selector.
func FromSelector(s storage.Selector) *storagev1alpha1.DiskSelector {
	m := &storagev1alpha1.DiskSelector{
		SerialNumber: s.SerialNumber, Identifier: s.Identifier,
		Adapter: s.Adapter, Port: s.Port, Lun: s.LUN, AzureLun: s.AzureLUN,
		Vendor: s.Vendor, Product: s.Product, NvmeNamespace: s.NVMeNamespace,
	}
	if s.Number != nil {
		m.Number = proto.Uint32(uint32(*s.Number))
	}
	if s.ISCSI != nil {
		m.Iscsi = &storagev1alpha1.ISCSISelector{
			PortalAddress: s.ISCSI.Portal.Address, PortalPort: uint32(s.ISCSI.Portal.Port),
			Iqn: string(s.ISCSI.IQN), Lun: s.ISCSI.LUN,
		}
	}
	return m
}

// ToSelector returns the selector in a message, which may be nil. A port that isn't one is
// csiproxy.ErrInvalidArgument.
func ToSelector(m *storagev1alpha1.DiskSelector) (storage.Selector, error) {
	s := storage.Selector{
		SerialNumber: m.GetSerialNumber(), Identifier: m.GetIdentifier(),
		Vendor: m.GetVendor(), Product: m.GetProduct(), NVMeNamespace: m.GetNvmeNamespace(),
	}
	if m != nil && m.Number != nil {
		number := disk.Number(*m.Number)
		s.Number = &number
	}
	if m != nil {
		s.Adapter, s.Port, s.LUN, s.AzureLUN = m.Adapter, m.Port, m.Lun, m.AzureLun
	}
	if t := m.GetIscsi(); t != nil {
		if t.PortalPort > math.MaxUint16 {
			return s, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%d is no TCP port", t.PortalPort)
		}
		s.ISCSI = &storage.ISCSISelector{
			Portal: iscsi.Portal{Address: t.PortalAddress, Port: uint16(t.PortalPort)}, IQN: iscsi.IQN(t.Iqn), LUN: t.Lun,
		}
	}
	return s, nil
}

// FromDisk returns the message for a disk.
func FromDisk(d storage.Disk) *storagev1alpha1.Disk {
	m := &storagev1alpha1.Disk{
		Number: uint32(d.Number), SizeBytes: d.SizeBytes, SerialNumber: wire.ValidText(d.SerialNumber),
		Vendor: wire.ValidText(d.Vendor), Product: wire.ValidText(d.Product), Bus: string(d.Bus),
		Location: wire.ValidText(d.Location.Text), NvmeNamespace: d.Location.NVMeNamespace,
		Online: d.Online, ReadOnly: d.ReadOnly, OfflineReason: wire.ValidText(d.OfflineReason),
		PartitionStyle: string(d.Style), DiskId: d.DiskID, SystemReason: wire.ValidText(d.SystemReason),
		Error: wire.ValidText(d.Error),
	}
	for _, id := range d.Identifiers {
		m.Identifiers = append(m.Identifiers,
			&storagev1alpha1.Identifier{Kind: string(id.Kind), Text: wire.ValidText(id.Text)})
	}
	if a := d.Location.SCSI; a != nil {
		m.ScsiAddress = &storagev1alpha1.SCSIAddress{Adapter: uint32(a.Adapter), Port: uint32(a.Port),
			Target: uint32(a.Target), Lun: uint32(a.LUN)}
	}
	if d.ISCSI != nil {
		m.IscsiIqn, m.IscsiLun = wire.ValidText(string(d.ISCSI.IQN)), d.ISCSI.LUN
	}
	for _, p := range d.Partitions {
		message := &storagev1alpha1.Partition{
			Number: p.Number, OffsetBytes: p.OffsetBytes, SizeBytes: p.SizeBytes, Data: p.Data,
			VolumeId: string(p.VolumeID), FileSystem: wire.ValidText(p.FileSystem), Label: wire.ValidText(p.Label),
			Error: wire.ValidText(p.Error),
		}
		for _, path := range p.Paths {
			message.Paths = append(message.Paths, wire.ValidText(path))
		}
		m.Partitions = append(m.Partitions, message)
	}
	return m
}

// ToDisk returns the disk in a message.
func ToDisk(m *storagev1alpha1.Disk) storage.Disk {
	d := storage.Disk{
		Number: disk.Number(m.GetNumber()), SizeBytes: m.GetSizeBytes(), SerialNumber: m.GetSerialNumber(),
		Vendor: m.GetVendor(), Product: m.GetProduct(), Bus: storage.Bus(m.GetBus()),
		Location: storage.Location{Text: m.GetLocation(), NVMeNamespace: m.GetNvmeNamespace()},
		Online:   m.GetOnline(), ReadOnly: m.GetReadOnly(), OfflineReason: m.GetOfflineReason(),
		Style: storage.PartitionStyle(m.GetPartitionStyle()), DiskID: m.GetDiskId(), SystemReason: m.GetSystemReason(),
		Error: m.GetError(),
	}
	for _, id := range m.GetIdentifiers() {
		d.Identifiers = append(d.Identifiers, storage.Identifier{Kind: storage.IdentifierKind(id.Kind), Text: id.Text})
	}
	if a := m.GetScsiAddress(); a != nil {
		d.Location.SCSI = &storage.SCSIAddress{Adapter: uint8(a.Adapter), Port: uint8(a.Port),
			Target: uint8(a.Target), LUN: uint8(a.Lun)}
	}
	if m.GetIscsiIqn() != "" {
		d.ISCSI = &storage.ISCSILUN{IQN: iscsi.IQN(m.IscsiIqn), LUN: m.IscsiLun}
	}
	for _, p := range m.GetPartitions() {
		d.Partitions = append(d.Partitions, storage.Partition{
			Number: p.Number, OffsetBytes: p.OffsetBytes, SizeBytes: p.SizeBytes, Data: p.Data,
			VolumeID: volume.ID(p.VolumeId), FileSystem: p.FileSystem, Label: p.Label, Paths: p.Paths, Error: p.Error,
		})
	}
	return d
}
