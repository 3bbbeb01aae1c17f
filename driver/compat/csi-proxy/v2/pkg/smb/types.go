// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smb

// What the methods take and return.
type (
	NewSMBGlobalMappingRequest     struct{ RemotePath, LocalPath, Username, Password string }
	NewSMBGlobalMappingResponse    struct{}
	RemoveSMBGlobalMappingRequest  struct{ RemotePath string }
	RemoveSMBGlobalMappingResponse struct{}
)
