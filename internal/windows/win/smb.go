// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// SMBMappingStatus is the state of an SMB mapping at its last use. A changed password,
// for example, shows only at the next use.
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
	// SMBMappingUnknown is no value of Windows: the property is NULL.
	SMBMappingUnknown SMBMappingStatus = 1<<32 - 1
)

// SMBMapping is an SMB global mapping: a share that every session and container of the
// node can use without credentials of its own. Windows doesn't tell who has made a mapping, and
// whether it is persistent.
type SMBMapping struct {
	// LocalPath is the drive letter with a colon. It is empty for a mapping that CSI Proxy makes.
	LocalPath string
	// RemotePath is \\server\share, or a directory on the share, as its maker has written it.
	RemotePath     string
	RequirePrivacy bool // the connection must be encrypted
	Status         SMBMappingStatus
}

// Name returns the name by which the mapping is removed: its drive letter, or without a letter its remote path.
func (m SMBMapping) Name() string { return cmp.Or(m.LocalPath, m.RemotePath) }

// SMBConnection is the part of MSFT_SmbConnection that operations use: a connection of
// this node to a share.
//
// Source: https://learn.microsoft.com/previous-versions/windows/desktop/smb/msft-smbconnection
type SMBConnection struct {
	Server, Share string
	// UserName is the account of this node whose connection it is.
	UserName string
	// Credential is the user at the server, DOMAIN\user, under whose name it was made.
	Credential string
	// Opens is how many handles are open on the share through the connection.
	Opens uint64
}

// SMBMappingOptions say how to make a mapping. It has no drive letter, and it ends with
// a restart of the node: otherwise Windows would store the password.
type SMBMappingOptions struct {
	Username       string // user, DOMAIN\user or user@domain
	Password       csiproxy.Secret
	RequirePrivacy bool // refuse a connection that isn't encrypted
}
