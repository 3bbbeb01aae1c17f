// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"bytes"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// FileDeviceDisk is the DeviceType of a disk or of a volume on a disk.
const FileDeviceDisk = 7

// NoNumber stands in a DeviceNumber for a missing number: the disk number of a path below a
// multipath disk, or the partition number of a device other than a partition.
const NoNumber = 0xFFFFFFFF

// DeviceNumber is STORAGE_DEVICE_NUMBER: 12 bytes.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-storage_device_number
type DeviceNumber struct {
	DeviceType      uint32
	DeviceNumber    csiproxy.DiskNumber
	PartitionNumber uint32
}

// Encode returns the bytes of the structure.
func (n DeviceNumber) Encode() []byte {
	b := make([]byte, 12)
	le.PutUint32(b[0:], n.DeviceType)
	le.PutUint32(b[4:], uint32(n.DeviceNumber))
	le.PutUint32(b[8:], n.PartitionNumber)
	return b
}

// DecodeDeviceNumber reads the output of IoctlStorageGetDeviceNumber.
func DecodeDeviceNumber(b []byte) (DeviceNumber, error) {
	if err := need("STORAGE_DEVICE_NUMBER", b, 12); err != nil {
		return DeviceNumber{}, err
	}
	return DeviceNumber{le.Uint32(b), csiproxy.DiskNumber(le.Uint32(b[4:])), le.Uint32(b[8:])}, nil
}

// PropertyID is STORAGE_PROPERTY_ID. The numbering has gaps.
type PropertyID uint32

// Storage properties.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ne-winioctl-storage_property_id
const (
	PropertyDevice          PropertyID = 0 // StorageDeviceProperty
	PropertyDeviceID        PropertyID = 2 // StorageDeviceIdProperty: VPD page 0x83
	PropertyAccessAlignment PropertyID = 6 // StorageAccessAlignmentProperty
	// PropertyProtocolSpecific is StorageDeviceProtocolSpecificProperty, with a query of its own:
	// [EncodeNVMeNamespaceQuery].
	PropertyProtocolSpecific PropertyID = 50
	PropertyDeviceLocation   PropertyID = 58 // StorageDeviceLocationProperty
)

// EncodePropertyQuery returns a STORAGE_PROPERTY_QUERY (12 bytes) of type
// PropertyStandardQuery.
func EncodePropertyQuery(id PropertyID) []byte {
	b := make([]byte, 12)
	le.PutUint32(b, uint32(id))
	return b
}

// DecodePropertyQuery reads the input of IoctlStorageQueryProperty. A query type
// other than PropertyStandardQuery is an error.
func DecodePropertyQuery(b []byte) (PropertyID, error) {
	if err := need("STORAGE_PROPERTY_QUERY", b, 8); err != nil {
		return 0, err
	}
	if queryType := le.Uint32(b[4:]); queryType != 0 {
		return 0, fmt.Errorf("STORAGE_PROPERTY_QUERY: query type %d is not PropertyStandardQuery", queryType)
	}
	return PropertyID(le.Uint32(b)), nil
}

// DescriptorSize reads the Size field at the start of every storage property
// (STORAGE_DESCRIPTOR_HEADER): the size of the whole property, in bytes.
func DescriptorSize(b []byte) (uint32, error) {
	if err := need("STORAGE_DESCRIPTOR_HEADER", b, 8); err != nil {
		return 0, err
	}
	return le.Uint32(b[4:]), nil
}

// descriptor cuts b to the size in its header.
func descriptor(what string, b []byte, minimum int) ([]byte, error) {
	if err := need(what, b, minimum); err != nil {
		return nil, err
	}
	size := le.Uint32(b[4:])
	if int64(size) < int64(minimum) || int64(size) > int64(len(b)) {
		return nil, fmt.Errorf("%s: its size %d is not within %d to %d bytes", what, size, minimum, len(b))
	}
	return b[:size], nil
}

// stringAt reads a NUL-ended ASCII string at an offset from the start of b. The offsets 0 and
// 0xFFFFFFFF mean a missing string. An offset outside b counts as missing too: a faulty driver may
// give one, and the rest of its answer is still right.
func stringAt(b []byte, offset uint32) string {
	if offset == 0 || int64(offset) >= int64(len(b)) {
		return ""
	}
	s, _, _ := bytes.Cut(b[offset:], []byte{0})
	return string(s)
}

// BusType is STORAGE_BUS_TYPE.
type BusType uint32

// Bus types.
const (
	BusTypeSCSI              BusType = 1
	BusTypeATAPI             BusType = 2
	BusTypeATA               BusType = 3
	BusTypeISCSI             BusType = 9
	BusTypeSAS               BusType = 10
	BusTypeFileBackedVirtual BusType = 15
	BusTypeNVMe              BusType = 17
)

// DeviceDescriptor is the used part of STORAGE_DEVICE_DESCRIPTOR. The fixed part takes 36 bytes.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-storage_device_descriptor
type DeviceDescriptor struct {
	BusType      BusType
	VendorID     string
	ProductID    string
	Revision     string
	SerialNumber string // with the blanks that the device puts around it
}

// Encode returns the bytes of the structure.
func (d DeviceDescriptor) Encode() []byte {
	b := make([]byte, 36)
	le.PutUint32(b[0:], 40) // sizeof, with the tail RawDeviceProperties[1]
	le.PutUint32(b[28:], uint32(d.BusType))
	for _, f := range d.strings() {
		if *f.value != "" {
			le.PutUint32(b[f.offset:], uint32(len(b)))
			b = append(append(b, *f.value...), 0)
		}
	}
	b = append(b, make([]byte, max(0, 40-len(b)))...)
	le.PutUint32(b[4:], uint32(len(b)))
	return b
}

// DecodeDeviceDescriptor reads the property PropertyDevice.
func DecodeDeviceDescriptor(b []byte) (DeviceDescriptor, error) {
	const what = "STORAGE_DEVICE_DESCRIPTOR"
	b, err := descriptor(what, b, 36)
	if err != nil {
		return DeviceDescriptor{}, err
	}
	descriptor := DeviceDescriptor{BusType: BusType(le.Uint32(b[28:]))}
	for _, f := range descriptor.strings() {
		*f.value = stringAt(b, le.Uint32(b[f.offset:]))
	}
	return descriptor, nil
}

type stringField struct {
	offset int // of the field that holds the string's offset
	value  *string
}

func (d *DeviceDescriptor) strings() []stringField {
	return []stringField{{12, &d.VendorID}, {16, &d.ProductID}, {20, &d.Revision}, {24, &d.SerialNumber}}
}

// CodeSet is STORAGE_IDENTIFIER_CODE_SET.
type CodeSet uint32

// Code sets.
const (
	CodeSetBinary CodeSet = 1
	CodeSetASCII  CodeSet = 2
	CodeSetUTF8   CodeSet = 3
)

// IdentifierType is STORAGE_IDENTIFIER_TYPE: the form of an identifier.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntddstor/ne-ntddstor-_storage_identifier_type
type IdentifierType uint32

// Identifier types, with the names of SPC-3; Windows' names are older.
const (
	IdentifierVendorSpecific IdentifierType = 0
	IdentifierT10            IdentifierType = 1 // T10 vendor id, then the vendor's own text
	IdentifierEUI64          IdentifierType = 2 // 8, 12 or 16 bytes; NVMe's EUI-64 and NGUID have this form
	IdentifierNAA            IdentifierType = 3 // 8 or 16 bytes; StorageIdTypeFCPHName
	IdentifierSCSIName       IdentifierType = 8 // such as eui.…, naa.… or an IQN, in UTF-8
)

// Association is STORAGE_ASSOCIATION_TYPE: the thing named by an identifier.
type Association uint32

// Associations.
const (
	AssociationDevice Association = 0
	AssociationPort   Association = 1
	AssociationTarget Association = 2
)

// Identifier is STORAGE_IDENTIFIER: one designator of VPD page 0x83.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntddstor/ns-ntddstor-storage_identifier
type Identifier struct {
	CodeSet     CodeSet
	Type        IdentifierType
	Association Association
	ID          []byte
}

// identifierHeader is the offset of the identifier's bytes. sizeof is 20 in C and must never be
// used for stepping.
const identifierHeader = 16

// EncodeDeviceIDs returns a STORAGE_DEVICE_ID_DESCRIPTOR.
func EncodeDeviceIDs(ids []Identifier) []byte {
	b := make([]byte, 12)
	le.PutUint32(b[0:], 16) // sizeof in C: with the tail Identifiers[1] and padding
	le.PutUint32(b[8:], uint32(len(ids)))
	for i, id := range ids {
		e := make([]byte, (identifierHeader+len(id.ID)+3)&^3) // each begins on 4 bytes
		le.PutUint32(e[0:], uint32(id.CodeSet))
		le.PutUint32(e[4:], uint32(id.Type))
		le.PutUint16(e[8:], uint16(len(id.ID)))
		if i < len(ids)-1 {
			le.PutUint16(e[10:], uint16(len(e)))
		}
		le.PutUint32(e[12:], uint32(id.Association))
		copy(e[identifierHeader:], id.ID)
		b = append(b, e...)
	}
	le.PutUint32(b[4:], uint32(len(b)))
	return b
}

// DecodeDeviceIDs reads the property PropertyDeviceID.
func DecodeDeviceIDs(b []byte) ([]Identifier, error) {
	const what = "STORAGE_DEVICE_ID_DESCRIPTOR"
	b, err := descriptor(what, b, 12)
	if err != nil {
		return nil, err
	}
	var ids []Identifier
	rest := b[12:]
	for i := range le.Uint32(b[8:]) {
		if len(rest) < identifierHeader {
			return nil, fmt.Errorf("%s: identifier %d is cut off", what, i)
		}
		size, next := int(le.Uint16(rest[8:])), int(le.Uint16(rest[10:]))
		if size > len(rest)-identifierHeader {
			return nil, fmt.Errorf("%s: identifier %d of %d bytes is cut off", what, i, size)
		}
		ids = append(ids, Identifier{
			CodeSet:     CodeSet(le.Uint32(rest)),
			Type:        IdentifierType(le.Uint32(rest[4:])),
			Association: Association(le.Uint32(rest[12:])),
			ID:          bytes.Clone(rest[identifierHeader : identifierHeader+size]),
		})
		if next == 0 {
			break
		}
		if next < identifierHeader+size || next > len(rest) {
			return nil, fmt.Errorf("%s: identifier %d has the bad next offset %d", what, i, next)
		}
		rest = rest[next:]
	}
	return ids, nil
}

// DeviceLocation is the used part of STORAGE_DEVICE_LOCATION_DESCRIPTOR: the text at its
// StringOffset, such as "PCI Slot 3 : Adapter 0 : Port 0 : Target 1 : LUN 0".
type DeviceLocation struct {
	Adapter, Port, Target, LUN uint32
	Text                       string
}

// locationSize is the size in bytes of the fixed part.
const locationSize = 36

// Encode returns the bytes of the structure.
func (l DeviceLocation) Encode() []byte {
	b := make([]byte, locationSize)
	le.PutUint32(b[0:], locationSize)
	le.PutUint32(b[16:], l.Adapter)
	le.PutUint32(b[20:], l.Port)
	le.PutUint32(b[24:], l.Target)
	le.PutUint32(b[28:], l.LUN)
	if l.Text != "" {
		le.PutUint32(b[32:], uint32(len(b)))
		b = append(append(b, l.Text...), 0)
	}
	le.PutUint32(b[4:], uint32(len(b)))
	return b
}

// DecodeDeviceLocation reads the property PropertyDeviceLocation.
func DecodeDeviceLocation(b []byte) (DeviceLocation, error) {
	const what = "STORAGE_DEVICE_LOCATION_DESCRIPTOR"
	b, err := descriptor(what, b, locationSize)
	if err != nil {
		return DeviceLocation{}, err
	}
	text := stringAt(b, le.Uint32(b[32:]))
	return DeviceLocation{le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:]), text}, nil
}

// SCSIAddress is SCSI_ADDRESS: 8 bytes.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntddscsi/ns-ntddscsi-_scsi_address
type SCSIAddress struct {
	PortNumber, PathID, TargetID, LUN byte
}

// Encode returns the bytes of the structure.
func (a SCSIAddress) Encode() []byte {
	b := make([]byte, 8)
	le.PutUint32(b, 8)
	b[4], b[5], b[6], b[7] = a.PortNumber, a.PathID, a.TargetID, a.LUN
	return b
}

// DecodeSCSIAddress reads the output of IoctlScsiGetAddress.
func DecodeSCSIAddress(b []byte) (SCSIAddress, error) {
	if err := need("SCSI_ADDRESS", b, 8); err != nil {
		return SCSIAddress{}, err
	}
	return SCSIAddress{b[4], b[5], b[6], b[7]}, nil
}

// DiskGeometryEx is the part of DISK_GEOMETRY_EX (40 bytes) still in use.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-disk_geometry_ex
type DiskGeometryEx struct {
	BytesPerSector uint32
	DiskSize       int64 // bytes
}

// DiskGeometrySize is the size of DISK_GEOMETRY. The output buffer of
// IoctlDiskUpdateDriveSize must be at least as large.
const DiskGeometrySize = 24

// Encode returns the bytes of the structure.
func (g DiskGeometryEx) Encode() []byte {
	b := make([]byte, 40)
	const heads, sectors = 255, 63 // the geometry that disks have claimed since the 1990s
	le.PutUint64(b[0:], uint64(g.DiskSize)/uint64(max(g.BytesPerSector, 1))/heads/sectors)
	le.PutUint32(b[8:], 12) // MEDIA_TYPE FixedMedia
	le.PutUint32(b[12:], heads)
	le.PutUint32(b[16:], sectors)
	le.PutUint32(b[20:], g.BytesPerSector)
	le.PutUint64(b[24:], uint64(g.DiskSize))
	return b
}

// DecodeDiskGeometryEx reads the output of IoctlDiskGetDriveGeometryEx.
func DecodeDiskGeometryEx(b []byte) (DiskGeometryEx, error) {
	if err := need("DISK_GEOMETRY_EX", b, 32); err != nil {
		return DiskGeometryEx{}, err
	}
	return DiskGeometryEx{le.Uint32(b[20:]), int64(le.Uint64(b[24:]))}, nil
}

// DiskAttributes are DISK_ATTRIBUTE_* bits.
type DiskAttributes uint64

// Disk attributes.
const (
	DiskOffline  DiskAttributes = 1
	DiskReadOnly DiskAttributes = 2
)

// EncodeGetDiskAttributes returns a GET_DISK_ATTRIBUTES (16 bytes).
func EncodeGetDiskAttributes(a DiskAttributes) []byte {
	b := make([]byte, 16)
	le.PutUint32(b, 16)
	le.PutUint64(b[8:], uint64(a))
	return b
}

// DecodeGetDiskAttributes reads the output of IoctlDiskGetDiskAttributes.
func DecodeGetDiskAttributes(b []byte) (DiskAttributes, error) {
	if err := need("GET_DISK_ATTRIBUTES", b, 16); err != nil {
		return 0, err
	}
	return DiskAttributes(le.Uint64(b[8:])), nil
}

// SetDiskAttributes is SET_DISK_ATTRIBUTES: 40 bytes.
//
// Version is the size of the structure. The documentation says sizeof(GET_DISK_ATTRIBUTES), 16;
// public code used on Windows sets the size of SET_DISK_ATTRIBUTES, 40 (rafawo/virtdisk-rs,
// Disk::force_online).
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/ns-winioctl-set_disk_attributes
type SetDiskAttributes struct {
	Persist    bool // keep the change after a restart of the node
	Attributes DiskAttributes
	Mask       DiskAttributes // which of them to change
}

const setDiskAttributesSize = 40

// Encode returns the bytes of the structure.
func (s SetDiskAttributes) Encode() []byte {
	b := make([]byte, setDiskAttributesSize)
	le.PutUint32(b, setDiskAttributesSize)
	b[4] = boolByte(s.Persist)
	le.PutUint64(b[8:], uint64(s.Attributes))
	le.PutUint64(b[16:], uint64(s.Mask))
	return b
}

// DecodeSetDiskAttributes reads the input of IoctlDiskSetDiskAttributes.
func DecodeSetDiskAttributes(b []byte) (SetDiskAttributes, error) {
	if err := need("SET_DISK_ATTRIBUTES", b, setDiskAttributesSize); err != nil {
		return SetDiskAttributes{}, err
	}
	if version := le.Uint32(b); version != setDiskAttributesSize {
		return SetDiskAttributes{}, fmt.Errorf("SET_DISK_ATTRIBUTES: version %d is not its size %d", version,
			setDiskAttributesSize)
	}
	return SetDiskAttributes{b[4] != 0, DiskAttributes(le.Uint64(b[8:])), DiskAttributes(le.Uint64(b[16:]))}, nil
}

// OfflineReason is MSFT_Disk.OfflineReason: Windows' reason for taking a disk offline.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/storage/msft-disk and, in
// more words, https://learn.microsoft.com/windows/win32/api/vds/ne-vds-vds_disk_offline_reason
type OfflineReason uint16

// Reasons.
const (
	OfflineUnknown            OfflineReason = 0
	OfflinePolicy             OfflineReason = 1 // the SAN policy, or somebody took it offline
	OfflineRedundantPath      OfflineReason = 2 // another path to a disk that is online
	OfflineSnapshot           OfflineReason = 3 // a snapshot of a disk that is online
	OfflineCollision          OfflineReason = 4 // its ids are those of a disk that is online
	OfflineResourceExhaustion OfflineReason = 5 // the capacity behind it is used up
	OfflineWriteFailures      OfflineReason = 6 // critical writes failed
	OfflineIntegrityScan      OfflineReason = 7 // it has to be scanned for damage first
)
