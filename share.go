// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

// StageShareRequest says which share is to be staged, and where. All fields but Credentials must be set.
type StageShareRequest struct {
	// RemotePath is \\server\share or a directory on it. Slashes are taken as backslashes.
	RemotePath string
	// StagingPath is where the link to it is made, with the directories above it.
	StagingPath string
	// Credentials are those for the server. The zero value is the node's own account.
	Credentials SMBCredentials
}

// UnstageShareRequest says what is to be unstaged. Only StagingPath must be set.
type UnstageShareRequest struct {
	// StagingPath is where the link to the share is.
	StagingPath string
	// RemotePath is that of the StageShareRequest of the share that was staged. It is needed
	// to remove the mapping, if StageShare has died before it made the link; an empty one
	// leaves that undone. If anything else is at the path, that stays, and the call succeeds.
	RemotePath string
}

// UnstagedShare is what UnstageShare has done.
type UnstagedShare struct {
	// Unlinked is set if this call has removed the link to the share.
	Unlinked bool `json:"unlinked"`
	// Unmapped is set if this call has removed the share's mapping, since no other staged
	// path leads to the share.
	Unmapped bool `json:"unmapped"`
}
