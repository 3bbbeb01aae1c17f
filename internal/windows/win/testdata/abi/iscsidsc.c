/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What package winsys takes from iscsidsc.h. */

#include "abi.h"
#include "iscsidsc.h"

#define PORTAL_INFO(address, port) { \
	.InitiatorName = L"initiator", .InitiatorPortNumber = ISCSI_ALL_INITIATOR_PORTS, \
	.SymbolicName = L"symbolic", .Address = address, .Socket = port, .SecurityFlags = 0x7f, \
	.LoginOptions = { .AuthType = ISCSI_CHAP_AUTH_TYPE, .Password = (UCHAR *)0x1122334455667788 }, \
}

/* Addresses fill their array but for the NUL. */
#define A16(text) text text text text text text text text text text text text text text text text
#define LONGEST L"a23456789012345" A16(L"b234567890") A16(L"c2345")

SAMPLE(ISCSI_TARGET_PORTALW, iscsi_portal) = { .Address = L"fd00::1", .Socket = 3261 };
typedef struct {
	ISCSI_TARGET_PORTAL_INFO_EXW infos[2];
} portals_of_two;
SAMPLE(portals_of_two, iscsi_portals) = { { PORTAL_INFO(L"192.0.2.1", 3260), PORTAL_INFO(LONGEST, 65535) } };

/* The addresses are those of a buffer at SESSIONS. */
#define SESSIONS 0x7ff612340000
#define SESSIONS_FIELD(field) ((void *)(SESSIONS + offsetof(sessions_of_two, field)))
typedef struct {
	ISCSI_SESSION_INFOW infos[2];
	ISCSI_CONNECTION_INFOW connection;
	WCHAR initiator[16], name[20], other_name[20], portal[12];
} sessions_of_two;
SAMPLE(sessions_of_two, iscsi_sessions) = {
	.infos = {
		{
			.SessionId = { 0xffff8d8012345010, 0x4000013700000002 },
			.InitiatorName = SESSIONS_FIELD(initiator),
			.TargetNodeName = SESSIONS_FIELD(name),
			.TargetName = SESSIONS_FIELD(other_name),
			.ISID = { 0x40, 0, 1, 0x37, 0, 0 }, .TSID = { 1, 2 },
			.ConnectionCount = 1,
			.Connections = SESSIONS_FIELD(connection),
		},
		{ .SessionId = { 3, 4 }, .TargetName = SESSIONS_FIELD(other_name) },
	},
	.connection = {
		.ConnectionId = { 5, 6 }, .InitiatorAddress = SESSIONS_FIELD(initiator), .TargetAddress = SESSIONS_FIELD(portal),
		.InitiatorSocket = 50000, .TargetSocket = 860, .CID = { 1, 0 },
	},
	.portal = L"192.0.2.1", .initiator = L"iqn.initiator", .name = L"iqn.2026-01.a:1", .other_name = L"iqn.2026-01.a:2",
};

typedef struct {
	ISCSI_DEVICE_ON_SESSIONW devices[2];
} devices_of_two;
SAMPLE(devices_of_two, iscsi_devices) = { {
	{
		.InitiatorName = L"initiator", .TargetName = L"iqn.2026-01.a:1",
		.ScsiAddress = { sizeof(SCSI_ADDRESS), 5, 6, 7, 8 },
		.DeviceInterfaceName = L"\\\\?\\interface", .LegacyName = L"\\\\.\\PhysicalDrive3",
		.StorageDeviceNumber = { FILE_DEVICE_DISK, 3, 0 }, .DeviceInstance = 9,
	},
	{
		.ScsiAddress = { sizeof(SCSI_ADDRESS), 5, 6, 7, 9 },
		.StorageDeviceNumber = { FILE_DEVICE_DISK, 0xffffffff, 0xffffffff },
	},
} };

SAMPLE(PERSISTENT_ISCSI_LOGIN_INFOW, iscsi_persistent_login) = {
	.TargetName = L"iqn.2026-01.a:1", .IsInformationalSession = TRUE,
	.InitiatorInstance = L"ROOT\\ISCSIPRT\\0000_0", .InitiatorPortNumber = 2,
	.TargetPortal = { .SymbolicName = L"symbolic", .Address = L"192.0.2.1", .Socket = 3260 },
	.SecurityFlags = 0x7f, .Mappings = (ISCSI_TARGET_MAPPINGW *)0x1122334455667788,
	.LoginOptions = { .AuthType = ISCSI_MUTUAL_CHAP_AUTH_TYPE, .Password = (UCHAR *)0x1122334455667788 },
};

LINES = {
	VALUE(MAX_ISCSI_NAME_LEN),
	VALUE(ISCSI_ANY_INITIATOR_PORT),
	VALUE(ISCSI_ALL_INITIATOR_PORTS),
	VALUE(ISCSI_LOGIN_OPTIONS_VERSION),
	VALUE(ISCSI_LOGIN_OPTIONS_USERNAME),
	VALUE(ISCSI_LOGIN_OPTIONS_PASSWORD),
	VALUE(ISCSI_LOGIN_OPTIONS_AUTH_TYPE),
	VALUE(ISCSI_NO_AUTH_TYPE),
	VALUE(ISCSI_CHAP_AUTH_TYPE),
	VALUE(ISCSI_MUTUAL_CHAP_AUTH_TYPE),
	VALUE(DiscoveryMechanisms),

	SIZE(ISCSI_LOGIN_OPTIONS),
	OFFSET(ISCSI_LOGIN_OPTIONS, Version),
	OFFSET(ISCSI_LOGIN_OPTIONS, InformationSpecified),
	OFFSET(ISCSI_LOGIN_OPTIONS, LoginFlags),
	OFFSET(ISCSI_LOGIN_OPTIONS, AuthType),
	OFFSET(ISCSI_LOGIN_OPTIONS, HeaderDigest),
	OFFSET(ISCSI_LOGIN_OPTIONS, DataDigest),
	OFFSET(ISCSI_LOGIN_OPTIONS, MaximumConnections),
	OFFSET(ISCSI_LOGIN_OPTIONS, DefaultTime2Wait),
	OFFSET(ISCSI_LOGIN_OPTIONS, DefaultTime2Retain),
	OFFSET(ISCSI_LOGIN_OPTIONS, UsernameLength),
	OFFSET(ISCSI_LOGIN_OPTIONS, PasswordLength),
	OFFSET(ISCSI_LOGIN_OPTIONS, Username),
	OFFSET(ISCSI_LOGIN_OPTIONS, Password),

	SIZE(ISCSI_UNIQUE_SESSION_ID),
	OFFSET(ISCSI_UNIQUE_SESSION_ID, AdapterUnique),
	OFFSET(ISCSI_UNIQUE_SESSION_ID, AdapterSpecific),

	SIZE(ISCSI_TARGET_PORTALW),
	OFFSET(ISCSI_TARGET_PORTALW, SymbolicName),
	OFFSET(ISCSI_TARGET_PORTALW, Address),
	OFFSET(ISCSI_TARGET_PORTALW, Socket),

	SIZE(ISCSI_TARGET_PORTAL_INFO_EXW),
	OFFSET(ISCSI_TARGET_PORTAL_INFO_EXW, InitiatorPortNumber),
	OFFSET(ISCSI_TARGET_PORTAL_INFO_EXW, SymbolicName),
	OFFSET(ISCSI_TARGET_PORTAL_INFO_EXW, Address),
	OFFSET(ISCSI_TARGET_PORTAL_INFO_EXW, Socket),
	OFFSET(ISCSI_TARGET_PORTAL_INFO_EXW, SecurityFlags),
	OFFSET(ISCSI_TARGET_PORTAL_INFO_EXW, LoginOptions),

	SIZE(ISCSI_SESSION_INFOW),
	OFFSET(ISCSI_SESSION_INFOW, SessionId),
	OFFSET(ISCSI_SESSION_INFOW, InitiatorName),
	OFFSET(ISCSI_SESSION_INFOW, TargetNodeName),
	OFFSET(ISCSI_SESSION_INFOW, TargetName),
	OFFSET(ISCSI_SESSION_INFOW, ISID),
	OFFSET(ISCSI_SESSION_INFOW, TSID),
	OFFSET(ISCSI_SESSION_INFOW, ConnectionCount),
	OFFSET(ISCSI_SESSION_INFOW, Connections),

	SIZE(ISCSI_CONNECTION_INFOW),
	OFFSET(ISCSI_CONNECTION_INFOW, ConnectionId),
	OFFSET(ISCSI_CONNECTION_INFOW, InitiatorAddress),
	OFFSET(ISCSI_CONNECTION_INFOW, TargetAddress),
	OFFSET(ISCSI_CONNECTION_INFOW, InitiatorSocket),
	OFFSET(ISCSI_CONNECTION_INFOW, TargetSocket),
	OFFSET(ISCSI_CONNECTION_INFOW, CID),

	SIZE(ISCSI_DEVICE_ON_SESSIONW),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, TargetName),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, ScsiAddress),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, DeviceInterfaceType),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, DeviceInterfaceName),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, LegacyName),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, StorageDeviceNumber),
	OFFSET(ISCSI_DEVICE_ON_SESSIONW, DeviceInstance),

	SIZE(PERSISTENT_ISCSI_LOGIN_INFOW),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, TargetName),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, IsInformationalSession),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, InitiatorInstance),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, InitiatorPortNumber),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, TargetPortal),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, SecurityFlags),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, Mappings),
	OFFSET(PERSISTENT_ISCSI_LOGIN_INFOW, LoginOptions),

	SAMPLED(iscsi_portal),
	SAMPLED(iscsi_portals),
	SAMPLED(iscsi_sessions),
	SAMPLED(iscsi_devices),
	SAMPLED(iscsi_persistent_login),
};
