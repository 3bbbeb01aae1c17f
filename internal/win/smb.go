// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import "github.com/csi-proxy/csi-proxy/secret"

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
)

// SMBMapping is an SMB global mapping: a share that every session and container of the
// node can use without credentials of its own.
type SMBMapping struct {
	RemotePath string // \\server\share, in any case
	Status     SMBMappingStatus
}

// SMBMappingOptions say how to make a mapping. It has no drive letter, and it ends with
// a restart of the node: otherwise Windows would store the password.
type SMBMappingOptions struct {
	Username       string // user, DOMAIN\user or user@domain
	Password       secret.Text
	RequirePrivacy bool // refuse a connection that isn't encrypted
}
