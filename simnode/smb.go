// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// SMB servers are outside of the node. Servers, their shares and their files survive the node's
// reboots and power losses. Mappings end, except for persistent mappings of another program. Names
// of servers, shares and users ignore case.
//
// While the node has a mapping of a share, pods use \\server\share\… or a link to such a path. The
// test makes files there in the same way.

// SMBShare is a share of an SMB server.
type SMBShare struct {
	Server, Name string
	// Users are the names of the users that may connect, as in SetSMBUser. If Users is empty, all
	// users of the server may connect.
	Users []string
	// SizeBytes is the size of the share's file system; default: 1 TiB.
	SizeBytes int64
	// ReadOnly: the server refuses all writes.
	ReadOnly bool
}

// AddSMBShare adds an empty share, and its server if missing.
func (n *Node) AddSMBShare(s SMBShare) {
	n.helper()
	n.must(n.sys.SMB().AddShare(smbserver.Share{Server: s.Server, Name: s.Name, Users: s.Users, SizeBytes: s.SizeBytes,
		ReadOnly: s.ReadOnly}))
}

// GrowSMBShare makes a share larger.
func (n *Node) GrowSMBShare(server, name string, sizeBytes int64) {
	n.helper()
	n.must(n.sys.SMB().GrowShare(server, name, sizeBytes))
}

// RemoveSMBShare removes a share with its files. A mapping of the share stays; using the mapping
// fails with the Windows error 67.
func (n *Node) RemoveSMBShare(server, name string) {
	n.helper()
	n.must(n.sys.SMB().RemoveShare(server, name))
}

// SetSMBUser adds a user to a server, or changes the user's password: the next use of a mapping
// with the old password fails with the Windows error 1326. The name must match the driver's user
// name exactly, with or without a domain.
func (n *Node) SetSMBUser(server, user string, password csiproxy.Secret) {
	n.helper()
	n.must(n.sys.SMB().SetUser(server, user, password))
}

// SMBMapping is a global mapping made by another program or an administrator.
type SMBMapping struct {
	// RemotePath is \\server\share, or a directory on the share.
	RemotePath string
	// LocalPath is a drive letter with a colon, or empty.
	LocalPath string
	// Persistent: the mapping returns after a reboot.
	Persistent bool
	// Credentials belong to a user of the server.
	Credentials csiproxy.SMBCredentials
	// RequirePrivacy: the connection must be encrypted.
	RequirePrivacy bool
}

// MapSMB makes a mapping like another program, unknown to CSI Proxy.
func (n *Node) MapSMB(m SMBMapping) {
	n.helper()
	n.must(n.sys.SMB().Map(smbserver.Mapping{RemotePath: m.RemotePath, LocalPath: m.LocalPath, Persistent: m.Persistent,
		SMBMappingOptions: win.SMBMappingOptions{Username: m.Credentials.Username, Password: m.Credentials.Password,
			RequirePrivacy: m.RequirePrivacy}}))
}

// RemoveSMBUser removes a user from a server.
func (n *Node) RemoveSMBUser(server, user string) {
	n.helper()
	n.must(n.sys.SMB().RemoveUser(server, user))
}

// SMBServer is the state of a server. The zero value is a working server.
type SMBServer struct {
	// Unreachable: calls using the server fail with the Windows error 53, at once unless Delay
	// delays them. When the server is back, mappings work again.
	Unreachable bool
	// NoEncryption: the server lacks encryption, which CSI Proxy requires by default.
	NoEncryption bool
	// KnowsNode: the server shares a domain with the node. Mappings without a user name, and so
	// with the node's own account, work.
	KnowsNode bool
}

// SetSMBServer sets the state of a server.
func (n *Node) SetSMBServer(server string, s SMBServer) {
	n.helper()
	n.must(n.sys.SMB().SetState(server, smbserver.State(s)))
}
