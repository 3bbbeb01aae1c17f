// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package api

// The control codes and structures of Windows that the published package exports, by its names: see
// NOTICE. Nothing here uses them but GetDiskNumber: they are for drivers that make calls of their own.
//
// Source: https://learn.microsoft.com/windows/win32/api/winioctl/

// Control codes.
const (
	IOCTL_STORAGE_GET_DEVICE_NUMBER = 0x2D1080
	IOCTL_STORAGE_QUERY_PROPERTY    = 0x002d1400
)

// StorageDeviceNumber is STORAGE_DEVICE_NUMBER.
type StorageDeviceNumber struct {
	DeviceType      DeviceType
	DeviceNumber    uint32
	PartitionNumber uint32
}

// DeviceType is DEVICE_TYPE.
type DeviceType uint32

// StoragePropertyID is STORAGE_PROPERTY_ID.
type StoragePropertyID uint32

const (
	StorageDeviceProperty StoragePropertyID = iota
	StorageAdapterProperty
	StorageDeviceIDProperty
	StorageDeviceUniqueIDProperty
	StorageDeviceWriteCacheProperty
	StorageMiniportProperty
	StorageAccessAlignmentProperty
	StorageDeviceSeekPenaltyProperty
	StorageDeviceTrimProperty
	StorageDeviceWriteAggregationProperty
	StorageDeviceDeviceTelemetryProperty
	StorageDeviceLBProvisioningProperty
	StorageDevicePowerProperty
	StorageDeviceCopyOffloadProperty
	StorageDeviceResiliencyProperty
	StorageDeviceMediumProductType
	StorageAdapterRpmbProperty
	StorageAdapterCryptoProperty
	StorageDeviceIoCapabilityProperty
	StorageAdapterProtocolSpecificProperty
	StorageDeviceProtocolSpecificProperty
	StorageAdapterTemperatureProperty
	StorageDeviceTemperatureProperty
	StorageAdapterPhysicalTopologyProperty
	StorageDevicePhysicalTopologyProperty
	StorageDeviceAttributesProperty
	StorageDeviceManagementStatus
	StorageAdapterSerialNumberProperty
	StorageDeviceLocationProperty
	StorageDeviceNumaProperty
	StorageDeviceZonedDeviceProperty
	StorageDeviceUnsafeShutdownCount
	StorageDeviceEnduranceProperty
)

// StorageQueryType is STORAGE_QUERY_TYPE.
type StorageQueryType uint32

const (
	PropertyStandardQuery StorageQueryType = iota
	PropertyExistsQuery
	PropertyMaskQuery
	PropertyQueryMaxDefined
)

// StoragePropertyQuery is STORAGE_PROPERTY_QUERY.
type StoragePropertyQuery struct {
	PropertyID StoragePropertyID
	QueryType  StorageQueryType
	Byte       []AdditionalParameters
}

// AdditionalParameters is the end of STORAGE_PROPERTY_QUERY.
type AdditionalParameters byte

// StorageDeviceIDDescriptor is STORAGE_DEVICE_ID_DESCRIPTOR.
type StorageDeviceIDDescriptor struct {
	Version             uint32
	Size                uint32
	NumberOfIdentifiers uint32
	Identifiers         [1]byte
}

// StorageIdentifierCodeSet is STORAGE_IDENTIFIER_CODE_SET.
type StorageIdentifierCodeSet uint32

const (
	StorageIDCodeSetReserved StorageIdentifierCodeSet = iota
	StorageIDCodeSetBinary
	StorageIDCodeSetASCII
	StorageIDCodeSetUtf8
)

// StorageIdentifierType is STORAGE_IDENTIFIER_TYPE.
type StorageIdentifierType uint32

const (
	StorageIdTypeVendorSpecific StorageIdentifierType = iota
	StorageIDTypeVendorID
	StorageIDTypeEUI64
	StorageIDTypeFCPHName
	StorageIDTypePortRelative
	StorageIDTypeTargetPortGroup
	StorageIDTypeLogicalUnitGroup
	StorageIDTypeMD5LogicalUnitIdentifier
	StorageIDTypeScsiNameString
)

// StorageAssociationType is STORAGE_ASSOCIATION_TYPE.
type StorageAssociationType uint32

const (
	StorageIDAssocDevice StorageAssociationType = iota
	StorageIDAssocPort
	StorageIDAssocTarget
)

// StorageIdentifier is STORAGE_IDENTIFIER.
type StorageIdentifier struct {
	CodeSet        StorageIdentifierCodeSet
	Type           StorageIdentifierType
	IdentifierSize uint16
	NextOffset     uint16
	Association    StorageAssociationType
	Identifier     [1]byte
}

// Disk is a disk with its device path.
type Disk struct {
	Path         string `json:"Path"`
	SerialNumber string `json:"SerialNumber"`
}

// DiskLocation is where a disk is attached.
type DiskLocation struct {
	Adapter string
	Bus     string
	Target  string
	LUNID   string
}

// DiskIDs is what a disk says of itself.
type DiskIDs struct {
	Page83       string
	SerialNumber string
}
