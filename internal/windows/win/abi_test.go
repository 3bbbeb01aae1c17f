// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"bytes"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// What a C compiler made of the headers of Windows: see testdata/abi.
func loadABI(t *testing.T) *abitest.ABI {
	t.Helper()
	return abitest.Load(t, "testdata/abi")
}

func TestABIControlCodes(t *testing.T) {
	abi := loadABI(t)
	for code, name := range ioctlNames {
		if want := IoctlCode(abi.Value(name)); code != want {
			t.Errorf("%s is %#x; want %#x", name, uint32(code), uint32(want))
		}
	}
}

func TestABIConstants(t *testing.T) {
	loadABI(t).Check(abitest.Constants{
		"FILE_DEVICE_DISK": FileDeviceDisk,

		"PARTITION_STYLE_MBR":                      uint64(StyleMBR),
		"PARTITION_STYLE_GPT":                      uint64(StyleGPT),
		"PARTITION_STYLE_RAW":                      uint64(StyleRAW),
		"GPT_BASIC_DATA_ATTRIBUTE_READ_ONLY":       GPTAttributeReadOnly,
		"GPT_BASIC_DATA_ATTRIBUTE_HIDDEN":          GPTAttributeHidden,
		"GPT_BASIC_DATA_ATTRIBUTE_NO_DRIVE_LETTER": GPTAttributeNoDriveLetter,
		"DISK_ATTRIBUTE_OFFLINE":                   uint64(DiskOffline),
		"DISK_ATTRIBUTE_READ_ONLY":                 uint64(DiskReadOnly),

		"StorageDeviceProperty":          uint64(PropertyDevice),
		"StorageDeviceIdProperty":        uint64(PropertyDeviceID),
		"StorageAccessAlignmentProperty": uint64(PropertyAccessAlignment),
		"StorageDeviceLocationProperty":  uint64(PropertyDeviceLocation),

		"StorageDeviceProtocolSpecificProperty": uint64(PropertyProtocolSpecific),

		"StorageIdTypeVendorSpecific": uint64(IdentifierVendorSpecific),
		"StorageIdTypeVendorId":       uint64(IdentifierT10),
		"StorageIdTypeEUI64":          uint64(IdentifierEUI64),
		"StorageIdTypeFCPHName":       uint64(IdentifierNAA),

		"VOLUME_IS_DIRTY":       volumeIsDirty,
		"FILE_READ_ONLY_VOLUME": uint64(FileReadOnlyVolume),

		"StorageIdCodeSetBinary": uint64(CodeSetBinary),
		"StorageIdCodeSetAscii":  uint64(CodeSetASCII),
		"StorageIdCodeSetUtf8":   uint64(CodeSetUTF8),
		"StorageIdAssocDevice":   uint64(AssociationDevice),
		"StorageIdAssocPort":     uint64(AssociationPort),
		"StorageIdAssocTarget":   uint64(AssociationTarget),

		"BusTypeScsi":              uint64(BusTypeSCSI),
		"BusTypeAtapi":             uint64(BusTypeATAPI),
		"BusTypeAta":               uint64(BusTypeATA),
		"BusTypeiScsi":             uint64(BusTypeISCSI),
		"BusTypeSas":               uint64(BusTypeSAS),
		"BusTypeFileBackedVirtual": uint64(BusTypeFileBackedVirtual),
		"BusTypeNvme":              uint64(BusTypeNVMe),

		"FILE_LIST_DIRECTORY":   uint64(FileListDirectory),
		"FILE_ADD_FILE":         uint64(FileAddFile),
		"FILE_ADD_SUBDIRECTORY": uint64(FileAddSubdirectory),
		"FILE_TRAVERSE":         uint64(FileTraverse),
		"FILE_DELETE_CHILD":     uint64(FileDeleteChild),
		"FILE_READ_ATTRIBUTES":  uint64(FileReadAttributes),
		"FILE_WRITE_ATTRIBUTES": uint64(FileWriteAttributes),
		"DELETE":                uint64(Delete),
		"READ_CONTROL":          uint64(ReadControl),
		"WRITE_DAC":             uint64(WriteDAC),
		"SYNCHRONIZE":           uint64(Synchronize),
		"GENERIC_ALL":           uint64(GenericAll),
		"GENERIC_EXECUTE":       uint64(GenericExecute),
		"GENERIC_WRITE":         uint64(GenericWrite),
		"GENERIC_READ":          uint64(GenericRead),
		"FILE_GENERIC_READ":     uint64(FileGenericRead),
		"FILE_GENERIC_WRITE":    uint64(FileGenericWrite),
		"FILE_GENERIC_EXECUTE":  uint64(FileGenericExecute),
		"FILE_ALL_ACCESS":       uint64(FileFullControl),

		"ACCESS_ALLOWED_ACE_TYPE":  uint64(AccessAllowed),
		"OBJECT_INHERIT_ACE":       uint64(ObjectInherit),
		"CONTAINER_INHERIT_ACE":    uint64(ContainerInherit),
		"NO_PROPAGATE_INHERIT_ACE": uint64(NoPropagateInherit),
		"INHERIT_ONLY_ACE":         uint64(InheritOnly),
		"INHERITED_ACE":            uint64(InheritedACE),

		"FILE_SHARE_READ":              uint64(ShareRead),
		"FILE_SHARE_WRITE":             uint64(ShareWrite),
		"FILE_SHARE_DELETE":            uint64(ShareDelete),
		"FILE_OPEN":                    uint64(FileOpen),
		"FILE_CREATE":                  uint64(FileCreate),
		"FILE_OPEN_IF":                 uint64(FileOpenIf),
		"FILE_DIRECTORY_FILE":          uint64(FileDirectoryFile),
		"FILE_NON_DIRECTORY_FILE":      uint64(FileNonDirectoryFile),
		"FILE_OPEN_FOR_BACKUP_INTENT":  uint64(FileOpenForBackup),
		"FILE_OPEN_REPARSE_POINT":      uint64(FileOpenReparsePoint),
		"FILE_ATTRIBUTE_READONLY":      uint64(AttributeReadOnly),
		"FILE_ATTRIBUTE_DIRECTORY":     uint64(AttributeDirectory),
		"FILE_ATTRIBUTE_REPARSE_POINT": uint64(AttributeReparsePoint),

		"USE_OK":      uint64(SMBMappingOK),
		"USE_PAUSED":  uint64(SMBMappingPaused),
		"USE_DISCONN": uint64(SMBMappingDisconnected),
		"USE_NETERR":  uint64(SMBMappingNetworkError),
		"USE_CONN":    uint64(SMBMappingConnecting),
		"USE_RECONN":  uint64(SMBMappingReconnecting),

		"IO_REPARSE_TAG_MOUNT_POINT":       uint64(TagMountPoint),
		"IO_REPARSE_TAG_SYMLINK":           uint64(TagSymlink),
		"MAXIMUM_REPARSE_DATA_BUFFER_SIZE": MaximumReparseDataSize,
	})
}

func TestABIGUIDs(t *testing.T) {
	abi := loadABI(t)
	for name, g := range map[string]winid.GUID{
		"GUID_DEVINTERFACE_DISK":        InterfaceClassDisk,
		"GUID_DEVINTERFACE_VOLUME":      InterfaceClassVolume,
		"GUID_DEVINTERFACE_STORAGEPORT": InterfaceClassStoragePort,
		"PARTITION_BASIC_DATA_GUID":     PartitionTypeBasicData,
		"PARTITION_MSFT_RESERVED_GUID":  PartitionTypeMicrosoftReserved,
		"PARTITION_SYSTEM_GUID":         PartitionTypeEFISystem,
	} {
		if want := winid.GUID(abi.Sample(name)); g != want {
			t.Errorf("%s is %v; want %v", name, g, want)
		}
	}
}

// The values of the structures in samples.txt.
var (
	sampleID        = winid.GUID{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	sampleLayoutGPT = &DriveLayout{
		Style: StyleGPT, DiskID: sampleID,
		StartingUsableOffset: 17408, UsableLength: 0x123456789abcde00, MaxPartitionCount: 128,
		Partitions: []Partition{
			{
				Style: StyleGPT, StartingOffset: 17408, Length: 16759808, Number: 1, RewritePartition: true,
				Type: PartitionTypeMicrosoftReserved, ID: sampleID, Name: "Microsoft reserved partition",
			},
			{
				Style: StyleGPT, StartingOffset: 16 << 20, Length: 0x0fedcba987654200, Number: 2,
				Type: PartitionTypeBasicData, ID: PartitionTypeEFISystem,
				Attributes: GPTAttributeNoDriveLetter, Name: "an odd name of 36 UTF-16 units: \U0001f4be é",
			},
		},
	}
	sampleLayoutMBR = &DriveLayout{
		Style: StyleMBR, Signature: 0x89abcdef,
		Partitions: []Partition{{
			Style: StyleMBR, StartingOffset: 1 << 20, Length: 1 << 30, Number: 1, RewritePartition: true,
			MBRType: 7, BootIndicator: true,
		}},
	}
	sampleCreateDisk    = CreateDisk{StyleGPT, sampleID, 128}
	sampleGrowPartition = GrowPartition{3, 0x123456789a}
	sampleLength        = int64(0x123456789abcdef0)
	sampleDeviceNumber  = DeviceNumber{FileDeviceDisk, 5, 2}
	sampleSCSIAddress   = SCSIAddress{1, 2, 3, 4}
	sampleGeometry      = DiskGeometryEx{512, 1 << 30}
	sampleSetAttributes = SetDiskAttributes{true, DiskOffline, DiskOffline | DiskReadOnly}
	sampleExtents       = []DiskExtent{{1, 16 << 20, 0x123456789a}, {2, 1 << 20, 512}}
	sampleNTFS          = FileSystemData{0x1234567890, 0x246824682, 0x12345, 512, 4096}
	sampleREFS          = FileSystemData{0x1234567890, 0x246824682, 0x12345, 4096, 65536}
	sampleDescriptor    = DeviceDescriptor{BusTypeFileBackedVirtual, "Msft", "Virtual Disk", "1.0", " 12345 "}
	sampleLocation      = DeviceLocation{1, 2, 3, 4, "Integrated : Adapter 1 : Port 2 : Target 3 : LUN 4"}
	sampleIdentifier    = Identifier{CodeSetBinary, IdentifierNAA, AssociationDevice, []byte{0x60, 1, 2, 3, 4, 5, 6, 7}}
	sampleNamespace     = NVMeNamespace{
		[16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, [8]byte{21, 22, 23, 24, 25, 26, 27, 28},
	}
	sampleSymlink    = ReparsePoint{Tag: TagSymlink, SubstituteName: "0123456789", PrintName: "abcdef", Relative: true}
	sampleMountPoint = ReparsePoint{Tag: TagMountPoint, SubstituteName: "0123456789", PrintName: "abcdef"}
)

// reparseSample puts the names of the sample into PathBuffer.
func reparseSample(abi *abitest.ABI, sample, pathBuffer string) []byte {
	b := abi.Sample(sample)[:abi.Offset(pathBuffer)]
	for _, u := range utf16.Encode([]rune("0123456789\x00abcdef\x00")) {
		b = le.AppendUint16(b, u)
	}
	return b
}

// deviceIDSample has the sample identifier twice.
func deviceIDSample(abi *abitest.ABI) []byte {
	identifier := append(abi.Sample("identifier")[:abi.Offset("STORAGE_IDENTIFIER.Identifier")], sampleIdentifier.ID...)
	last := slices.Clone(identifier)
	le.PutUint16(last[abi.Offset("STORAGE_IDENTIFIER.NextOffset"):], 0)
	b := abi.Sample("device_ids")[:abi.Offset("STORAGE_DEVICE_ID_DESCRIPTOR.Identifiers")]
	b = append(append(b, identifier...), last...)
	le.PutUint32(b[abi.Offset("STORAGE_DEVICE_ID_DESCRIPTOR.Size"):], uint32(len(b)))
	return b
}

func TestABIEncode(t *testing.T) {
	abi := loadABI(t)
	samples := map[string][]byte{
		"layout_gpt":          sampleLayoutGPT.Encode(),
		"layout_mbr":          sampleLayoutMBR.Encode(),
		"create_disk":         sampleCreateDisk.Encode(),
		"grow_partition":      sampleGrowPartition.Encode(),
		"length":              EncodeInt64(sampleLength),
		"device_number":       sampleDeviceNumber.Encode(),
		"property_query":      EncodePropertyQuery(PropertyDeviceLocation),
		"scsi_address":        sampleSCSIAddress.Encode(),
		"geometry":            sampleGeometry.Encode(),
		"get_disk_attributes": EncodeGetDiskAttributes(DiskOffline | DiskReadOnly),
		"set_disk_attributes": sampleSetAttributes.Encode(),
		"extents":             EncodeDiskExtents(sampleExtents),
		"ntfs_volume_data":    EncodeNTFSVolumeData(sampleNTFS),

		"nvme_namespace_query": EncodeNVMeNamespaceQuery(3),
		"nvme_namespace":       EncodeNVMeNamespace(3, sampleNamespace),
	}
	for name, got := range samples {
		if want := abi.Sample(name); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x; want\n%x", name, got, want)
		}
	}
	if got, want := EncodeDeviceIDs([]Identifier{sampleIdentifier, sampleIdentifier}),
		deviceIDSample(abi); !bytes.Equal(got, want) {
		t.Errorf("device_ids is\n%x; want\n%x", got, want)
	}
	for _, tt := range []struct {
		sample, pathBuffer string
		point              ReparsePoint
	}{
		{"reparse_symlink", "REPARSE_DATA_BUFFER.SymbolicLinkReparseBuffer.PathBuffer", sampleSymlink},
		{"reparse_mount_point", "REPARSE_DATA_BUFFER.MountPointReparseBuffer.PathBuffer", sampleMountPoint},
	} {
		if got, want := tt.point.Encode(), reparseSample(abi, tt.sample, tt.pathBuffer); !bytes.Equal(got, want) {
			t.Errorf("%s is\n%x; want\n%x", tt.sample, got, want)
		}
	}
}

func TestABIDecode(t *testing.T) {
	abi := loadABI(t)
	check := func(name string, got any, err error, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
	layout, err := DecodeDriveLayout(abi.Sample("layout_gpt"))
	check("layout_gpt", layout, err, sampleLayoutGPT)
	layout, err = DecodeDriveLayout(abi.Sample("layout_mbr"))
	check("layout_mbr", layout, err, sampleLayoutMBR)
	createDisk, err := DecodeCreateDisk(abi.Sample("create_disk"))
	check("create_disk", createDisk, err, sampleCreateDisk)
	growPartition, err := DecodeGrowPartition(abi.Sample("grow_partition"))
	check("grow_partition", growPartition, err, sampleGrowPartition)
	length, err := DecodeInt64(abi.Sample("length"))
	check("length", length, err, sampleLength)
	number, err := DecodeDeviceNumber(abi.Sample("device_number"))
	check("device_number", number, err, sampleDeviceNumber)
	property, err := DecodePropertyQuery(abi.Sample("property_query"))
	check("property_query", property, err, PropertyDeviceLocation)
	address, err := DecodeSCSIAddress(abi.Sample("scsi_address"))
	check("scsi_address", address, err, sampleSCSIAddress)
	geometry, err := DecodeDiskGeometryEx(abi.Sample("geometry"))
	check("geometry", geometry, err, sampleGeometry)
	attributes, err := DecodeGetDiskAttributes(abi.Sample("get_disk_attributes"))
	check("get_disk_attributes", attributes, err, DiskOffline|DiskReadOnly)
	setAttributes, err := DecodeSetDiskAttributes(abi.Sample("set_disk_attributes"))
	check("set_disk_attributes", setAttributes, err, sampleSetAttributes)
	extents, err := DecodeDiskExtents(abi.Sample("extents"))
	check("extents", extents, err, sampleExtents)
	ntfs, err := DecodeNTFSVolumeData(abi.Sample("ntfs_volume_data"))
	check("ntfs_volume_data", ntfs, err, sampleNTFS)
	refs, err := DecodeREFSVolumeData(abi.Sample("refs_volume_data"))
	check("refs_volume_data", refs, err, sampleREFS)
	descriptor, err := DecodeDeviceDescriptor(abi.Sample("device_descriptor"))
	check("device_descriptor", descriptor, err, sampleDescriptor)
	descriptor, err = DecodeDeviceDescriptor(sampleDescriptor.Encode()) // with the texts in another order
	check("our own device_descriptor", descriptor, err, sampleDescriptor)
	namespaceID, err := DecodeNVMeNamespaceQuery(abi.Sample("nvme_namespace_query"))
	check("nvme_namespace_query", namespaceID, err, uint32(3))
	namespace, err := DecodeNVMeNamespace(abi.Sample("nvme_namespace"))
	check("nvme_namespace", namespace, err, sampleNamespace)
	location, err := DecodeDeviceLocation(abi.Sample("device_location"))
	check("device_location", location, err, sampleLocation)
	location, err = DecodeDeviceLocation(sampleLocation.Encode())
	check("our own device_location", location, err, sampleLocation)
	ids, err := DecodeDeviceIDs(deviceIDSample(abi))
	check("device_ids", ids, err, []Identifier{sampleIdentifier, sampleIdentifier})
	point, err := DecodeReparsePoint(reparseSample(abi, "reparse_symlink",
		"REPARSE_DATA_BUFFER.SymbolicLinkReparseBuffer.PathBuffer"))
	check("reparse_symlink", point, err, sampleSymlink)
	point, err = DecodeReparsePoint(reparseSample(abi, "reparse_mount_point",
		"REPARSE_DATA_BUFFER.MountPointReparseBuffer.PathBuffer"))
	check("reparse_mount_point", point, err, sampleMountPoint)
}

func TestABISizes(t *testing.T) {
	abi := loadABI(t)
	for structure, got := range map[string]int{
		"STORAGE_DEVICE_NUMBER":              len(DeviceNumber{}.Encode()),
		"STORAGE_PROPERTY_QUERY":             len(EncodePropertyQuery(0)),
		"STORAGE_DEVICE_DESCRIPTOR":          len(DeviceDescriptor{}.Encode()),
		"STORAGE_DEVICE_LOCATION_DESCRIPTOR": locationSize,
		"SCSI_ADDRESS":                       len(SCSIAddress{}.Encode()),
		"DISK_GEOMETRY":                      DiskGeometrySize,
		"DISK_GEOMETRY_EX":                   len(DiskGeometryEx{}.Encode()),
		"GET_LENGTH_INFORMATION":             len(EncodeInt64(0)),
		"GET_DISK_ATTRIBUTES":                len(EncodeGetDiskAttributes(0)),
		"SET_DISK_ATTRIBUTES":                setDiskAttributesSize,
		"CREATE_DISK":                        len(CreateDisk{}.Encode()),
		"DISK_GROW_PARTITION":                len(GrowPartition{}.Encode()),
		"DRIVE_LAYOUT_INFORMATION_EX":        layoutHeaderSize + partitionSize, // with one entry
		"PARTITION_INFORMATION_EX":           partitionSize,
		"DISK_EXTENT":                        extentSize,
		"NTFS_VOLUME_DATA_BUFFER":            ntfsDataSize,
		"REFS_VOLUME_DATA_BUFFER":            refsDataSize,
	} {
		if want := abi.Size(structure); got != want {
			t.Errorf("%s takes %d bytes; want %d", structure, got, want)
		}
	}
}
