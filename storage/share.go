// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import "github.com/csi-proxy/csi-proxy/smb"

// StageShareRequest says which share is to be staged, and where. All fields must be set.
type StageShareRequest struct {
	// RemotePath is \\server\share or a directory on it. Slashes are taken as backslashes.
	RemotePath string
	// StagingPath is where the link to it is made, with the directories above it.
	StagingPath string
	// Credentials are those for the server.
	Credentials smb.Credentials
}
