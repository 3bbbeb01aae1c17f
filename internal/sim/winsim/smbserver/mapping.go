// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smbserver

import (
	"cmp"
	"crypto/hmac"
	"maps"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// mapping is a global mapping. It isn't persistent in Windows' sense: a restart
// of the node ends it. It is in the state file all the same, because a restart of the
// process doesn't end it.
type mapping struct {
	RemotePath string // as it was given
	Status     win.SMBMappingStatus

	Server, Share  string
	User           string
	PasswordHash   []byte // as host.hash makes it
	RequirePrivacy bool
}

func (m *mapping) key() string { return shareKey(m.Server, m.Share) }

func (m *mapping) isOf(server string) bool { return winname.Equal(m.Server, server) }

// hasUser reports whether the mapping is with a user of a server.
func (m *mapping) hasUser(server, user string) bool {
	return m.isOf(server) && winname.Equal(m.User, user)
}

// Mappings lists the instances of MSFT_SmbGlobalMapping in the order of their paths.
func (n *Network) Mappings() []win.SMBMapping {
	var mappings []win.SMBMapping
	for _, m := range n.mappings {
		mappings = append(mappings, win.SMBMapping{RemotePath: m.RemotePath, Status: m.Status})
	}
	slices.SortFunc(mappings, func(a, b win.SMBMapping) int {
		return cmp.Compare(winname.Upper(a.RemotePath), winname.Upper(b.RemotePath))
	})
	return mappings
}

// Connections lists the instances of MSFT_SmbConnection, in the order of the mappings'
// paths: one for each mapping that worked when it was last used. opens tells how many files
// of a file system the node has open.
//
// Guess: the connection of a global mapping is one of the account NT AUTHORITY\SYSTEM.
func (n *Network) Connections(opens func(*ntfs.FS) int) []win.SMBConnection {
	var connections []win.SMBConnection
	for _, key := range slices.Sorted(maps.Keys(n.mappings)) {
		m := n.mappings[key]
		sh, err := n.answer(m)
		if m.Status != win.SMBMappingOK || err != nil {
			continue
		}
		connections = append(connections, win.SMBConnection{
			Server: m.Server, Share: m.Share, UserName: `NT AUTHORITY\SYSTEM`, Credential: m.User, Opens: uint64(opens(sh.fs)),
		})
	}
	return connections
}

// CreateMapping is the method Create of MSFT_SmbGlobalMapping.
//
// It gives ErrorBadNetName for what isn't \\server\share, ErrorAlreadyAssigned for a
// share that is mapped, and ErrorSessionCredentialConflict if there is a mapping of
// the same server with another user or password, working or not: Windows has one
// session with a server. A server's refusals are those of Connect; besides them,
// ErrorAccessDenied is the answer to a mapping that asks for encryption from a server
// that can't encrypt.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnetwk/nf-winnetwk-wnetaddconnection2w
// and https://github.com/kubernetes-csi/csi-driver-smb/issues/219
func (n *Network) CreateMapping(remotePath string, o win.SMBMappingOptions) error {
	server, share, ok := parseShare(remotePath)
	if !ok {
		return winerr.ErrorBadNetName
	}
	m := &mapping{RemotePath: remotePath, Server: server, Share: share, User: o.Username, RequirePrivacy: o.RequirePrivacy}
	if _, exists := n.mappings[m.key()]; exists {
		return winerr.ErrorAlreadyAssigned
	}
	host, err := n.reach(server)
	if err != nil {
		return err
	}
	if m.PasswordHash, err = host.hash(o.Username, o.Password); err != nil {
		return err
	}
	for _, other := range n.mappings {
		same := other.hasUser(server, m.User) && hmac.Equal(other.PasswordHash, m.PasswordHash)
		if other.isOf(server) && !same {
			return winerr.ErrorSessionCredentialConflict
		}
	}
	if _, err := n.answer(m); err != nil {
		return err
	}
	n.mappings[m.key()] = m
	n.changedMappings[m.key()] = struct{}{}
	return nil
}

// RemoveMapping is the method Remove of MSFT_SmbGlobalMapping, forced: what is open
// through the mapping breaks. A share that isn't mapped gives ErrorNotConnected.
func (n *Network) RemoveMapping(remotePath string) error {
	server, share, _ := parseShare(remotePath)
	m, ok := n.mappings[shareKey(server, share)]
	if !ok {
		return winerr.ErrorNotConnected
	}
	n.endSessions(func(other *mapping) bool { return other == m })
	n.forget(m)
	return nil
}

// Restart is what a restart of the node does: it ends all mappings, as none is
// persistent. The servers stand outside of the node and stay as they are.
func (n *Network) Restart() {
	for _, m := range n.mappings {
		n.forget(m)
	}
}

func (n *Network) forget(m *mapping) {
	delete(n.mappings, m.key())
	n.changedMappings[m.key()] = struct{}{}
}

// endSessions breaks what is open through the mappings for which ended holds.
func (n *Network) endSessions(ended func(*mapping) bool) {
	for _, m := range n.mappings {
		if sv, ok := n.servers[winname.Upper(m.Server)]; ok && ended(m) {
			if sh, ok := sv.Shares[winname.Upper(m.Share)]; ok {
				n.disconnect(sh.fs)
			}
		}
	}
}

// Connect connects to a share as an access to a path on it does: through its
// mapping, which remembers how it went. Nobody who uses paths has credentials of his
// own, so that a share without a mapping gives ErrorAccessDenied, as pods see it. The
// other refusals, in the order of the protocol:
//   - ErrorBadNetPath, or what NoServer says: there is no server of that name, or it can't be
//     reached
//   - ErrorAccessDenied, or what UnencryptedServer says: it can't encrypt, and the mapping
//     asks for that
//   - ErrorLogonFailure: there is no such user, or the password is another one
//   - ErrorBadNetName: there is no such share
//   - ErrorAccessDenied: the share isn't for the user
//
// Guess: a client refuses a server that can't encrypt. The documentation knows the
// servers' side only.
//
// Source: https://github.com/kubernetes-csi/csi-driver-smb/issues/733,
// https://learn.microsoft.com/openspecs/windows_protocols/ms-smb2/9a639360-87be-4d49-a1dd-4c6be0c020bd
// and https://learn.microsoft.com/openspecs/windows_protocols/ms-smb2/652e0c14-5014-4470-999d-b174d7b2da87
func (n *Network) Connect(server, share string) (fs *ntfs.FS, err error) {
	defer func() {
		if err == winerr.ErrorBadNetPath && n.settings.NoServer != 0 {
			err = n.settings.NoServer
		}
	}()
	m, mapped := n.mappings[shareKey(server, share)]
	if !mapped {
		if _, err := n.reach(server); err != nil {
			return nil, err
		}
		return nil, winerr.ErrorAccessDenied
	}
	sh, err := n.answer(m)
	status := win.SMBMappingOK
	if err != nil {
		status = win.SMBMappingDisconnected
	}
	if m.Status != status {
		m.Status = status
		n.changedMappings[m.key()] = struct{}{}
	}
	if err != nil {
		return nil, err
	}
	return sh.fs, nil
}

// reach finds a server that answers.
func (n *Network) reach(name string) (*host, error) {
	sv, ok := n.servers[winname.Upper(name)]
	if !ok || sv.Unreachable {
		return nil, winerr.ErrorBadNetPath
	}
	return sv, nil
}

// answer is what a server answers to a mapping: see Connect.
func (n *Network) answer(m *mapping) (*share, error) {
	sv, err := n.reach(m.Server)
	if err != nil {
		return nil, err
	}
	if sv.NoEncryption && m.RequirePrivacy {
		return nil, cmp.Or(n.settings.UnencryptedServer, winerr.ErrorAccessDenied)
	}
	if user, ok := sv.Users[winname.Upper(m.User)]; !ok || !hmac.Equal(user.PasswordHash, m.PasswordHash) {
		return nil, winerr.ErrorLogonFailure
	}
	sh, ok := sv.Shares[winname.Upper(m.Share)]
	if !ok {
		return nil, winerr.ErrorBadNetName
	}
	if !sh.allows(m.User) {
		return nil, winerr.ErrorAccessDenied
	}
	return sh, nil
}
