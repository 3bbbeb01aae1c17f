// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// netUse are the NetUse functions, for global mappings.
type netUse struct{}

// mappings is NetUseEnum.
//
// Source: https://learn.microsoft.com/windows/win32/api/lmuse/nf-lmuse-netuseenum
func (netUse) mappings(ctx context.Context) (mappings []win.SMBMapping, err error) {
	var resume uint32
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var infos *useInfo2
		var read, total uint32
		err := errno(netUseEnum(nil, 2|useFlagGlobalMapping, &infos, maxPreferredLength, &read, &total, &resume))
		if err != nil && err != win.ErrorMoreData {
			return nil, err
		}
		mappings = append(mappings, mappingsOf(unsafe.Slice(infos, read))...)
		if infos != nil {
			windows.NetApiBufferFree((*byte)(unsafe.Pointer(infos))) // fails for no buffer that Windows gave
		}
		switch {
		case err == nil:
			return mappings, nil
		case read == 0: // it would go on for ever
			return nil, err
		}
	}
}

func mappingsOf(infos []useInfo2) (mappings []win.SMBMapping) {
	for _, info := range infos {
		mappings = append(mappings, win.SMBMapping{
			RemotePath: windows.UTF16PtrToString(info.remote),
			Status:     win.SMBMappingStatus(info.status),
		})
	}
	return mappings
}

// create is NetUseAdd.
//
// Source: https://learn.microsoft.com/windows/win32/api/lmuse/nf-lmuse-netuseadd
func (netUse) create(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, password, err := newUseInfo(remotePath, o)
	if err != nil {
		return err
	}
	defer clear(password)
	return errno(netUseAdd(nil, 3|useFlagGlobalMapping, &info, nil))
}

// newUseInfo returns what NetUseAdd gets, and the password in it, which the caller
// clears. Without a user name it is the node's own account that connects.
func newUseInfo(remotePath string, o win.SMBMappingOptions) (info useInfo3, password []uint16, err error) {
	info.kind = useWildcard
	if o.RequirePrivacy {
		info.flags = useRequirePrivacy
	}
	if info.remote, err = utf16Ptr(remotePath); err != nil || o.Username == "" {
		return info, nil, err
	}
	domain, user := splitUsername(o.Username)
	if info.username, err = utf16Ptr(user); err != nil {
		return info, nil, err
	}
	if domain != "" {
		if info.domain, err = utf16Ptr(domain); err != nil {
			return info, nil, err
		}
	}
	if password, err = windows.UTF16FromString(o.Password.Reveal()); err != nil {
		return info, nil, win.ErrorInvalidPassword // a NUL within
	}
	info.password = &password[0]
	return info, password, nil
}

// remove is NetUseDel.
//
// Source: https://learn.microsoft.com/windows/win32/api/lmuse/nf-lmuse-netusedel
func (netUse) remove(ctx context.Context, remotePath string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	use, err := utf16Ptr(remotePath)
	if err != nil {
		return err
	}
	return errno(netUseDel(nil, use, useLotsOfForce|useFlagGlobalMapping))
}
