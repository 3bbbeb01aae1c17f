// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"github.com/csi-proxy/csi-proxy/internal/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/secret"
)

// SMB servers stand outside of the node: they, their shares and the files there
// outlast its reboots and losses of power, and mappings of shares don't. Names of
// servers, shares and users are the same in any case.
//
// Pods use a share by \\server\share\… or a link to there, while the node has a
// mapping of it. The test puts files there in the same way.

// SMBShare is a share of an SMB server.
type SMBShare struct {
	Server, Name string
	// Users are those who may connect, by the names that SetSMBUser gave them; none:
	// all users of the server.
	Users []string
}

// AddSMBShare adds an empty share, and its server if there is none.
func (n *Node) AddSMBShare(s SMBShare) {
	n.helper()
	n.must(n.sys.SMB().AddShare(smbserver.Share{Server: s.Server, Name: s.Name, Users: s.Users}))
}

// RemoveSMBShare removes a share with its files. A mapping of it stays and fails
// with the Windows error 67 when it is used.
func (n *Node) RemoveSMBShare(server, name string) {
	n.helper()
	n.must(n.sys.SMB().RemoveShare(server, name))
}

// SetSMBUser adds a user to a server, or changes his password, as one does that has
// come to an end: mappings with the old one fail with the Windows error 1326 when
// they are used next. The user is named as the driver names him, with a domain or
// without.
func (n *Node) SetSMBUser(server, user string, password secret.Text) {
	n.helper()
	n.must(n.sys.SMB().SetUser(server, user, password))
}

// RemoveSMBUser removes a user from a server.
func (n *Node) RemoveSMBUser(server, user string) {
	n.helper()
	n.must(n.sys.SMB().RemoveUser(server, user))
}

// SMBServer is how a server is. The zero value is one that works.
type SMBServer struct {
	// Unreachable: it doesn't answer, and what uses it fails with the Windows error
	// 53: at once, unless a Delay says otherwise. Mappings work again when it is
	// back.
	Unreachable bool
	// NoEncryption: it can't encrypt connections, as CSI Proxy asks for by default.
	NoEncryption bool
}

// SetSMBServer sets how a server is.
func (n *Node) SetSMBServer(server string, s SMBServer) {
	n.helper()
	n.must(n.sys.SMB().SetState(server, smbserver.State{Unreachable: s.Unreachable, NoEncryption: s.NoEncryption}))
}
