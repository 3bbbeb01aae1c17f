/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A kernel driver for Wine that acts as a disk, PhysicalDrive9, and the volume on its
 * second partition. It answers with the structures of Windows' own headers, and records
 * each request with the fields as C reads them. So the daemon's bytes go through
 * CreateFileW and DeviceIoControl to code that shares nothing with the daemon. It keeps
 * a partition table, but no data: reads return zeros.
 *
 * Built by build; driver_windows_test.go drives it. */

#include <ntddk.h>
#include <ntifs.h>
#include <stdarg.h>
#include <ntdddisk.h>
#include <ntddscsi.h>
#include <ntddstor.h>
#include <ntddvol.h>

/* Of the documentation: mingw-w64's headers for drivers don't have these.
 *
 * https://learn.microsoft.com/windows/win32/api/winioctl/ */

#define IOCTL_DISK_GET_DISK_ATTRIBUTES CTL_CODE(IOCTL_DISK_BASE, 0x3c, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define IOCTL_DISK_SET_DISK_ATTRIBUTES \
	CTL_CODE(IOCTL_DISK_BASE, 0x3d, METHOD_BUFFERED, FILE_READ_ACCESS | FILE_WRITE_ACCESS)

typedef struct {
	ULONG Version, Reserved1;
	ULONGLONG Attributes;
} GET_DISK_ATTRIBUTES;

typedef struct {
	ULONG Version;
	BOOLEAN Persist;
	UCHAR Reserved1[3];
	ULONGLONG Attributes, AttributesMask;
	ULONG Reserved2[4];
} SET_DISK_ATTRIBUTES;

typedef struct {
	PARTITION_STYLE PartitionStyle;
	union {
		struct { ULONG Signature; } Mbr;
		struct { GUID DiskId; ULONG MaxPartitionCount; } Gpt;
	};
} CREATE_DISK;

/* The driver's own: take what was written down so far; make the disk larger. */
#define IOCTL_TAKE_RECORD CTL_CODE(FILE_DEVICE_UNKNOWN, 0x800, METHOD_BUFFERED, FILE_ANY_ACCESS)
#define IOCTL_GROW_DISK CTL_CODE(FILE_DEVICE_UNKNOWN, 0x801, METHOD_BUFFERED, FILE_ANY_ACCESS)

#define NUMBER 9
#define VOLUME_PARTITION 2
#define SECTOR 512
#define FRONT (34 * SECTOR) /* of a GPT, with the protective MBR */
#define BACK (33 * SECTOR)
#define ENTRIES 8

/* The hardware, and what the disk driver has seen of it. */
static LONGLONG size = 1LL << 30, seen = 1LL << 30;
static ULONGLONG attributes = 1; /* DISK_ATTRIBUTE_OFFLINE */
static LONGLONG layout[(sizeof(DRIVE_LAYOUT_INFORMATION_EX) + ENTRIES * sizeof(PARTITION_INFORMATION_EX)) / sizeof(LONGLONG)];
static DRIVE_LAYOUT_INFORMATION_EX *const table = (void *)layout;
static LONGLONG sectors = 2048; /* of the file system */

static DEVICE_OBJECT *disk, *volume;

static char record[16384];
static ULONG recorded;

int __cdecl _vsnprintf(char *buffer, size_t size, const char *format, va_list args); /* of ntoskrnl.exe */

static void write_down(const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = _vsnprintf(record + recorded, sizeof(record) - recorded, format, args);
	va_end(args);
	if (n > 0)
		recorded += n;
}

#define GUID_FORMAT "{%08lx-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x}"
#define GUID_FIELDS(g) (g).Data1, (g).Data2, (g).Data3, (g).Data4[0], (g).Data4[1], (g).Data4[2], \
	(g).Data4[3], (g).Data4[4], (g).Data4[5], (g).Data4[6], (g).Data4[7]

/* What a control call gets and gives: the buffer of both, how much came in, how
 * much may go out. Each handler returns how much does. */
struct call {
	void *buffer;
	ULONG in, out;
	ULONG_PTR returned;
};

#define ANSWER(call, value) answer(call, &(value), sizeof(value))

static NTSTATUS answer(struct call *c, const void *value, ULONG length)
{
	if (c->out < length)
		return STATUS_BUFFER_TOO_SMALL;
	memcpy(c->buffer, value, length);
	c->returned = length;
	return STATUS_SUCCESS;
}

/* A descriptor that doesn't fit is cut. */
static NTSTATUS describe(struct call *c, const void *value, ULONG length)
{
	return answer(c, value, length < c->out ? length : c->out);
}

static NTSTATUS query_property(struct call *c)
{
	const STORAGE_PROPERTY_QUERY *query = c->buffer;

	if (c->in < sizeof(*query) || query->QueryType != PropertyStandardQuery)
		return STATUS_INVALID_PARAMETER;
	switch ((int)query->PropertyId) {
	case StorageDeviceProperty: {
		struct {
			STORAGE_DEVICE_DESCRIPTOR d;
			char vendor[8], serial[24];
		} answer = {
			.d = {
				.Version = sizeof(STORAGE_DEVICE_DESCRIPTOR), .Size = sizeof(answer), .BusType = BusTypeSas,
				.SerialNumberOffset = (char *)answer.serial - (char *)&answer,
				.VendorIdOffset = (char *)answer.vendor - (char *)&answer,
			},
			.vendor = "Double", .serial = "  vol0123456789abcdef0 ",
		};
		return describe(c, &answer, sizeof(answer));
	}
	case StorageDeviceIdProperty: {
		/* The first is of the port, the second of the device. */
		struct {
			STORAGE_DEVICE_ID_DESCRIPTOR d;
			UCHAR identifiers[64];
		} answer = { .d = { .Version = sizeof(STORAGE_DEVICE_ID_DESCRIPTOR), .NumberOfIdentifiers = 2 } };
		static const UCHAR naa[8] = { 0x60, 0x02, 0x24, 0x80, 0xab, 0xcd, 0xef, 0x01 };
		STORAGE_IDENTIFIER *id = (STORAGE_IDENTIFIER *)answer.d.Identifiers;

		id->CodeSet = StorageIdCodeSetAscii;
		id->Type = StorageIdTypePortRelative;
		id->Association = StorageIdAssocPort;
		id->IdentifierSize = 4;
		id->NextOffset = FIELD_OFFSET(STORAGE_IDENTIFIER, Identifier) + 4;
		memcpy(id->Identifier, "port", 4);
		id = (STORAGE_IDENTIFIER *)((UCHAR *)id + id->NextOffset);
		id->CodeSet = StorageIdCodeSetBinary;
		id->Type = StorageIdTypeFCPHName;
		id->Association = StorageIdAssocDevice;
		id->IdentifierSize = sizeof(naa);
		memcpy(id->Identifier, naa, sizeof(naa));
		answer.d.Size = (UCHAR *)id->Identifier + sizeof(naa) - (UCHAR *)&answer;
		return describe(c, &answer, answer.d.Size);
	}
	default:
		return STATUS_INVALID_DEVICE_REQUEST;
	}
}

static DISK_GEOMETRY geometry(void)
{
	DISK_GEOMETRY g = {
		.Cylinders.QuadPart = seen / (255 * 63 * SECTOR), .MediaType = FixedMedia,
		.TracksPerCylinder = 255, .SectorsPerTrack = 63, .BytesPerSector = SECTOR,
	};
	return g;
}

static NTSTATUS create_disk(struct call *c)
{
	const CREATE_DISK *create = c->buffer;

	if (c->in < sizeof(*create) || create->PartitionStyle != PARTITION_STYLE_GPT)
		return STATUS_INVALID_PARAMETER;
	write_down("create style=%d id=" GUID_FORMAT " max=%lu\n", create->PartitionStyle,
		GUID_FIELDS(create->Gpt.DiskId), create->Gpt.MaxPartitionCount);
	memset(layout, 0, sizeof(layout));
	table->PartitionStyle = PARTITION_STYLE_GPT;
	table->Gpt.DiskId = create->Gpt.DiskId;
	table->Gpt.StartingUsableOffset.QuadPart = FRONT;
	table->Gpt.UsableLength.QuadPart = seen - FRONT - BACK;
	table->Gpt.MaxPartitionCount = create->Gpt.MaxPartitionCount;
	return STATUS_SUCCESS;
}

static ULONG layout_size(ULONG count)
{
	return FIELD_OFFSET(DRIVE_LAYOUT_INFORMATION_EX, PartitionEntry) + count * sizeof(PARTITION_INFORMATION_EX);
}

static NTSTATUS set_layout(struct call *c)
{
	const DRIVE_LAYOUT_INFORMATION_EX *in = c->buffer;
	ULONG i;

	if (c->in < layout_size(0) || in->PartitionCount > ENTRIES || c->in < layout_size(in->PartitionCount))
		return STATUS_INFO_LENGTH_MISMATCH;
	write_down("layout style=%lu count=%lu id=" GUID_FORMAT " usable=%I64d+%I64d max=%lu\n", in->PartitionStyle,
		in->PartitionCount, GUID_FIELDS(in->Gpt.DiskId), in->Gpt.StartingUsableOffset.QuadPart,
		in->Gpt.UsableLength.QuadPart, in->Gpt.MaxPartitionCount);
	for (i = 0; i < in->PartitionCount; i++) {
		const PARTITION_INFORMATION_EX *p = &in->PartitionEntry[i];

		write_down("partition style=%d start=%I64d length=%I64d number=%lu rewrite=%d type=" GUID_FORMAT
			" id=" GUID_FORMAT " attributes=%I64x name=%ws\n", p->PartitionStyle, p->StartingOffset.QuadPart,
			p->PartitionLength.QuadPart, p->PartitionNumber, p->RewritePartition,
			GUID_FIELDS(p->Gpt.PartitionType), GUID_FIELDS(p->Gpt.PartitionId), p->Gpt.Attributes, p->Gpt.Name);
	}
	memcpy(layout, in, layout_size(in->PartitionCount));
	for (i = 0; i < in->PartitionCount; i++) {
		table->PartitionEntry[i].PartitionNumber = i + 1;
		table->PartitionEntry[i].RewritePartition = FALSE;
	}
	return STATUS_SUCCESS;
}

static NTSTATUS grow_partition(struct call *c)
{
	const DISK_GROW_PARTITION *grow = c->buffer;

	if (c->in < sizeof(*grow) || grow->PartitionNumber == 0 || grow->PartitionNumber > table->PartitionCount)
		return STATUS_INVALID_PARAMETER;
	write_down("grow number=%lu bytes=%I64d\n", grow->PartitionNumber, grow->BytesToGrow.QuadPart);
	table->PartitionEntry[grow->PartitionNumber - 1].PartitionLength.QuadPart += grow->BytesToGrow.QuadPart;
	return STATUS_SUCCESS;
}

static NTSTATUS set_attributes(struct call *c)
{
	const SET_DISK_ATTRIBUTES *set = c->buffer;

	if (c->in < sizeof(*set) || set->Version != sizeof(*set))
		return STATUS_INVALID_PARAMETER;
	write_down("attributes persist=%d attributes=%I64x mask=%I64x\n", set->Persist, set->Attributes, set->AttributesMask);
	attributes = (attributes & ~set->AttributesMask) | (set->Attributes & set->AttributesMask);
	return STATUS_SUCCESS;
}

static NTSTATUS control_disk(ULONG code, struct call *c)
{
	switch (code) {
	case IOCTL_STORAGE_GET_DEVICE_NUMBER: {
		STORAGE_DEVICE_NUMBER number = { FILE_DEVICE_DISK, NUMBER, 0 };
		return ANSWER(c, number);
	}
	case IOCTL_STORAGE_QUERY_PROPERTY:
		return query_property(c);
	case IOCTL_SCSI_GET_ADDRESS: {
		SCSI_ADDRESS address = { sizeof(address), 3, 0, 1, 7 };
		return ANSWER(c, address);
	}
	case IOCTL_DISK_GET_LENGTH_INFO: {
		GET_LENGTH_INFORMATION length = { { .QuadPart = seen } };
		return ANSWER(c, length);
	}
	case IOCTL_DISK_GET_DRIVE_GEOMETRY_EX: {
		DISK_GEOMETRY_EX g = { .Geometry = geometry(), .DiskSize.QuadPart = seen };
		return ANSWER(c, g);
	}
	case IOCTL_DISK_UPDATE_DRIVE_SIZE: {
		DISK_GEOMETRY g;

		if (c->out < sizeof(g))
			return STATUS_BUFFER_TOO_SMALL;
		write_down("update size\n");
		seen = size;
		g = geometry();
		return ANSWER(c, g);
	}
	case IOCTL_DISK_UPDATE_PROPERTIES:
		write_down("update properties\n");
		if (table->PartitionStyle == PARTITION_STYLE_GPT)
			table->Gpt.UsableLength.QuadPart = seen - FRONT - BACK; /* the copy of the table moves to the end */
		return STATUS_SUCCESS;
	case IOCTL_DISK_GET_DISK_ATTRIBUTES: {
		GET_DISK_ATTRIBUTES get = { sizeof(get), 0, attributes };
		return ANSWER(c, get);
	}
	case IOCTL_DISK_SET_DISK_ATTRIBUTES:
		return set_attributes(c);
	case IOCTL_DISK_GET_DRIVE_LAYOUT_EX:
		return answer(c, layout, layout_size(table->PartitionCount));
	case IOCTL_DISK_SET_DRIVE_LAYOUT_EX:
		return set_layout(c);
	case IOCTL_DISK_CREATE_DISK:
		return create_disk(c);
	case IOCTL_DISK_GROW_PARTITION:
		return grow_partition(c);
	case IOCTL_TAKE_RECORD: {
		NTSTATUS status = answer(c, record, recorded);
		recorded = 0;
		return status;
	}
	case IOCTL_GROW_DISK:
		if (c->in < sizeof(size))
			return STATUS_INVALID_PARAMETER;
		memcpy(&size, c->buffer, sizeof(size));
		return STATUS_SUCCESS;
	}
	return STATUS_INVALID_DEVICE_REQUEST;
}

static NTSTATUS control_volume(ULONG code, struct call *c)
{
	const PARTITION_INFORMATION_EX *p = &table->PartitionEntry[VOLUME_PARTITION - 1];

	switch (code) {
	case IOCTL_STORAGE_GET_DEVICE_NUMBER: {
		STORAGE_DEVICE_NUMBER number = { FILE_DEVICE_DISK, NUMBER, VOLUME_PARTITION };
		return ANSWER(c, number);
	}
	case IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS: {
		VOLUME_DISK_EXTENTS extents = { 1, { { NUMBER, p->StartingOffset, p->PartitionLength } } };
		return ANSWER(c, extents);
	}
	case IOCTL_VOLUME_OFFLINE:
		write_down("volume offline\n");
		return STATUS_SUCCESS;
	case IOCTL_VOLUME_ONLINE:
		write_down("volume online\n");
		return STATUS_SUCCESS;
	case FSCTL_GET_NTFS_VOLUME_DATA: {
		NTFS_VOLUME_DATA_BUFFER data = {
			.NumberSectors.QuadPart = sectors, .TotalClusters.QuadPart = sectors / 8,
			.BytesPerSector = SECTOR, .BytesPerCluster = 8 * SECTOR,
		};
		return ANSWER(c, data);
	}
	case FSCTL_EXTEND_VOLUME:
		if (c->in < sizeof(sectors))
			return STATUS_INVALID_PARAMETER;
		memcpy(&sectors, c->buffer, sizeof(sectors));
		write_down("extend sectors=%I64d\n", sectors);
		return STATUS_SUCCESS;
	}
	return STATUS_INVALID_DEVICE_REQUEST;
}

static NTSTATUS complete(IRP *irp, NTSTATUS status, ULONG_PTR information)
{
	irp->IoStatus.Status = status;
	irp->IoStatus.Information = information;
	IoCompleteRequest(irp, IO_NO_INCREMENT);
	return status;
}

static NTSTATUS NTAPI open_or_close(DEVICE_OBJECT *device, IRP *irp)
{
	return complete(irp, STATUS_SUCCESS, 0);
}

static NTSTATUS NTAPI control(DEVICE_OBJECT *device, IRP *irp)
{
	IO_STACK_LOCATION *stack = IoGetCurrentIrpStackLocation(irp);
	ULONG code = stack->Parameters.DeviceIoControl.IoControlCode;
	struct call c = {
		irp->AssociatedIrp.SystemBuffer,
		stack->Parameters.DeviceIoControl.InputBufferLength,
		stack->Parameters.DeviceIoControl.OutputBufferLength,
	};
	NTSTATUS status;

	status = device == disk ? control_disk(code, &c) : control_volume(code, &c);
	return complete(irp, status, c.returned);
}

static NTSTATUS NTAPI read(DEVICE_OBJECT *device, IRP *irp)
{
	IO_STACK_LOCATION *stack = IoGetCurrentIrpStackLocation(irp);
	ULONG length = stack->Parameters.Read.Length;
	LONGLONG offset = stack->Parameters.Read.ByteOffset.QuadPart;

	if (length % SECTOR || offset % SECTOR || offset < 0 || offset + length > seen)
		return complete(irp, STATUS_INVALID_PARAMETER, 0);
	memset(irp->AssociatedIrp.SystemBuffer, 0, length);
	return complete(irp, STATUS_SUCCESS, length);
}

/* Makes a device with a name that CreateFileW finds. */
static NTSTATUS make(DRIVER_OBJECT *driver, const WCHAR *name, const WCHAR *link, DEVICE_OBJECT **device)
{
	UNICODE_STRING name_string, link_string;
	NTSTATUS status;

	RtlInitUnicodeString(&name_string, name);
	RtlInitUnicodeString(&link_string, link);
	status = IoCreateDevice(driver, 0, &name_string, FILE_DEVICE_DISK, 0, FALSE, device);
	if (!NT_SUCCESS(status))
		return status;
	(*device)->Flags |= DO_BUFFERED_IO;
	(*device)->Flags &= ~DO_DEVICE_INITIALIZING;
	return IoCreateSymbolicLink(&link_string, &name_string);
}

NTSTATUS NTAPI DriverEntry(DRIVER_OBJECT *driver, UNICODE_STRING *path)
{
	NTSTATUS status;

	driver->MajorFunction[IRP_MJ_CREATE] = open_or_close;
	driver->MajorFunction[IRP_MJ_CLOSE] = open_or_close;
	driver->MajorFunction[IRP_MJ_READ] = read;
	driver->MajorFunction[IRP_MJ_DEVICE_CONTROL] = control;
	driver->MajorFunction[IRP_MJ_FILE_SYSTEM_CONTROL] = control;
	table->PartitionStyle = PARTITION_STYLE_RAW;
	status = make(driver, L"\\Device\\Harddisk9DR9", L"\\DosDevices\\PhysicalDrive9", &disk);
	if (NT_SUCCESS(status))
		status = make(driver, L"\\Device\\HarddiskVolume99",
			L"\\DosDevices\\Volume{c51a0000-0000-4000-8000-000000000009}", &volume);
	return status;
}
