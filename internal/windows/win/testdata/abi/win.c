/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What package win takes from winioctl.h, ntddscsi.h, winnt.h and winerror.h. */

#include "abi.h" /* with winioctl.h */
#include <ntddscsi.h>
#include <winternl.h>
#include <diskguid.h>
#include <nvme.h>

/* What the headers of mingw-w64 10 lack, as the documentation of Windows has it.
 *
 * https://learn.microsoft.com/windows/win32/api/winioctl/ */

#define IOCTL_DISK_GET_DISK_ATTRIBUTES CTL_CODE(IOCTL_DISK_BASE, 0x3c, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define IOCTL_DISK_SET_DISK_ATTRIBUTES \
	CTL_CODE(IOCTL_DISK_BASE, 0x3d, METHOD_BUFFERED, FILE_READ_ACCESS | FILE_WRITE_ACCESS)
#define IOCTL_DISK_ARE_VOLUMES_READY CTL_CODE(IOCTL_DISK_BASE, 0x87, METHOD_BUFFERED, FILE_READ_ACCESS)
#define FSCTL_GET_REFS_VOLUME_DATA CTL_CODE(FILE_DEVICE_FILE_SYSTEM, 182, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define DISK_ATTRIBUTE_OFFLINE 1
#define DISK_ATTRIBUTE_READ_ONLY 2
#define FVE_E_LOCKED_VOLUME 0x80310000u
#define ERROR_REPARSE_POINT_ENCOUNTERED 4395

typedef struct {
	DWORD Version, Reserved1;
	DWORDLONG Attributes;
} GET_DISK_ATTRIBUTES;

typedef struct {
	DWORD Version;
	BOOLEAN Persist;
	BYTE Reserved1[3];
	DWORDLONG Attributes, AttributesMask;
	DWORD Reserved2[4];
} SET_DISK_ATTRIBUTES;

typedef struct {
	DWORD ByteCount, MajorVersion, MinorVersion, BytesPerPhysicalSector;
	LARGE_INTEGER VolumeSerialNumber, NumberSectors, TotalClusters, FreeClusters, TotalReserved;
	DWORD BytesPerSector, BytesPerCluster;
	LARGE_INTEGER MaximumSizeOfResidentFile, Reserved[10];
} REFS_VOLUME_DATA_BUFFER;

typedef struct {
	DWORD Socket, Slot, Adapter, Port;
	union {
		struct { DWORD Channel, Device; };
		struct { DWORD Target, Lun; };
	};
} DEVICE_LOCATION;

typedef struct {
	DWORD Version, Size;
	DEVICE_LOCATION Location;
	DWORD StringOffset;
} STORAGE_DEVICE_LOCATION_DESCRIPTOR;

/* Of ntifs.h, which goes with kernel drivers only.
 *
 * https://learn.microsoft.com/windows-hardware/drivers/ddi/ntifs/ns-ntifs-_reparse_data_buffer */

#define SYMLINK_FLAG_RELATIVE 1

typedef struct {
	ULONG ReparseTag;
	USHORT ReparseDataLength, Reserved;
	union {
		struct {
			USHORT SubstituteNameOffset, SubstituteNameLength, PrintNameOffset, PrintNameLength;
			ULONG Flags;
			WCHAR PathBuffer[1];
		} SymbolicLinkReparseBuffer;
		struct {
			USHORT SubstituteNameOffset, SubstituteNameLength, PrintNameOffset, PrintNameLength;
			WCHAR PathBuffer[1];
		} MountPointReparseBuffer;
	};
} REPARSE_DATA_BUFFER;

/* Samples. */

#define DISK_ID { 0x00112233, 0x4455, 0x6677, { 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff } }
#define BASIC_DATA { 0xEBD0A0A2, 0xB9E5, 0x4433, { 0x87, 0xC0, 0x68, 0xB6, 0xB7, 0x26, 0x99, 0xC7 } }
#define RESERVED { 0xE3C9E316, 0x0B5C, 0x4DB8, { 0x81, 0x7D, 0xF9, 0x2D, 0xF0, 0x02, 0x15, 0xAE } }
#define EFI { 0xC12A7328, 0xF81F, 0x11D2, { 0xBA, 0x4B, 0x00, 0xA0, 0xC9, 0x3E, 0xC9, 0x3B } }

/* A table of two partitions: PartitionEntry has room for one. */
typedef struct {
	DRIVE_LAYOUT_INFORMATION_EX layout;
	PARTITION_INFORMATION_EX second;
} layout_of_two;

SAMPLE(layout_of_two, layout_gpt) = {
	.layout = {
		.PartitionStyle = PARTITION_STYLE_GPT,
		.PartitionCount = 2,
		.Gpt = {
			.DiskId = DISK_ID,
			.StartingUsableOffset.QuadPart = 17408,
			.UsableLength.QuadPart = 0x123456789abcde00,
			.MaxPartitionCount = 128,
		},
		.PartitionEntry = { {
			.PartitionStyle = PARTITION_STYLE_GPT,
			.StartingOffset.QuadPart = 17408,
			.PartitionLength.QuadPart = 16759808,
			.PartitionNumber = 1,
			.RewritePartition = TRUE,
			.Gpt = {
				.PartitionType = RESERVED,
				.PartitionId = DISK_ID,
				.Name = L"Microsoft reserved partition",
			},
		} },
	},
	.second = {
		.PartitionStyle = PARTITION_STYLE_GPT,
		.StartingOffset.QuadPart = 16777216,
		.PartitionLength.QuadPart = 0x0fedcba987654200,
		.PartitionNumber = 2,
		.Gpt = {
			.PartitionType = BASIC_DATA,
			.PartitionId = EFI,
			.Attributes = GPT_BASIC_DATA_ATTRIBUTE_NO_DRIVE_LETTER,
			.Name = L"an odd name of 36 UTF-16 units: \xd83d\xdcbe \xe9",
		},
	},
};
SAMPLE(DRIVE_LAYOUT_INFORMATION_EX, layout_mbr) = {
	.PartitionStyle = PARTITION_STYLE_MBR,
	.PartitionCount = 1,
	.Mbr.Signature = 0x89abcdef,
	.PartitionEntry = { {
		.PartitionStyle = PARTITION_STYLE_MBR,
		.StartingOffset.QuadPart = 1048576,
		.PartitionLength.QuadPart = 1073741824,
		.PartitionNumber = 1,
		.RewritePartition = TRUE,
		.Mbr = { .PartitionType = 7, .BootIndicator = TRUE },
	} },
};
SAMPLE(CREATE_DISK, create_disk) = {
	.PartitionStyle = PARTITION_STYLE_GPT,
	.Gpt = { .DiskId = DISK_ID, .MaxPartitionCount = 128 },
};
SAMPLE(DISK_GROW_PARTITION, grow_partition) = { .PartitionNumber = 3, .BytesToGrow.QuadPart = 0x123456789a };
SAMPLE(GET_LENGTH_INFORMATION, length) = { .Length.QuadPart = 0x123456789abcdef0 };
SAMPLE(STORAGE_DEVICE_NUMBER, device_number) = { FILE_DEVICE_DISK, 5, 2 };
SAMPLE(STORAGE_PROPERTY_QUERY, property_query) = { .PropertyId = StorageDeviceLocationProperty, .QueryType = PropertyStandardQuery };
SAMPLE(SCSI_ADDRESS, scsi_address) = { sizeof(SCSI_ADDRESS), 1, 2, 3, 4 };
SAMPLE(DISK_GEOMETRY_EX, geometry) = {
	.Geometry = { .Cylinders.QuadPart = 130, .MediaType = FixedMedia, .TracksPerCylinder = 255, .SectorsPerTrack = 63, .BytesPerSector = 512 },
	.DiskSize.QuadPart = 1073741824,
};
SAMPLE(GET_DISK_ATTRIBUTES, get_disk_attributes) = { sizeof(GET_DISK_ATTRIBUTES), 0, DISK_ATTRIBUTE_OFFLINE | DISK_ATTRIBUTE_READ_ONLY };
SAMPLE(SET_DISK_ATTRIBUTES, set_disk_attributes) = {
	.Version = sizeof(SET_DISK_ATTRIBUTES),
	.Persist = TRUE,
	.Attributes = DISK_ATTRIBUTE_OFFLINE,
	.AttributesMask = DISK_ATTRIBUTE_OFFLINE | DISK_ATTRIBUTE_READ_ONLY,
};
typedef struct {
	VOLUME_DISK_EXTENTS extents;
	DISK_EXTENT second;
} extents_of_two;
SAMPLE(extents_of_two, extents) = {
	.extents = { .NumberOfDiskExtents = 2, .Extents = { { 1, { .QuadPart = 16777216 }, { .QuadPart = 0x123456789a } } } },
	.second = { 2, { .QuadPart = 1048576 }, { .QuadPart = 512 } },
};
SAMPLE(NTFS_VOLUME_DATA_BUFFER, ntfs_volume_data) = {
	.NumberSectors.QuadPart = 0x1234567890, .TotalClusters.QuadPart = 0x246824682, .FreeClusters.QuadPart = 0x12345,
	.BytesPerSector = 512, .BytesPerCluster = 4096,
};
SAMPLE(REFS_VOLUME_DATA_BUFFER, refs_volume_data) = {
	.ByteCount = sizeof(REFS_VOLUME_DATA_BUFFER),
	.NumberSectors.QuadPart = 0x1234567890, .TotalClusters.QuadPart = 0x246824682, .FreeClusters.QuadPart = 0x12345,
	.BytesPerSector = 4096, .BytesPerCluster = 65536,
};
typedef struct {
	STORAGE_DEVICE_DESCRIPTOR fixed;
	char vendor[8], product[16], revision[4], serial[8];
} descriptor_with_strings;
SAMPLE(descriptor_with_strings, device_descriptor) = {
	.fixed = {
		.Version = sizeof(STORAGE_DEVICE_DESCRIPTOR),
		.Size = sizeof(descriptor_with_strings),
		.RemovableMedia = TRUE,
		.VendorIdOffset = offsetof(descriptor_with_strings, vendor),
		.ProductIdOffset = offsetof(descriptor_with_strings, product),
		.ProductRevisionOffset = offsetof(descriptor_with_strings, revision),
		.SerialNumberOffset = offsetof(descriptor_with_strings, serial),
		.BusType = BusTypeFileBackedVirtual,
	},
	.vendor = "Msft", .product = "Virtual Disk", .revision = "1.0", .serial = " 12345 ",
};
/* The query has room for the answer, NVME_IDENTIFY_NAMESPACE_DATA. */
typedef struct {
	STORAGE_PROPERTY_ID PropertyId;
	STORAGE_QUERY_TYPE QueryType;
	STORAGE_PROTOCOL_SPECIFIC_DATA data;
	BYTE room[sizeof(NVME_IDENTIFY_NAMESPACE_DATA)];
} nvme_query;
SAMPLE(nvme_query, nvme_namespace_query) = {
	.PropertyId = StorageDeviceProtocolSpecificProperty,
	.QueryType = PropertyStandardQuery,
	.data = {
		.ProtocolType = ProtocolTypeNvme,
		.DataType = NVMeDataTypeIdentify,
		.ProtocolDataRequestValue = NVME_IDENTIFY_CNS_SPECIFIC_NAMESPACE,
		.ProtocolDataRequestSubValue = 3,
		.ProtocolDataOffset = sizeof(STORAGE_PROTOCOL_SPECIFIC_DATA),
		.ProtocolDataLength = sizeof(NVME_IDENTIFY_NAMESPACE_DATA),
	},
};
typedef struct {
	STORAGE_PROTOCOL_DATA_DESCRIPTOR descriptor;
	NVME_IDENTIFY_NAMESPACE_DATA data;
} nvme_answer;
SAMPLE(nvme_answer, nvme_namespace) = {
	.descriptor = {
		.Version = sizeof(STORAGE_PROTOCOL_DATA_DESCRIPTOR),
		.Size = sizeof(STORAGE_PROTOCOL_DATA_DESCRIPTOR),
		.ProtocolSpecificData = {
			.ProtocolType = ProtocolTypeNvme,
			.DataType = NVMeDataTypeIdentify,
			.ProtocolDataRequestValue = NVME_IDENTIFY_CNS_SPECIFIC_NAMESPACE,
			.ProtocolDataRequestSubValue = 3,
			.ProtocolDataOffset = sizeof(STORAGE_PROTOCOL_SPECIFIC_DATA),
			.ProtocolDataLength = sizeof(NVME_IDENTIFY_NAMESPACE_DATA),
		},
	},
	.data = {
		.NGUID = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 },
		.EUI64 = { 21, 22, 23, 24, 25, 26, 27, 28 },
	},
};
typedef struct {
	STORAGE_DEVICE_LOCATION_DESCRIPTOR fixed;
	char text[64];
} location_with_text;
SAMPLE(location_with_text, device_location) = {
	.fixed = {
		.Version = sizeof(STORAGE_DEVICE_LOCATION_DESCRIPTOR),
		.Size = sizeof(location_with_text),
		.Location = { .Adapter = 1, .Port = 2, .Target = 3, .Lun = 4 },
		.StringOffset = offsetof(location_with_text, text),
	},
	.text = "Integrated : Adapter 1 : Port 2 : Target 3 : LUN 4",
};
/* PathBuffer is left to whoever reads the sample: it has room for one character. */
SAMPLE(REPARSE_DATA_BUFFER, reparse_symlink) = {
	.ReparseTag = IO_REPARSE_TAG_SYMLINK,
	.ReparseDataLength = 12 + 2 * (10 + 1 + 6 + 1),
	.SymbolicLinkReparseBuffer = { .SubstituteNameLength = 20, .PrintNameOffset = 22, .PrintNameLength = 12, .Flags = SYMLINK_FLAG_RELATIVE },
};
SAMPLE(REPARSE_DATA_BUFFER, reparse_mount_point) = {
	.ReparseTag = IO_REPARSE_TAG_MOUNT_POINT,
	.ReparseDataLength = 8 + 2 * (10 + 1 + 6 + 1),
	.MountPointReparseBuffer = { .SubstituteNameLength = 20, .PrintNameOffset = 22, .PrintNameLength = 12 },
};

LINES = {
	SIZE(STORAGE_DEVICE_NUMBER),
	OFFSET(STORAGE_DEVICE_NUMBER, DeviceType),
	OFFSET(STORAGE_DEVICE_NUMBER, DeviceNumber),
	OFFSET(STORAGE_DEVICE_NUMBER, PartitionNumber),

	SIZE(STORAGE_PROPERTY_QUERY),
	OFFSET(STORAGE_PROPERTY_QUERY, PropertyId),
	OFFSET(STORAGE_PROPERTY_QUERY, QueryType),

	SIZE(STORAGE_DESCRIPTOR_HEADER),
	OFFSET(STORAGE_DESCRIPTOR_HEADER, Size),

	SIZE(STORAGE_DEVICE_DESCRIPTOR),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, Size),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, RemovableMedia),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, VendorIdOffset),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, ProductIdOffset),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, ProductRevisionOffset),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, SerialNumberOffset),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, BusType),
	OFFSET(STORAGE_DEVICE_DESCRIPTOR, RawDeviceProperties),

	SIZE(STORAGE_DEVICE_LOCATION_DESCRIPTOR),
	OFFSET(STORAGE_DEVICE_LOCATION_DESCRIPTOR, Size),
	OFFSET(STORAGE_DEVICE_LOCATION_DESCRIPTOR, Location.Adapter),
	OFFSET(STORAGE_DEVICE_LOCATION_DESCRIPTOR, Location.Port),
	OFFSET(STORAGE_DEVICE_LOCATION_DESCRIPTOR, Location.Target),
	OFFSET(STORAGE_DEVICE_LOCATION_DESCRIPTOR, Location.Lun),
	OFFSET(STORAGE_DEVICE_LOCATION_DESCRIPTOR, StringOffset),

	SIZE(SCSI_ADDRESS),
	OFFSET(SCSI_ADDRESS, PortNumber),
	OFFSET(SCSI_ADDRESS, PathId),
	OFFSET(SCSI_ADDRESS, TargetId),
	OFFSET(SCSI_ADDRESS, Lun),

	SIZE(DISK_GEOMETRY),
	SIZE(DISK_GEOMETRY_EX),
	OFFSET(DISK_GEOMETRY_EX, Geometry.BytesPerSector),
	OFFSET(DISK_GEOMETRY_EX, DiskSize),

	SIZE(GET_LENGTH_INFORMATION),

	SIZE(GET_DISK_ATTRIBUTES),
	OFFSET(GET_DISK_ATTRIBUTES, Attributes),
	SIZE(SET_DISK_ATTRIBUTES),
	OFFSET(SET_DISK_ATTRIBUTES, Persist),
	OFFSET(SET_DISK_ATTRIBUTES, Attributes),
	OFFSET(SET_DISK_ATTRIBUTES, AttributesMask),

	SIZE(CREATE_DISK),
	OFFSET(CREATE_DISK, PartitionStyle),
	OFFSET(CREATE_DISK, Gpt.DiskId),
	OFFSET(CREATE_DISK, Gpt.MaxPartitionCount),

	SIZE(DISK_GROW_PARTITION),
	OFFSET(DISK_GROW_PARTITION, PartitionNumber),
	OFFSET(DISK_GROW_PARTITION, BytesToGrow),

	SIZE(DRIVE_LAYOUT_INFORMATION_EX),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, PartitionStyle),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, PartitionCount),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, Gpt.DiskId),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, Gpt.StartingUsableOffset),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, Gpt.UsableLength),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, Gpt.MaxPartitionCount),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, Mbr.Signature),
	OFFSET(DRIVE_LAYOUT_INFORMATION_EX, PartitionEntry),

	SIZE(PARTITION_INFORMATION_EX),
	OFFSET(PARTITION_INFORMATION_EX, PartitionStyle),
	OFFSET(PARTITION_INFORMATION_EX, StartingOffset),
	OFFSET(PARTITION_INFORMATION_EX, PartitionLength),
	OFFSET(PARTITION_INFORMATION_EX, PartitionNumber),
	OFFSET(PARTITION_INFORMATION_EX, RewritePartition),
	OFFSET(PARTITION_INFORMATION_EX, Gpt.PartitionType),
	OFFSET(PARTITION_INFORMATION_EX, Gpt.PartitionId),
	OFFSET(PARTITION_INFORMATION_EX, Gpt.Attributes),
	OFFSET(PARTITION_INFORMATION_EX, Gpt.Name),
	OFFSET(PARTITION_INFORMATION_EX, Mbr.PartitionType),
	OFFSET(PARTITION_INFORMATION_EX, Mbr.BootIndicator),

	SIZE(DISK_EXTENT),
	OFFSET(DISK_EXTENT, DiskNumber),
	OFFSET(DISK_EXTENT, StartingOffset),
	OFFSET(DISK_EXTENT, ExtentLength),
	OFFSET(VOLUME_DISK_EXTENTS, NumberOfDiskExtents),
	OFFSET(VOLUME_DISK_EXTENTS, Extents),

	SIZE(NTFS_VOLUME_DATA_BUFFER),
	OFFSET(NTFS_VOLUME_DATA_BUFFER, NumberSectors),
	OFFSET(NTFS_VOLUME_DATA_BUFFER, TotalClusters),
	OFFSET(NTFS_VOLUME_DATA_BUFFER, FreeClusters),
	OFFSET(NTFS_VOLUME_DATA_BUFFER, BytesPerSector),
	OFFSET(NTFS_VOLUME_DATA_BUFFER, BytesPerCluster),
	SIZE(REFS_VOLUME_DATA_BUFFER),
	OFFSET(REFS_VOLUME_DATA_BUFFER, NumberSectors),
	OFFSET(REFS_VOLUME_DATA_BUFFER, TotalClusters),
	OFFSET(REFS_VOLUME_DATA_BUFFER, FreeClusters),
	OFFSET(REFS_VOLUME_DATA_BUFFER, BytesPerSector),
	OFFSET(REFS_VOLUME_DATA_BUFFER, BytesPerCluster),

	OFFSET(REPARSE_DATA_BUFFER, ReparseTag),
	OFFSET(REPARSE_DATA_BUFFER, ReparseDataLength),
	OFFSET(REPARSE_DATA_BUFFER, SymbolicLinkReparseBuffer.SubstituteNameOffset),
	OFFSET(REPARSE_DATA_BUFFER, SymbolicLinkReparseBuffer.Flags),
	OFFSET(REPARSE_DATA_BUFFER, SymbolicLinkReparseBuffer.PathBuffer),
	OFFSET(REPARSE_DATA_BUFFER, MountPointReparseBuffer.SubstituteNameOffset),
	OFFSET(REPARSE_DATA_BUFFER, MountPointReparseBuffer.PathBuffer),

	VALUE(IOCTL_STORAGE_GET_DEVICE_NUMBER),
	VALUE(IOCTL_STORAGE_QUERY_PROPERTY),
	VALUE(IOCTL_SCSI_GET_ADDRESS),
	VALUE(IOCTL_DISK_GET_DRIVE_GEOMETRY_EX),
	VALUE(IOCTL_DISK_GET_LENGTH_INFO),
	VALUE(IOCTL_DISK_GET_DRIVE_LAYOUT_EX),
	VALUE(IOCTL_DISK_SET_DRIVE_LAYOUT_EX),
	VALUE(IOCTL_DISK_CREATE_DISK),
	VALUE(IOCTL_DISK_UPDATE_PROPERTIES),
	VALUE(IOCTL_DISK_UPDATE_DRIVE_SIZE),
	VALUE(IOCTL_DISK_GROW_PARTITION),
	VALUE(IOCTL_DISK_GET_DISK_ATTRIBUTES),
	VALUE(IOCTL_DISK_SET_DISK_ATTRIBUTES),
	VALUE(IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS),
	VALUE(IOCTL_VOLUME_ONLINE),
	VALUE(IOCTL_VOLUME_OFFLINE),
	VALUE(IOCTL_DISK_IS_WRITABLE),
	VALUE(IOCTL_DISK_ARE_VOLUMES_READY),
	VALUE(FSCTL_LOCK_VOLUME),
	VALUE(FSCTL_UNLOCK_VOLUME),
	VALUE(FSCTL_DISMOUNT_VOLUME),
	VALUE(FSCTL_IS_VOLUME_DIRTY),
	VALUE(FSCTL_EXTEND_VOLUME),
	VALUE(FSCTL_GET_NTFS_VOLUME_DATA),
	VALUE(FSCTL_GET_REFS_VOLUME_DATA),
	VALUE(FSCTL_GET_REPARSE_POINT),
	VALUE(FSCTL_SET_REPARSE_POINT),
	VALUE(FSCTL_DELETE_REPARSE_POINT),

	VALUE(FILE_DEVICE_DISK),
	VALUE(PARTITION_STYLE_MBR),
	VALUE(PARTITION_STYLE_GPT),
	VALUE(PARTITION_STYLE_RAW),
	VALUE(GPT_BASIC_DATA_ATTRIBUTE_READ_ONLY),
	VALUE(GPT_BASIC_DATA_ATTRIBUTE_HIDDEN),
	VALUE(GPT_BASIC_DATA_ATTRIBUTE_NO_DRIVE_LETTER),
	VALUE(DISK_ATTRIBUTE_OFFLINE),
	VALUE(DISK_ATTRIBUTE_READ_ONLY),
	VALUE(StorageDeviceProperty),
	VALUE(StorageDeviceIdProperty),
	VALUE(StorageAccessAlignmentProperty),
	VALUE(StorageDeviceProtocolSpecificProperty),
	VALUE(StorageDeviceLocationProperty),
	VALUE(VOLUME_IS_DIRTY),
	VALUE(FILE_READ_ONLY_VOLUME),
	VALUE(BusTypeScsi),
	VALUE(BusTypeAtapi),
	VALUE(BusTypeAta),
	VALUE(BusTypeiScsi),
	VALUE(BusTypeSas),
	VALUE(BusTypeSata),
	VALUE(BusTypeVirtual),
	VALUE(BusTypeFileBackedVirtual),
	VALUE(BusTypeNvme),

	VALUE(FILE_LIST_DIRECTORY),
	VALUE(FILE_ADD_FILE),
	VALUE(FILE_ADD_SUBDIRECTORY),
	VALUE(FILE_TRAVERSE),
	VALUE(FILE_DELETE_CHILD),
	VALUE(FILE_READ_ATTRIBUTES),
	VALUE(FILE_WRITE_ATTRIBUTES),
	VALUE(DELETE),
	VALUE(READ_CONTROL),
	VALUE(WRITE_DAC),
	VALUE(SYNCHRONIZE),
	VALUE(GENERIC_ALL),
	VALUE(GENERIC_EXECUTE),
	VALUE(GENERIC_WRITE),
	VALUE(GENERIC_READ),
	VALUE(FILE_GENERIC_READ),
	VALUE(FILE_GENERIC_WRITE),
	VALUE(FILE_GENERIC_EXECUTE),
	VALUE(FILE_ALL_ACCESS),
	VALUE(ACCESS_ALLOWED_ACE_TYPE),
	VALUE(OBJECT_INHERIT_ACE),
	VALUE(CONTAINER_INHERIT_ACE),
	VALUE(NO_PROPAGATE_INHERIT_ACE),
	VALUE(INHERIT_ONLY_ACE),
	VALUE(INHERITED_ACE),
	VALUE(SID_MAX_SUB_AUTHORITIES),
	VALUE(FILE_SHARE_READ),
	VALUE(FILE_SHARE_WRITE),
	VALUE(FILE_SHARE_DELETE),
	VALUE(FILE_OPEN),
	VALUE(FILE_CREATE),
	VALUE(FILE_OPEN_IF),
	VALUE(FILE_DIRECTORY_FILE),
	VALUE(FILE_NON_DIRECTORY_FILE),
	VALUE(FILE_OPEN_FOR_BACKUP_INTENT),
	VALUE(FILE_OPEN_REPARSE_POINT),
	VALUE(FILE_ATTRIBUTE_READONLY),
	VALUE(FILE_ATTRIBUTE_DIRECTORY),
	VALUE(FILE_ATTRIBUTE_REPARSE_POINT),
	VALUE(IO_REPARSE_TAG_MOUNT_POINT),
	VALUE(IO_REPARSE_TAG_SYMLINK),
	VALUE(MAXIMUM_REPARSE_DATA_BUFFER_SIZE),

	VALUE(ERROR_INVALID_FUNCTION),
	VALUE(ERROR_FILE_NOT_FOUND),
	VALUE(ERROR_PATH_NOT_FOUND),
	VALUE(ERROR_ACCESS_DENIED),
	VALUE(ERROR_INVALID_HANDLE),
	VALUE(ERROR_NOT_SAME_DEVICE),
	VALUE(ERROR_NO_MORE_FILES),
	VALUE(ERROR_WRITE_PROTECT),
	VALUE(ERROR_NOT_READY),
	VALUE(ERROR_CRC),
	VALUE(ERROR_GEN_FAILURE),
	VALUE(ERROR_SHARING_VIOLATION),
	VALUE(ERROR_LOCK_VIOLATION),
	VALUE(ERROR_HANDLE_EOF),
	VALUE(ERROR_HANDLE_DISK_FULL),
	VALUE(ERROR_NOT_SUPPORTED),
	VALUE(ERROR_BAD_NETPATH),
	VALUE(ERROR_DEV_NOT_EXIST),
	VALUE(ERROR_NETNAME_DELETED),
	VALUE(ERROR_BAD_NET_NAME),
	VALUE(ERROR_FILE_EXISTS),
	VALUE(ERROR_INVALID_PASSWORD),
	VALUE(ERROR_INVALID_PARAMETER),
	VALUE(ERROR_DISK_FULL),
	VALUE(ERROR_SEM_TIMEOUT),
	VALUE(ERROR_INSUFFICIENT_BUFFER),
	VALUE(ERROR_INVALID_NAME),
	VALUE(ERROR_DIR_NOT_EMPTY),
	VALUE(ERROR_LABEL_TOO_LONG),
	VALUE(ERROR_BUSY),
	VALUE(ERROR_ALREADY_EXISTS),
	VALUE(ERROR_FILENAME_EXCED_RANGE),
	VALUE(ERROR_MORE_DATA),
	VALUE(ERROR_NO_MORE_ITEMS),
	VALUE(ERROR_DIRECTORY),
	VALUE(ERROR_DELETE_PENDING),
	VALUE(ERROR_OPERATION_ABORTED),
	VALUE(ERROR_UNRECOGNIZED_VOLUME),
	VALUE(ERROR_FILE_INVALID),
	VALUE(ERROR_SERVICE_NOT_ACTIVE),
	VALUE(ERROR_IO_DEVICE),
	VALUE(ERROR_DEVICE_NOT_CONNECTED),
	VALUE(ERROR_NOT_FOUND),
	VALUE(ERROR_RETRY),
	VALUE(ERROR_PRIVILEGE_NOT_HELD),
	VALUE(ERROR_LOGON_FAILURE),
	VALUE(ERROR_FILE_CORRUPT),
	VALUE(ERROR_DISK_CORRUPT),
	VALUE(ERROR_NOT_A_REPARSE_POINT),
	VALUE(ERROR_INVALID_REPARSE_DATA),
	VALUE(ERROR_REPARSE_TAG_INVALID),
	VALUE(ERROR_REPARSE_TAG_MISMATCH),
	VALUE(ERROR_REPARSE_POINT_ENCOUNTERED),
	VALUE(ERROR_RESOURCE_NOT_AVAILABLE),
	VALUE(FVE_E_LOCKED_VOLUME),

	SAMPLED(nvme_namespace_query),
	SAMPLED(nvme_namespace),
	SAMPLED(layout_gpt),
	SAMPLED(layout_mbr),
	SAMPLED(create_disk),
	SAMPLED(grow_partition),
	SAMPLED(length),
	SAMPLED(device_number),
	SAMPLED(property_query),
	SAMPLED(scsi_address),
	SAMPLED(geometry),
	SAMPLED(get_disk_attributes),
	SAMPLED(set_disk_attributes),
	SAMPLED(extents),
	SAMPLED(ntfs_volume_data),
	SAMPLED(refs_volume_data),
	SAMPLED(device_descriptor),
	SAMPLED(device_location),
	SAMPLED(reparse_symlink),
	SAMPLED(reparse_mount_point),

	GUID_OF_HEADER(GUID_DEVINTERFACE_DISK),
	GUID_OF_HEADER(GUID_DEVINTERFACE_VOLUME),
	GUID_OF_HEADER(GUID_DEVINTERFACE_STORAGEPORT),
	GUID_OF_HEADER(PARTITION_BASIC_DATA_GUID),
	GUID_OF_HEADER(PARTITION_MSFT_RESERVED_GUID),
	GUID_OF_HEADER(PARTITION_SYSTEM_GUID),
};
