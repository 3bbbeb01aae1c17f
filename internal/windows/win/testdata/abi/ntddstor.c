/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What package win takes from ntddstor.h, which can't be included beside winioctl.h. */

#define WIN32_LEAN_AND_MEAN
#include "abi.h"
typedef DWORD DEVICE_TYPE; /* of winioctl.h */
#include <ntddstor.h>

SAMPLE(STORAGE_DEVICE_ID_DESCRIPTOR, device_ids) = {
	.Version = sizeof(STORAGE_DEVICE_ID_DESCRIPTOR), .Size = 0x1234, .NumberOfIdentifiers = 2,
};
/* Identifiers are longer than what Identifier has room for. */
SAMPLE(STORAGE_IDENTIFIER, identifier) = {
	.CodeSet = StorageIdCodeSetBinary, .Type = StorageIdTypeFCPHName,
	.IdentifierSize = 8, .NextOffset = 24, .Association = StorageIdAssocDevice,
};

LINES = {
	OFFSET(STORAGE_DEVICE_ID_DESCRIPTOR, Size),
	OFFSET(STORAGE_DEVICE_ID_DESCRIPTOR, NumberOfIdentifiers),
	OFFSET(STORAGE_DEVICE_ID_DESCRIPTOR, Identifiers),
	OFFSET(STORAGE_IDENTIFIER, CodeSet),
	OFFSET(STORAGE_IDENTIFIER, Type),
	OFFSET(STORAGE_IDENTIFIER, IdentifierSize),
	OFFSET(STORAGE_IDENTIFIER, NextOffset),
	OFFSET(STORAGE_IDENTIFIER, Association),
	OFFSET(STORAGE_IDENTIFIER, Identifier),

	VALUE(StorageIdCodeSetBinary),
	VALUE(StorageIdCodeSetAscii),
	VALUE(StorageIdCodeSetUtf8),
	VALUE(StorageIdTypeVendorSpecific),
	VALUE(StorageIdTypeVendorId),
	VALUE(StorageIdTypeEUI64),
	VALUE(StorageIdTypeFCPHName),
	VALUE(StorageIdTypePortRelative),
	VALUE(StorageIdAssocDevice),
	VALUE(StorageIdAssocPort),
	VALUE(StorageIdAssocTarget),

	SAMPLED(device_ids),
	SAMPLED(identifier),
};
