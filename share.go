// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

// StageShareRequest selects the share and the path for StageShare. All fields but Credentials must
// be set.
type StageShareRequest struct {
	// RemotePath is \\server\share or a directory on the share. Slashes are taken as backslashes.
	RemotePath string
	// StagingPath is the path of the new link. Missing parents are made.
	StagingPath string
	// Credentials are for the server. The zero value is the node's own account.
	Credentials SMBCredentials
	// Privacy is whether the connection must be encrypted.
	Privacy SharePrivacy
	// ReadOnly refuses a share writable for the user: Windows maps no share read-only, so only the
	// server can prevent writes by pods.
	ReadOnly bool
}

// SharePrivacy is whether the connection to a share must be encrypted.
type SharePrivacy string

// The privacy of a share. A mapping serves all pods of a node, so PrivacyRequired refuses a share
// mapped without encryption. Without encryption, containers may lose access to a share after about
// 15 minutes.
const (
	PrivacyOfNode      SharePrivacy = ""             // as the node's flag -require-privacy says
	PrivacyRequired    SharePrivacy = "required"     // whatever that says
	PrivacyNotRequired SharePrivacy = "not-required" // whatever that says
)

// Validate returns ErrInvalidArgument, with the reason, for an unknown privacy.
func (p SharePrivacy) Validate() error {
	switch p {
	case PrivacyOfNode, PrivacyRequired, PrivacyNotRequired:
		return nil
	}
	return Errorf(ErrInvalidArgument, "the privacy %q isn't known: it must be %q, %q or empty", string(p), PrivacyRequired,
		PrivacyNotRequired)
}

// UnstageShareRequest selects the share for UnstageShare. Only StagingPath must be set.
type UnstageShareRequest struct {
	// StagingPath is the path of the link to the share.
	StagingPath string
	// RemotePath is the StageShareRequest's RemotePath. UnstageShare needs RemotePath to remove the
	// mapping of a StageShare that died before making the link; if empty, such a mapping stays.
	// With a RemotePath, anything else at the path stays, and the call succeeds.
	RemotePath string
}

// UnstagedShare is the result of UnstageShare.
type UnstagedShare struct {
	// Unlinked is set if this call has removed the link to the share.
	Unlinked bool `json:"unlinked"`
	// Unmapped is set if this call has removed the share's mapping, as the last staged path
	// of the share has gone.
	Unmapped bool `json:"unmapped"`
}
