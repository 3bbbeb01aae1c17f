// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// SMBMappingStatus is the state of an SMB mapping at its last use. For example, a changed password
// shows only at the next use.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbglobalmapping
type SMBMappingStatus uint32

// States of a mapping.
const (
	SMBMappingOK           SMBMappingStatus = 0
	SMBMappingPaused       SMBMappingStatus = 1
	SMBMappingDisconnected SMBMappingStatus = 2
	SMBMappingNetworkError SMBMappingStatus = 3
	SMBMappingConnecting   SMBMappingStatus = 4
	SMBMappingReconnecting SMBMappingStatus = 5
	// SMBMappingUnknown stands for the property's NULL.
	SMBMappingUnknown SMBMappingStatus = 1<<32 - 1
)

// SMBMapping is an SMB global mapping: a share usable without further credentials by every session
// and container of the node. Windows hides a mapping's maker, and whether the mapping is
// persistent.
type SMBMapping struct {
	// LocalPath is the drive letter with a colon, empty for mappings made by CSI Proxy.
	LocalPath string
	// RemotePath is \\server\share, or a directory on the share, as written by the mapping's maker.
	RemotePath     string
	RequirePrivacy bool // the connection must be encrypted
	Status         SMBMappingStatus
}

// Name returns the name for removing the mapping: its drive letter or, without a letter, its remote
// path.
func (m SMBMapping) Name() string { return cmp.Or(m.LocalPath, m.RemotePath) }

// SMBConnection is the part of MSFT_SmbConnection used by operations: a connection of this node to
// a share.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbconnection
type SMBConnection struct {
	Server, Share string
	// UserName is the node's account that owns the connection.
	UserName string
	// Credential is the user at the server, DOMAIN\user, for whom the connection was made.
	Credential string
	// Opens is the number of handles open on the share through the connection.
	Opens uint64
}

// SMBMappingOptions are the arguments for making a mapping. The mapping has no drive letter and
// ends with a restart of the node: otherwise Windows would store the password.
type SMBMappingOptions struct {
	Username       string // user, DOMAIN\user or user@domain
	Password       csiproxy.Secret
	RequirePrivacy bool // refuse a connection that isn't encrypted
}
