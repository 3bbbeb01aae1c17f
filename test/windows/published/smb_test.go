// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

// share is a share of a server, with a user of its own who is the only one.
type share struct {
	server, name   string
	user, password string
}

// files is a share as most tests want it.
var files = share{server: "files", name: "data", user: `CORP\alice`, password: newSecret(0)}

// path is the share's, as the daemon writes it.
func (s share) path() string { return `\\` + s.server + `\` + s.name }

// add puts the share and its server on the network.
func (s share) add(n *node) {
	n.t.Helper()
	n.simCall("AddSmbShare", fields{"server": s.server, "name": s.name})
	n.simCall("SetSmbUser", fields{"server": s.server, "user": s.user, "password": s.password})
}

// mapping is the request that maps a remote path with the share's credentials.
func (s share) mapping(remotePath, localPath string) fields {
	return fields{"remote_path": remotePath, "local_path": localPath, "username": s.user, "password": s.password}
}
