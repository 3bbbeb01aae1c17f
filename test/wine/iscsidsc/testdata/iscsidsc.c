/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An iscsidsc.dll for Wine, which has none, that acts as the iSCSI initiator. It refuses
 * unexpected arguments, records the others with the fields as C reads them, and answers
 * with the structures of Windows' header. It fills the rest of a buffer, beyond the
 * answer, with rubbish, to catch callers that pass a wrong size or read too much.
 *
 * The functions Double… are for the test, which makes one call at a time.
 *
 * Built by build; iscsidsc_windows_test.go drives it. */

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "iscsidsc.h"

#define API __declspec(dllexport)

/* iscsierr.h of the Windows SDK. */
#define ISDSC_SHORT_CHAP_SECRET 0xAFFF0048u
#define ISDSC_CONNECTION_FAILED 0xEFFF0003u
#define ISDSC_AUTHENTICATION_FAILED 0xEFFF0009u
#define ISDSC_INVALID_SESSION_ID 0xEFFF001Cu
#define ISDSC_TARGET_NOT_FOUND 0xEFFF0029u
#define ISDSC_TARGET_PORTAL_ALREADY_EXISTS 0xEFFF0032u
#define ISDSC_TARGET_ALREADY_LOGGED_IN 0xEFFF003Fu
#define ISDSC_PORTAL_NOT_FOUND 0xEFFF0043u

#define CHAP_SECRET_MIN 12
#define RUBBISH 0xCC
#define ALIGNED(buffer) (!((ULONG_PTR)(buffer) % sizeof(ULONGLONG)))
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* What is there. */

struct portal {
	WCHAR address[MAX_ISCSI_PORTAL_ADDRESS_LEN];
	USHORT port;
};

struct target {
	WCHAR name[MAX_ISCSI_NAME_LEN + 1];
	struct portal portal;
	char user[32], secret[32], mutual[32]; /* empty: without */
	ULONG luns;
	BOOL discovered;
};

struct session {
	ULONGLONG id; /* 0: none */
	const struct target *target;
	ULONG late; /* how many times its devices are reported without numbers */
};

static struct target targets[256];
static ULONG target_count;
static struct portal portals[8];
static ULONG portal_count;
static struct session sessions[128];
static ULONGLONG last_session;
static PERSISTENT_ISCSI_LOGIN_INFOW logins[8];
static ULONG login_count;
static char initiator_secret[32];

/* How it behaves. */

static ULONG too_small; /* what it says to too small a buffer */
static ULONG growing;	/* how many times a target comes while a buffer is made larger */
static ULONG late;
static struct {
	char function[40];
	ULONG status, times;
} fault;

/* Where it was given secrets, or gave them. */
static struct {
	const UCHAR *text;
	ULONG length;
} secrets[16];
static ULONG secret_count;

static char record[16384];
static ULONG recorded;

static void write_down(const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(record + recorded, sizeof(record) - recorded, format, args);
	va_end(args);
	if (n > 0 && (ULONG)n < sizeof(record) - recorded)
		recorded += n;
}

static void remember_secret(const UCHAR *text, ULONG length)
{
	if (secret_count < LENGTH(secrets)) {
		secrets[secret_count].text = text;
		secrets[secret_count++].length = length;
	}
}

/* The arguments that the daemon means to pass. */
#define REQUIRE(condition) do { \
	if (!(condition)) { \
		write_down("%s: not %s\n", __func__, #condition); \
		return ERROR_INVALID_PARAMETER; \
	} \
} while (0)

#define FAIL_IF_TOLD() do { \
	if (fault.times && !strcmp(fault.function, __func__)) { \
		fault.times--; \
		return fault.status; \
	} \
} while (0)

static BOOL is_name(const WCHAR *name)
{
	size_t length = name ? wcsnlen(name, MAX_ISCSI_NAME_LEN + 1) : 0;

	return length > 0 && length <= MAX_ISCSI_NAME_LEN;
}

static BOOL is_portal(const ISCSI_TARGET_PORTALW *p)
{
	size_t length = p ? wcsnlen(p->Address, MAX_ISCSI_PORTAL_ADDRESS_LEN) : 0;

	return length > 0 && length < MAX_ISCSI_PORTAL_ADDRESS_LEN && p->Socket;
}

static BOOL is_unnamed_portal(const ISCSI_TARGET_PORTALW *p) { return is_portal(p) && !p->SymbolicName[0]; }

static BOOL same_portal(const struct portal *p, const ISCSI_TARGET_PORTALW *q)
{
	return p->port == q->Socket && !wcscmp(p->address, q->Address);
}

static struct portal *find_portal(const ISCSI_TARGET_PORTALW *p)
{
	for (ULONG i = 0; i < portal_count; i++)
		if (same_portal(&portals[i], p))
			return &portals[i];
	return NULL;
}

static struct target *find_target(const WCHAR *name)
{
	for (ULONG i = 0; i < target_count; i++)
		if (targets[i].discovered && !wcscmp(targets[i].name, name))
			return &targets[i];
	return NULL;
}

static struct session *find_session(const ISCSI_UNIQUE_SESSION_ID *id)
{
	for (ULONG i = 0; i < LENGTH(sessions); i++)
		if (sessions[i].id && sessions[i].id == id->AdapterSpecific && id->AdapterUnique == ~id->AdapterSpecific)
			return &sessions[i];
	return NULL;
}

/* Asks a portal for its targets. */
static ISDSC_STATUS discover(const ISCSI_TARGET_PORTALW *p)
{
	ISDSC_STATUS status = ISDSC_CONNECTION_FAILED; /* nobody answers there */

	for (ULONG i = 0; i < target_count; i++)
		if (same_portal(&targets[i].portal, p)) {
			targets[i].discovered = TRUE;
			status = ERROR_SUCCESS;
		}
	return status;
}

/* Discovery. */

API ISDSC_STATUS WINAPI AddIScsiSendTargetPortalW(WCHAR *initiator, ULONG port, ISCSI_LOGIN_OPTIONS *options,
	ISCSI_SECURITY_FLAGS security, ISCSI_TARGET_PORTALW *portal)
{
	ISDSC_STATUS status;

	REQUIRE(!initiator && port == ISCSI_ALL_INITIATOR_PORTS && !options && !security);
	REQUIRE(is_unnamed_portal(portal));
	write_down("add portal %ls %u\n", portal->Address, portal->Socket);
	FAIL_IF_TOLD();
	if (find_portal(portal))
		return ISDSC_TARGET_PORTAL_ALREADY_EXISTS;
	status = discover(portal);
	if (!status && portal_count < LENGTH(portals)) {
		wcscpy(portals[portal_count].address, portal->Address);
		portals[portal_count++].port = portal->Socket;
	}
	return status;
}

API ISDSC_STATUS WINAPI RemoveIScsiSendTargetPortalW(WCHAR *initiator, ULONG port, ISCSI_TARGET_PORTALW *portal)
{
	struct portal *known;

	REQUIRE(!initiator && port == ISCSI_ALL_INITIATOR_PORTS);
	REQUIRE(is_unnamed_portal(portal));
	write_down("remove portal %ls %u\n", portal->Address, portal->Socket);
	FAIL_IF_TOLD();
	known = find_portal(portal);
	if (!known)
		return ISDSC_PORTAL_NOT_FOUND;
	*known = portals[--portal_count];
	return ERROR_SUCCESS;
}

API ISDSC_STATUS WINAPI RefreshIScsiSendTargetPortalW(WCHAR *initiator, ULONG port, ISCSI_TARGET_PORTALW *portal)
{
	REQUIRE(!initiator && port == ISCSI_ALL_INITIATOR_PORTS);
	REQUIRE(is_unnamed_portal(portal));
	write_down("refresh portal %ls %u\n", portal->Address, portal->Socket);
	FAIL_IF_TOLD();
	return find_portal(portal) ? discover(portal) : ISDSC_PORTAL_NOT_FOUND;
}

API ISDSC_STATUS WINAPI ReportIScsiSendTargetPortalsExW(ULONG *count, ULONG *size, ISCSI_TARGET_PORTAL_INFO_EXW *infos)
{
	ULONG room;

	REQUIRE(count && size && infos && ALIGNED(infos));
	FAIL_IF_TOLD();
	room = *size;
	*count = portal_count;
	*size = portal_count * sizeof(*infos);
	if (room < *size)
		return too_small;
	memset(infos, RUBBISH, room);
	for (ULONG i = 0; i < portal_count; i++) {
		wcscpy(infos[i].Address, portals[i].address);
		infos[i].Socket = portals[i].port;
	}
	return ERROR_SUCCESS;
}

API ISDSC_STATUS WINAPI ReportIScsiTargetsW(BOOLEAN force, ULONG *units, WCHAR *list)
{
	ULONG room, needed = 1;

	REQUIRE(!force && units && list);
	FAIL_IF_TOLD();
	room = *units;
	for (ULONG i = 0; i < target_count; i++)
		if (targets[i].discovered)
			needed += wcslen(targets[i].name) + 1;
	*units = needed;
	if (room < needed) {
		if (growing && target_count < LENGTH(targets)) {
			growing--;
			targets[target_count].discovered = TRUE;
			swprintf(targets[target_count].name, MAX_ISCSI_NAME_LEN, L"iqn.2026-01.example:late-%lu", growing);
			target_count++;
		}
		return too_small;
	}
	memset(list, RUBBISH, room * sizeof(*list));
	for (ULONG i = 0; i < target_count; i++)
		if (targets[i].discovered) {
			wcscpy(list, targets[i].name);
			list += wcslen(list) + 1;
		}
	*list = 0;
	return ERROR_SUCCESS;
}

API ISDSC_STATUS WINAPI GetIScsiTargetInformationW(WCHAR *name, WCHAR *mechanism, TARGET_INFORMATION_CLASS class, ULONG *size,
	void *buffer)
{
	const struct target *target;
	WCHAR list[2 * MAX_ISCSI_PORTAL_ADDRESS_LEN] = { 0 };
	ULONG room, needed;

	REQUIRE(is_name(name));
	REQUIRE(!mechanism && class == DiscoveryMechanisms && size && buffer);
	FAIL_IF_TOLD();
	target = find_target(name);
	if (!target)
		return ISDSC_TARGET_NOT_FOUND;
	room = *size; /* in bytes */
	needed = swprintf(list, LENGTH(list) - 2, L"SendTargets:*%ls %07u Root\\ISCSIPRT\\0000_0", target->portal.address,
		target->portal.port);
	needed = (needed + 2) * sizeof(*list);
	*size = needed;
	if (room < needed)
		return too_small;
	memset(buffer, RUBBISH, room);
	memcpy(buffer, list, needed);
	return ERROR_SUCCESS;
}

/* Sessions. */

/* Compares bytes that don't end with a NUL with a text. */
static BOOL is_text(const UCHAR *bytes, ULONG length, const char *text)
{
	return length == strlen(text) && !memcmp(bytes, text, length);
}

static ISDSC_STATUS authenticate(const struct target *target, const ISCSI_LOGIN_OPTIONS *options)
{
	if (!target->secret[0])
		return ERROR_SUCCESS;
	if (options->AuthType == ISCSI_NO_AUTH_TYPE)
		return ISDSC_AUTHENTICATION_FAILED;
	if (options->PasswordLength < CHAP_SECRET_MIN)
		return ISDSC_SHORT_CHAP_SECRET;
	if (!is_text(options->Username, options->UsernameLength, target->user) ||
	    !is_text(options->Password, options->PasswordLength, target->secret))
		return ISDSC_AUTHENTICATION_FAILED;
	if (options->AuthType == ISCSI_MUTUAL_CHAP_AUTH_TYPE && strcmp(target->mutual, initiator_secret))
		return ISDSC_AUTHENTICATION_FAILED;
	return ERROR_SUCCESS;
}

API ISDSC_STATUS WINAPI LoginIScsiTargetW(WCHAR *name, BOOLEAN informational, WCHAR *initiator, ULONG port,
	ISCSI_TARGET_PORTALW *portal, ISCSI_SECURITY_FLAGS security, ISCSI_TARGET_MAPPINGW *mappings,
	ISCSI_LOGIN_OPTIONS *options, ULONG key_size, CHAR *key, BOOLEAN persistent,
	ISCSI_UNIQUE_SESSION_ID *session, ISCSI_UNIQUE_CONNECTION_ID *connection)
{
	const struct target *target;
	ISDSC_STATUS status;
	BOOL chap;

	REQUIRE(is_name(name));
	REQUIRE(!informational && !initiator && port == ISCSI_ANY_INITIATOR_PORT);
	REQUIRE(is_unnamed_portal(portal));
	REQUIRE(!security && !mappings && options && !key_size && !key && !persistent && session && connection);
	REQUIRE(options->Version == ISCSI_LOGIN_OPTIONS_VERSION && !options->LoginFlags);
	REQUIRE(options->InformationSpecified & ISCSI_LOGIN_OPTIONS_AUTH_TYPE);
	chap = options->AuthType == ISCSI_CHAP_AUTH_TYPE || options->AuthType == ISCSI_MUTUAL_CHAP_AUTH_TYPE;
	REQUIRE(chap || options->AuthType == ISCSI_NO_AUTH_TYPE);
	REQUIRE(!(options->InformationSpecified &
		~(ISCSI_LOGIN_OPTIONS_AUTH_TYPE | ISCSI_LOGIN_OPTIONS_USERNAME | ISCSI_LOGIN_OPTIONS_PASSWORD)));
	REQUIRE(!(options->InformationSpecified & ISCSI_LOGIN_OPTIONS_USERNAME) == !options->Username);
	REQUIRE(!(options->InformationSpecified & ISCSI_LOGIN_OPTIONS_PASSWORD) == !options->Password);
	REQUIRE(!options->Username == !options->UsernameLength && !options->Password == !options->PasswordLength);
	REQUIRE(chap || (!options->Username && !options->Password));
	write_down("login %ls portal=%ls %u auth=%d user=%.*s password=%.*s\n", name, portal->Address, portal->Socket,
		options->AuthType, (int)options->UsernameLength, (const char *)options->Username,
		(int)options->PasswordLength, (const char *)options->Password);
	remember_secret(options->Password, options->PasswordLength);
	FAIL_IF_TOLD();

	target = find_target(name);
	if (!target)
		return ISDSC_TARGET_NOT_FOUND;
	if (!same_portal(&target->portal, portal))
		return ISDSC_CONNECTION_FAILED;
	for (ULONG i = 0; i < LENGTH(sessions); i++)
		if (sessions[i].id && sessions[i].target == target)
			return ISDSC_TARGET_ALREADY_LOGGED_IN;
	status = authenticate(target, options);
	for (ULONG i = 0; !status && i < LENGTH(sessions); i++)
		if (!sessions[i].id) {
			sessions[i].id = ++last_session;
			sessions[i].target = target;
			sessions[i].late = late;
			session->AdapterSpecific = connection->AdapterSpecific = last_session;
			session->AdapterUnique = ~last_session;
			connection->AdapterUnique = last_session + 1000; /* another's */
			return ERROR_SUCCESS;
		}
	return status ? status : ERROR_NO_SYSTEM_RESOURCES;
}

API ISDSC_STATUS WINAPI LogoutIScsiTarget(ISCSI_UNIQUE_SESSION_ID *id)
{
	struct session *session;

	REQUIRE(id);
	write_down("logout %I64d\n", id->AdapterSpecific);
	FAIL_IF_TOLD();
	session = find_session(id);
	if (!session)
		return ISDSC_INVALID_SESSION_ID;
	session->id = 0;
	return ERROR_SUCCESS;
}

/* What a session takes in the list beside its structure. */
struct session_tail {
	ISCSI_CONNECTION_INFOW connection;
	WCHAR initiator[32], address[MAX_ISCSI_PORTAL_ADDRESS_LEN], target[MAX_ISCSI_NAME_LEN + 1];
};

API ISDSC_STATUS WINAPI GetIScsiSessionListW(ULONG *size, ULONG *count, ISCSI_SESSION_INFOW *infos)
{
	struct session_tail *tail;
	ULONG room;

	REQUIRE(size && count && infos && ALIGNED(infos));
	FAIL_IF_TOLD();
	room = *size;
	*count = 0;
	for (ULONG i = 0; i < LENGTH(sessions); i++)
		*count += sessions[i].id != 0;
	*size = *count * (sizeof(*infos) + sizeof(*tail));
	if (room < *size)
		return too_small;
	memset(infos, RUBBISH, room);
	tail = (struct session_tail *)(infos + *count);
	for (ULONG i = 0; i < LENGTH(sessions); i++) {
		if (!sessions[i].id)
			continue;
		wcscpy(tail->initiator, L"iqn.1991-05.example:node");
		wcscpy(tail->target, sessions[i].target->name);
		wcscpy(tail->address, sessions[i].target->portal.address);
		tail->connection.TargetAddress = tail->address;
		tail->connection.TargetSocket = sessions[i].target->portal.port;
		infos->SessionId.AdapterSpecific = sessions[i].id;
		infos->SessionId.AdapterUnique = ~sessions[i].id;
		infos->InitiatorName = tail->initiator;
		infos->TargetNodeName = tail->target;
		infos->TargetName = tail->target;
		infos->ConnectionCount = 1;
		infos->Connections = &tail->connection;
		infos++, tail++;
	}
	return ERROR_SUCCESS;
}

API ISDSC_STATUS WINAPI GetDevicesForIScsiSessionW(ISCSI_UNIQUE_SESSION_ID *id, ULONG *count, ISCSI_DEVICE_ON_SESSIONW *devices)
{
	struct session *session;
	ULONG room;

	REQUIRE(id && count && devices && ALIGNED(devices));
	FAIL_IF_TOLD();
	session = find_session(id);
	if (!session)
		return ISDSC_INVALID_SESSION_ID;
	room = *count;
	*count = session->target->luns;
	if (room < *count)
		return too_small;
	memset(devices, RUBBISH, room * sizeof(*devices));
	for (ULONG i = 0; i < session->target->luns; i++) {
		devices[i].ScsiAddress = (SCSI_ADDRESS){ sizeof(SCSI_ADDRESS), 4, 0, (UCHAR)session->id, (UCHAR)i };
		devices[i].StorageDeviceNumber.DeviceType = FILE_DEVICE_DISK;
		devices[i].StorageDeviceNumber.DeviceNumber = session->late ? 0xFFFFFFFF : 10 * (ULONG)session->id + i;
		devices[i].StorageDeviceNumber.PartitionNumber = session->late ? 0xFFFFFFFF : 0;
	}
	if (session->late)
		session->late--;
	return ERROR_SUCCESS;
}

/* Logins that are repeated when the node starts. */

API ISDSC_STATUS WINAPI ReportIScsiPersistentLoginsW(ULONG *count, PERSISTENT_ISCSI_LOGIN_INFOW *infos, ULONG *size)
{
	static const char password[] = "stored secret";
	ULONG room;

	REQUIRE(count && infos && size && ALIGNED(infos));
	FAIL_IF_TOLD();
	room = *size;
	*count = login_count;
	*size = login_count * (sizeof(*infos) + sizeof(password));
	if (room < *size)
		return too_small;
	memset(infos, RUBBISH, room);
	for (ULONG i = 0; i < login_count; i++) {
		UCHAR *text = (UCHAR *)(infos + login_count) + i * sizeof(password);

		memcpy(text, password, sizeof(password));
		remember_secret(text, sizeof(password));
		infos[i] = logins[i];
		infos[i].LoginOptions.Password = text;
		infos[i].LoginOptions.PasswordLength = sizeof(password) - 1;
	}
	return ERROR_SUCCESS;
}

API ISDSC_STATUS WINAPI RemoveIScsiPersistentTargetW(WCHAR *initiator, ULONG port, WCHAR *target, ISCSI_TARGET_PORTALW *portal)
{
	REQUIRE(initiator && is_name(target));
	REQUIRE(is_portal(portal));
	write_down("remove login %ls initiator=%ls %#lx portal=%ls %ls %u\n", target, initiator, port, portal->SymbolicName,
		portal->Address, portal->Socket);
	FAIL_IF_TOLD();
	for (ULONG i = 0; i < login_count; i++)
		if (!wcscmp(logins[i].TargetName, target) && !wcscmp(logins[i].InitiatorInstance, initiator) &&
		    logins[i].InitiatorPortNumber == port && !memcmp(&logins[i].TargetPortal, portal, sizeof(*portal))) {
			logins[i] = logins[--login_count];
			return ERROR_SUCCESS;
		}
	return ISDSC_TARGET_NOT_FOUND;
}

API ISDSC_STATUS WINAPI SetIScsiInitiatorCHAPSharedSecret(ULONG length, UCHAR *secret)
{
	REQUIRE(length < sizeof(initiator_secret) && !length == !secret);
	write_down("initiator secret %.*s\n", (int)length, (const char *)secret);
	remember_secret(secret, length);
	FAIL_IF_TOLD();
	if (length < CHAP_SECRET_MIN)
		return ISDSC_SHORT_CHAP_SECRET;
	memcpy(initiator_secret, secret, length);
	initiator_secret[length] = 0;
	return ERROR_SUCCESS;
}

/* The test's. */

/* Forgets all, and sets what is said to too small a buffer. */
API void WINAPI DoubleReset(ULONG status)
{
	memset(targets, 0, sizeof(targets));
	memset(sessions, 0, sizeof(sessions));
	memset(initiator_secret, 0, sizeof(initiator_secret));
	target_count = portal_count = login_count = secret_count = recorded = growing = late = fault.times = 0;
	last_session = 0;
	too_small = status;
}

API BOOL WINAPI DoubleAddTarget(const WCHAR *name, const WCHAR *address, ULONG port, ULONG luns, const char *user,
	const char *secret, const char *mutual)
{
	struct target *t = &targets[target_count];

	if (target_count == LENGTH(targets))
		return FALSE;
	memset(t, 0, sizeof(*t));
	wcsncpy(t->name, name, LENGTH(t->name) - 1);
	wcsncpy(t->portal.address, address, LENGTH(t->portal.address) - 1);
	strncpy(t->user, user, sizeof(t->user) - 1);
	strncpy(t->secret, secret, sizeof(t->secret) - 1);
	strncpy(t->mutual, mutual, sizeof(t->mutual) - 1);
	t->portal.port = (USHORT)port;
	t->luns = luns;
	target_count++;
	return TRUE;
}

API BOOL WINAPI DoubleAddPersistentLogin(const WCHAR *target, const WCHAR *initiator, ULONG port, const WCHAR *symbolic,
	const WCHAR *address, ULONG socket)
{
	PERSISTENT_ISCSI_LOGIN_INFOW *l = &logins[login_count];

	if (login_count == LENGTH(logins))
		return FALSE;
	memset(l, 0, sizeof(*l));
	wcsncpy(l->TargetName, target, LENGTH(l->TargetName) - 1);
	wcsncpy(l->InitiatorInstance, initiator, LENGTH(l->InitiatorInstance) - 1);
	wcsncpy(l->TargetPortal.SymbolicName, symbolic, LENGTH(l->TargetPortal.SymbolicName) - 1);
	wcsncpy(l->TargetPortal.Address, address, LENGTH(l->TargetPortal.Address) - 1);
	l->TargetPortal.Socket = (USHORT)socket;
	l->InitiatorPortNumber = port;
	login_count++;
	return TRUE;
}

/* Lets a function fail so many times. */
API void WINAPI DoubleFail(const char *function, ULONG status, ULONG times)
{
	strncpy(fault.function, function, sizeof(fault.function) - 1);
	fault.status = status;
	fault.times = times;
}

/* Gives devices of coming sessions their numbers only after so many looks. */
API void WINAPI DoubleSetLate(ULONG looks) { late = looks; }

/* Lets as many targets come, one whenever a buffer is too small for the list. */
API void WINAPI DoubleSetGrowing(ULONG times) { growing = times; }

/* Takes what was written down so far. */
API ULONG WINAPI DoubleTakeRecord(char *text, ULONG size)
{
	ULONG n = min(recorded, size);

	memcpy(text, record, n);
	recorded = 0;
	return n;
}

/* How many bytes of secrets are still where they were. */
API ULONG WINAPI DoubleCountSecretBytes(void)
{
	ULONG n = 0;

	for (ULONG i = 0; i < secret_count; i++)
		for (ULONG j = 0; j < secrets[i].length; j++)
			n += secrets[i].text[j] != 0;
	return n;
}
