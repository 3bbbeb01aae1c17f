// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Wine lacks the namespace.
func TestSMBWithoutNamespace(t *testing.T) {
	if !underWine() {
		t.Skip("this Windows has SMB global mappings")
	}
	const path = `\\localhost\csi-proxy-no-such-share`
	s := newSystem(t)
	_, err := s.SMBGlobalMappings(t.Context())
	wantErrno(t, "SMBGlobalMappings", err, winerr.WBEMInvalidNamespace)
	o := win.SMBMappingOptions{Username: "user", Password: csiproxy.NewSecret("password"), RequirePrivacy: true}
	wantErrno(t, "CreateSMBGlobalMapping", s.CreateSMBGlobalMapping(t.Context(), path, o), winerr.WBEMInvalidNamespace)
	wantErrno(t, "RemoveSMBGlobalMapping", s.RemoveSMBGlobalMapping(t.Context(), path), winerr.WBEMInvalidNamespace)
}
