/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the project takes from iscsidsc.h of the Windows SDK. That of mingw-w64 10 has
 * other sizes of arrays and doesn't compile. The sizes asserted here are those that
 * the SDK's own header gives.
 *
 * https://learn.microsoft.com/windows/win32/api/iscsidsc/ */

#include <windows.h> /* with winioctl.h */
#include <ntddscsi.h>

#define MAX_ISCSI_HBANAME_LEN 256
#define MAX_ISCSI_NAME_LEN 223
#define MAX_ISCSI_PORTAL_NAME_LEN 256
#define MAX_ISCSI_PORTAL_ADDRESS_LEN 256
#define ISCSI_ANY_INITIATOR_PORT ((ULONG)-1)
#define ISCSI_ALL_INITIATOR_PORTS ((ULONG)-1)

#define ISCSI_LOGIN_OPTIONS_VERSION 0
#define ISCSI_LOGIN_OPTIONS_USERNAME 0x20
#define ISCSI_LOGIN_OPTIONS_PASSWORD 0x40
#define ISCSI_LOGIN_OPTIONS_AUTH_TYPE 0x80

typedef ULONG ISDSC_STATUS;
typedef ULONGLONG ISCSI_SECURITY_FLAGS;

typedef enum { ISCSI_DIGEST_TYPE_NONE, ISCSI_DIGEST_TYPE_CRC32C } ISCSI_DIGEST_TYPES;
typedef enum { ISCSI_NO_AUTH_TYPE, ISCSI_CHAP_AUTH_TYPE, ISCSI_MUTUAL_CHAP_AUTH_TYPE } ISCSI_AUTH_TYPES;
typedef enum {
	ProtocolType, TargetAlias, DiscoveryMechanisms, PortalGroups, PersistentTargetMappings, InitiatorName,
	TargetFlags, LoginOptions
} TARGET_INFORMATION_CLASS;

typedef struct {
	ULONG Version, InformationSpecified, LoginFlags;
	ISCSI_AUTH_TYPES AuthType;
	ISCSI_DIGEST_TYPES HeaderDigest, DataDigest;
	ULONG MaximumConnections, DefaultTime2Wait, DefaultTime2Retain, UsernameLength, PasswordLength;
	UCHAR *Username, *Password;
} ISCSI_LOGIN_OPTIONS;

typedef struct {
	ULONGLONG AdapterUnique, AdapterSpecific;
} ISCSI_UNIQUE_SESSION_ID, ISCSI_UNIQUE_CONNECTION_ID;

typedef struct {
	ULONG OSLUN;
	ULONGLONG TargetLUN;
} SCSI_LUN_LIST;

typedef struct {
	WCHAR InitiatorName[MAX_ISCSI_HBANAME_LEN], TargetName[MAX_ISCSI_NAME_LEN + 1], OSDeviceName[MAX_PATH];
	ISCSI_UNIQUE_SESSION_ID SessionId;
	ULONG OSBusNumber, OSTargetNumber, LUNCount;
	SCSI_LUN_LIST *LUNList;
} ISCSI_TARGET_MAPPINGW;

typedef struct {
	WCHAR SymbolicName[MAX_ISCSI_PORTAL_NAME_LEN], Address[MAX_ISCSI_PORTAL_ADDRESS_LEN];
	USHORT Socket;
} ISCSI_TARGET_PORTALW;

typedef struct {
	WCHAR InitiatorName[MAX_ISCSI_HBANAME_LEN];
	ULONG InitiatorPortNumber;
	WCHAR SymbolicName[MAX_ISCSI_PORTAL_NAME_LEN], Address[MAX_ISCSI_PORTAL_ADDRESS_LEN];
	USHORT Socket;
	ISCSI_SECURITY_FLAGS SecurityFlags;
	ISCSI_LOGIN_OPTIONS LoginOptions;
} ISCSI_TARGET_PORTAL_INFO_EXW;

typedef struct {
	ISCSI_UNIQUE_CONNECTION_ID ConnectionId;
	WCHAR *InitiatorAddress, *TargetAddress;
	USHORT InitiatorSocket, TargetSocket;
	UCHAR CID[2];
} ISCSI_CONNECTION_INFOW;

typedef struct {
	ISCSI_UNIQUE_SESSION_ID SessionId;
	WCHAR *InitiatorName, *TargetNodeName, *TargetName;
	UCHAR ISID[6], TSID[2];
	ULONG ConnectionCount;
	ISCSI_CONNECTION_INFOW *Connections;
} ISCSI_SESSION_INFOW;

typedef struct {
	WCHAR InitiatorName[MAX_ISCSI_HBANAME_LEN], TargetName[MAX_ISCSI_NAME_LEN + 1];
	SCSI_ADDRESS ScsiAddress;
	GUID DeviceInterfaceType;
	WCHAR DeviceInterfaceName[MAX_PATH], LegacyName[MAX_PATH];
	STORAGE_DEVICE_NUMBER StorageDeviceNumber;
	DWORD DeviceInstance;
} ISCSI_DEVICE_ON_SESSIONW;

typedef struct {
	WCHAR TargetName[MAX_ISCSI_NAME_LEN + 1];
	BOOLEAN IsInformationalSession;
	WCHAR InitiatorInstance[MAX_ISCSI_HBANAME_LEN];
	ULONG InitiatorPortNumber;
	ISCSI_TARGET_PORTALW TargetPortal;
	ISCSI_SECURITY_FLAGS SecurityFlags;
	ISCSI_TARGET_MAPPINGW *Mappings;
	ISCSI_LOGIN_OPTIONS LoginOptions;
} PERSISTENT_ISCSI_LOGIN_INFOW;

#define SIZE_IS(type, size) _Static_assert(sizeof(type) == size, #type)
SIZE_IS(ISCSI_LOGIN_OPTIONS, 64);
SIZE_IS(ISCSI_UNIQUE_SESSION_ID, 16);
SIZE_IS(ISCSI_TARGET_MAPPINGW, 1520);
SIZE_IS(ISCSI_TARGET_PORTALW, 1026);
SIZE_IS(ISCSI_TARGET_PORTAL_INFO_EXW, 1616);
SIZE_IS(ISCSI_CONNECTION_INFOW, 40);
SIZE_IS(ISCSI_SESSION_INFOW, 64);
SIZE_IS(ISCSI_DEVICE_ON_SESSIONW, 2040);
SIZE_IS(PERSISTENT_ISCSI_LOGIN_INFOW, 2080);
#undef SIZE_IS
