// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smb

// NewSMBGlobalMappingRequest is what NewSMBGlobalMapping takes.
type NewSMBGlobalMappingRequest struct {
	RemotePath string
	LocalPath  string
	Username   string
	Password   string
}

// NewSMBGlobalMappingResponse is what NewSMBGlobalMapping returns.
type NewSMBGlobalMappingResponse struct{}

// RemoveSMBGlobalMappingRequest is what RemoveSMBGlobalMapping takes.
type RemoveSMBGlobalMappingRequest struct {
	RemotePath string
}

// RemoveSMBGlobalMappingResponse is what RemoveSMBGlobalMapping returns.
type RemoveSMBGlobalMappingResponse struct{}
