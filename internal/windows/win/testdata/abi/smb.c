/* Copyright The CSI Proxy Authors.
 * SPDX-License-Identifier: Apache-2.0
 *
 * States of an SMB mapping, from lmuse.h: MSFT_SmbGlobalMapping has the same
 * numbers. */

#include "abi.h"
#include <lmcons.h>
#include <lmuse.h>

LINES = {
	VALUE(USE_OK),
	VALUE(USE_PAUSED),
	VALUE(USE_DISCONN),
	VALUE(USE_NETERR),
	VALUE(USE_CONN),
	VALUE(USE_RECONN),
};
