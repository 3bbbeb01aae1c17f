// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Hardware returns what each disk says of its hardware, as far as a selector looks at it, in
// the order of the disks' numbers. A disk that can't be asked, but whose number is known,
// has an Error. Nothing of what the disks hold is looked at.
func (d *Disks) Hardware(ctx context.Context, wanted storage.Selector) ([]storage.Disk, error) {
	identifiers, address := wanted.Identifier != "", looksAtAddress(wanted)
	question := fmt.Sprintf("hardware %v %v", identifiers, address)
	return d.each(ctx, question, func(ctx context.Context, n disk.Number, h device.Handle) (storage.Disk, error) {
		said, err := opendisk.AskHardware(ctx, h, identifiers)
		if err != nil {
			return storage.Disk{Number: n}, err
		}
		return d.hardware(ctx, n, h, said, address)
	})
}

// looksAtAddress reports whether a selector looks at a disk's SCSI address. The identifiers
// of an NVMe disk are asked for by its namespace, which the address tells.
func looksAtAddress(s storage.Selector) bool {
	return s.LUN != nil || s.NVMeNamespace != 0 || s.Identifier != ""
}

// Describe returns all that is known of each disk, as Hardware does.
func (d *Disks) Describe(ctx context.Context) ([]storage.Disk, error) {
	windows, err := d.options.SystemDisks.All(ctx)
	if err != nil {
		return nil, err
	}
	all, err := d.each(ctx, "description", func(ctx context.Context, n disk.Number, h device.Handle) (storage.Disk, error) {
		said, err := opendisk.AskHardware(ctx, h, true)
		if err != nil {
			return storage.Disk{Number: n}, err
		}
		s, err := d.hardware(ctx, n, h, said, true)
		if err != nil {
			return s, err
		}
		return s, d.contents(ctx, &s, h)
	})
	for i := range all {
		all[i].SystemReason = windows[all[i].Number]
	}
	explainOffline(all)
	return all, err
}

func (d *Disks) each(ctx context.Context, question string, ask func(context.Context, disk.Number, device.Handle) (storage.Disk, error)) ([]storage.Disk, error) {
	var all []storage.Disk
	err := eachDisk(ctx, d, question, d.visits.patience, ask,
		func(_ disk.Number, s storage.Disk) { all = append(all, s) },
		func(n disk.Number, why error) { all = append(all, storage.Disk{Number: n, Error: why.Error()}) })
	slices.SortFunc(all, func(a, b storage.Disk) int { return cmp.Compare(a.Number, b.Number) })
	return all, err
}

// HardwareOf is Hardware for an open disk.
func (d *Disks) HardwareOf(ctx context.Context, h *opendisk.Disk, wanted storage.Selector) (storage.Disk, error) {
	if wanted.Identifier != "" {
		if err := h.AskIdentifiers(ctx); err != nil {
			return storage.Disk{Number: h.Number}, err
		}
	}
	return d.hardware(ctx, h.Number, h.Handle, h.Hardware, looksAtAddress(wanted))
}

// hardware describes a disk by what it has said, and by its address if that is asked for.
func (d *Disks) hardware(ctx context.Context, n disk.Number, h device.Handle, said opendisk.Hardware, address bool) (storage.Disk, error) {
	s := storage.Disk{Number: n}
	descriptor := said.Descriptor
	if err := d.tolerate(n, "serial number", said.DescriptorErr); err != nil {
		return s, err
	}
	if said.DescriptorErr == nil {
		s.Bus = bus(descriptor.BusType)
	}
	if err := d.tolerate(n, "page 83", said.IdentifiersErr); err != nil {
		return s, err
	}
	s.SerialNumber = strings.Trim(descriptor.SerialNumber, " ")
	s.Vendor, s.Product = strings.TrimSpace(descriptor.VendorID), strings.TrimSpace(descriptor.ProductID)
	s.Identifiers = identifiers(descriptor.BusType, said.Identifiers)
	if !address {
		return s, nil
	}
	at, err := h.SCSIAddress(ctx)
	if err != nil {
		return s, d.tolerate(n, "SCSI address", err)
	}
	s.Location.SCSI = &storage.SCSIAddress{Port: at.PortNumber, Path: at.PathID, Target: at.TargetID, LUN: at.LUN}
	if descriptor.BusType == win.BusTypeNVMe {
		s.Location.NVMeNamespace = uint32(at.LUN) + 1 // see namespaceLocation
		return s, d.addNamespace(ctx, &s, h)
	}
	return s, nil
}

// addNamespace adds the identifiers of an NVMe namespace that aren't in page 83.
func (d *Disks) addNamespace(ctx context.Context, s *storage.Disk, h device.Handle) error {
	namespace, err := h.NVMeNamespace(ctx, s.Location.NVMeNamespace)
	if err != nil {
		return d.tolerate(s.Number, "NVMe namespace", err)
	}
	for _, id := range []struct {
		kind  storage.IdentifierKind
		bytes []byte
	}{{storage.EUI64, namespace.EUI64[:]}, {storage.NGUID, namespace.NGUID[:]}} {
		text := hex.EncodeToString(id.bytes)
		known := slices.ContainsFunc(s.Identifiers, func(known storage.Identifier) bool { return known.Text == text })
		if strings.Trim(text, "0") != "" && !known { // all zeros stand for none
			s.Identifiers = append(s.Identifiers, storage.Identifier{Kind: id.kind, Text: text})
		}
	}
	return nil
}

// identifiers returns the designators that name the disk itself.
func identifiers(busType win.BusType, ids []win.Identifier) (all []storage.Identifier) {
	for _, id := range ids {
		if id.Association != win.AssociationDevice {
			continue
		}
		text := hex.EncodeToString(id.ID)
		if id.CodeSet == win.CodeSetASCII || id.CodeSet == win.CodeSetUTF8 {
			text = strings.TrimRight(string(id.ID), "\x00 ")
		}
		all = append(all, storage.Identifier{Kind: kindOf(busType, id), Text: text})
	}
	return all
}

// kindOf names a designator type.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntddstor/ne-ntddstor-_storage_identifier_type
func kindOf(busType win.BusType, id win.Identifier) storage.IdentifierKind {
	switch id.Type {
	case win.IdentifierVendorSpecific:
		return storage.VendorSpecific
	case win.IdentifierT10:
		return storage.T10
	case win.IdentifierEUI64:
		if busType == win.BusTypeNVMe && len(id.ID) == 16 {
			return storage.NGUID
		}
		return storage.EUI64
	case win.IdentifierNAA:
		return storage.NAA
	case win.IdentifierSCSIName:
		return storage.SCSIName
	}
	return storage.OtherKind
}

// buses are the names of STORAGE_BUS_TYPE.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ne-winioctl-storage_bus_type
var buses = map[win.BusType]storage.Bus{
	1: storage.BusSCSI, 2: "ATAPI", 3: "ATA", 4: "1394", 5: "SSA", 6: "Fibre Channel", 7: "USB", 8: "RAID", 9: storage.BusISCSI,
	10: storage.BusSAS, 11: storage.BusSATA, 12: "SD", 13: "MMC", 14: "Virtual", 15: "File Backed Virtual", 16: "Storage Spaces",
	17: storage.BusNVMe, 18: "SCM", 19: "UFS",
}

func bus(t win.BusType) storage.Bus {
	if name, ok := buses[t]; ok {
		return name
	}
	return storage.Bus(fmt.Sprintf("bus type %d", t))
}

// contents fills in the size, the state and the partitions of a disk. What a sick disk
// refuses is noted as its Error.
func (d *Disks) contents(ctx context.Context, s *storage.Disk, h device.Handle) error {
	location, err := h.Location(ctx)
	if err := d.tolerate(s.Number, "location", err); err != nil {
		return err
	}
	s.Location.Text = location.Text
	geometry, err := h.Geometry(ctx)
	if err := noted(&s.Error, err); err != nil {
		return err
	}
	s.SizeBytes = geometry.DiskSize
	attributes, err := h.Attributes(ctx)
	if err := noted(&s.Error, err); err != nil {
		return err
	}
	s.Online, s.ReadOnly = err == nil && attributes&win.DiskOffline == 0, attributes&win.DiskReadOnly != 0
	layout, err := h.Layout(ctx)
	if err != nil {
		return noted(&s.Error, err)
	}
	switch layout.Style {
	case win.StyleGPT:
		s.Style, s.DiskID = storage.GPT, layout.DiskID.String()
	case win.StyleMBR:
		s.Style, s.DiskID = storage.MBR, fmt.Sprintf("%08x", layout.Signature)
	default:
		s.Style = storage.RAW
	}
	for _, p := range layout.Partitions {
		if p.Number == 0 || p.Length == 0 { // an entry of an MBR that isn't in use
			continue
		}
		described := storage.Partition{Number: p.Number, OffsetBytes: p.StartingOffset, SizeBytes: p.Length, Data: opendisk.IsDataPartition(p)}
		if described.Data && s.Online {
			if err := d.describeVolume(ctx, s.Number, &described); err != nil {
				return err
			}
		}
		s.Partitions = append(s.Partitions, described)
	}
	return nil
}

// describeVolume fills in what is on a partition.
func (d *Disks) describeVolume(ctx context.Context, n disk.Number, p *storage.Partition) error {
	name, err := d.sys.VolumeNameForMountPoint(ctx, device.PartitionPath(n, p.Number)+`\`)
	if errno, ok := errors.AsType[win.Errno](err); ok && errno.Gone() {
		p.Error = "its volume has not arrived"
		return nil
	}
	if err != nil {
		return noted(&p.Error, err)
	}
	p.VolumeID = volume.ID(name)
	if p.Paths, err = opendisk.MountedAt(ctx, d.sys, name); err != nil {
		if err := noted(&p.Error, err); err != nil {
			return err
		}
	}
	info, err := d.sys.VolumeInformation(ctx, name)
	if errors.Is(err, win.ErrorUnrecognizedVolume) {
		p.FileSystem = storage.NoFileSystem
		return nil
	}
	p.FileSystem, p.Label = info.FileSystem, info.Label
	return noted(&p.Error, err)
}

// noted keeps what Windows answers to a query that it refuses, and returns any other error.
func noted(note *string, err error) error {
	if _, refused := errors.AsType[win.Errno](err); !refused || isGone(err) {
		return err
	}
	if *note == "" {
		*note = err.Error()
	}
	return nil
}

// explainOffline fills in why disks are offline.
func explainOffline(all []storage.Disk) {
	for i := range all {
		d := &all[i]
		if d.Online || d.Error != "" {
			continue
		}
		d.OfflineReason = "by the SAN policy or by an administrator"
		for _, other := range all {
			if other.Online && d.DiskID != "" && other.DiskID == d.DiskID && other.Style == d.Style {
				d.OfflineReason = fmt.Sprintf("it is a copy of disk %d, which is online", other.Number)
			}
		}
	}
}
