// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import "strings"

// useFlagGlobalMapping is USE_FLAG_GLOBAL_MAPPING. With it, beside the level of the
// structure, the NetUse functions are about global mappings. LMUse.h of the Windows
// SDK has it; Microsoft's pages don't mention it. So it is not proven that
//
//   - a mapping made with it is one that MSFT_SmbGlobalMapping lists and that
//     containers see, and that none other is listed or removed with it
//   - it is enough, without CREATE_GLOBAL_MAPPING (0x100) among the flags of the
//     structure
//   - USE_WILDCARD is the right kind of resource then
//   - a missing domain is right for user@domain and for a user of the server
//
// A Windows that doesn't know the flag takes it for a level that doesn't exist, and
// refuses the call.
const useFlagGlobalMapping = 0x10000

// Values of the NetUse functions.
//
// Source: LMUse.h, lmuseflg.h and lmcons.h of the Windows SDK
const (
	useWildcard        = 0xFFFFFFFF // USE_WILDCARD: whatever the share is; only without drive letter
	useRequirePrivacy  = 0x10       // CREATE_REQUIRE_CONNECTION_PRIVACY
	useLotsOfForce     = 2          // USE_LOTS_OF_FORCE: close the open files
	maxPreferredLength = 0xFFFFFFFF // MAX_PREFERRED_LENGTH: all at once
)

// useInfo2 is USE_INFO_2.
//
// Source: https://learn.microsoft.com/windows/win32/api/lmuse/ns-lmuse-use_info_2
type useInfo2 struct {
	local    *uint16
	remote   *uint16
	password *uint16
	status   uint32
	kind     uint32 // ui2_asg_type
	_        uint32 // ui2_refcount
	_        uint32 // ui2_usecount
	username *uint16
	domain   *uint16
}

// useInfo3 is USE_INFO_3.
//
// Source: https://learn.microsoft.com/windows/win32/api/lmuse/ns-lmuse-use_info_3
type useInfo3 struct {
	useInfo2
	flags uint32
	_     uint32 // to its alignment
}

// splitUsername splits DOMAIN\user. Other forms have no domain.
func splitUsername(name string) (domain, user string) {
	domain, user, found := strings.Cut(name, `\`)
	if !found {
		return "", name
	}
	return domain, user
}
