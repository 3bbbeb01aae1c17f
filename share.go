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
	// Privacy is whether the connection must be encrypted.
	Privacy SharePrivacy
	// ReadOnly refuses a share to which the user may write: Windows maps no share read-only, so only its server can
	// keep pods from writing.
	ReadOnly bool
}

// SharePrivacy is whether the connection to a share must be encrypted.
type SharePrivacy string

// The privacy of a share. A mapping serves all pods of a node, so a share that is mapped without encryption isn't staged
// with PrivacyRequired. Without encryption, containers may lose access to a share after about 15 minutes.
const (
	PrivacyOfNode      SharePrivacy = ""             // as the node's flag -require-privacy says
	PrivacyRequired    SharePrivacy = "required"     // whatever that says
	PrivacyNotRequired SharePrivacy = "not-required" // whatever that says
)

// Validate returns ErrInvalidArgument, with the reason, unless the privacy is one of these.
func (p SharePrivacy) Validate() error {
	switch p {
	case PrivacyOfNode, PrivacyRequired, PrivacyNotRequired:
		return nil
	}
	return Errorf(ErrInvalidArgument, "the privacy %q isn't known: it must be %q, %q or empty", string(p), PrivacyRequired,
		PrivacyNotRequired)
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
