// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"testing"
	"unsafe"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/win/abitest"
)

func TestNetUseABI(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	abi.Check(abitest.Constants{
		"USE_WILDCARD":         useWildcard,
		"USE_LOTS_OF_FORCE":    useLotsOfForce,
		"MAX_PREFERRED_LENGTH": maxPreferredLength,
		"USE_OK":               uint64(win.SMBMappingOK),
		"USE_PAUSED":           uint64(win.SMBMappingPaused),
		"USE_DISCONN":          uint64(win.SMBMappingDisconnected),
		"USE_NETERR":           uint64(win.SMBMappingNetworkError),
		"USE_CONN":             uint64(win.SMBMappingConnecting),
		"USE_RECONN":           uint64(win.SMBMappingReconnecting),
		"NERR_UseNotFound":     uint64(win.ErrorNotConnected),
	})
	var info useInfo3
	for structure, got := range map[string]uintptr{
		"USE_INFO_2": unsafe.Sizeof(info.useInfo2),
		"USE_INFO_3": unsafe.Sizeof(info),
	} {
		if want := abi.Size(structure); int(got) != want {
			t.Errorf("%s takes %d bytes; want %d", structure, got, want)
		}
	}
	for field, got := range map[string]uintptr{
		"USE_INFO_2.ui2_local":      unsafe.Offsetof(info.local),
		"USE_INFO_2.ui2_remote":     unsafe.Offsetof(info.remote),
		"USE_INFO_2.ui2_password":   unsafe.Offsetof(info.password),
		"USE_INFO_2.ui2_status":     unsafe.Offsetof(info.status),
		"USE_INFO_2.ui2_asg_type":   unsafe.Offsetof(info.kind),
		"USE_INFO_2.ui2_username":   unsafe.Offsetof(info.username),
		"USE_INFO_2.ui2_domainname": unsafe.Offsetof(info.domain),
		"USE_INFO_3.ui3_flags":      unsafe.Offsetof(info.flags),
	} {
		if want := abi.Offset(field); int(got) != want {
			t.Errorf("%s is at %d; want %d", field, got, want)
		}
	}
}

func TestSplitUsername(t *testing.T) {
	for name, want := range map[string][2]string{
		"user":         {"", "user"},
		`D\user`:       {"D", "user"},
		`D\us\er`:      {"D", `us\er`},
		"user@d.local": {"", "user@d.local"},
		`\user`:        {"", "user"},
	} {
		if domain, user := splitUsername(name); [2]string{domain, user} != want {
			t.Errorf("%s: %q, %q; want %q", name, domain, user, want)
		}
	}
}
