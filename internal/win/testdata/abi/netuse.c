/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What package winsys takes from lmuse.h, lmuseflg.h, lmcons.h and lmerr.h. The
 * lmuse.h of mingw-w64 is older than USE_FLAG_GLOBAL_MAPPING and
 * CREATE_REQUIRE_CONNECTION_PRIVACY. */

#include "abi.h"
#include <lmcons.h>
#include <lmuse.h>
#include <lmuseflg.h>
#include <lmerr.h>

LINES = {
	SIZE(USE_INFO_2),
	OFFSET(USE_INFO_2, ui2_local),
	OFFSET(USE_INFO_2, ui2_remote),
	OFFSET(USE_INFO_2, ui2_password),
	OFFSET(USE_INFO_2, ui2_status),
	OFFSET(USE_INFO_2, ui2_asg_type),
	OFFSET(USE_INFO_2, ui2_username),
	OFFSET(USE_INFO_2, ui2_domainname),
	SIZE(USE_INFO_3),
	OFFSET(USE_INFO_3, ui3_flags),
	VALUE(USE_WILDCARD),
	VALUE(USE_LOTS_OF_FORCE),
	VALUE(MAX_PREFERRED_LENGTH),
	VALUE(USE_OK),
	VALUE(USE_PAUSED),
	VALUE(USE_DISCONN),
	VALUE(USE_NETERR),
	VALUE(USE_CONN),
	VALUE(USE_RECONN),
	VALUE(NERR_UseNotFound),
};
