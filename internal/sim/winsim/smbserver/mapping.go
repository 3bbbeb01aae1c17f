// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smbserver

import (
	"cmp"
	"crypto/hmac"
	"maps"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// mapping is a global mapping. Unless it is persistent, a restart of the node ends it. All are in the
// state file, because a restart of the process ends none.
type mapping struct {
	LocalPath  string // the drive letter with a colon, or empty
	RemotePath string // as it was given
	Persistent bool
	Status     win.SMBMappingStatus

	Server, Share  string
	Directory      string // below the share, or empty
	User           string
	PasswordHash   []byte // as host.hash makes it
	RequirePrivacy bool
}

func (m *mapping) listed() win.SMBMapping {
	return win.SMBMapping{LocalPath: m.LocalPath, RemotePath: m.RemotePath, RequirePrivacy: m.RequirePrivacy, Status: m.Status}
}

func (m *mapping) key() string { return win.UpperName(m.listed().Name()) }

func (m *mapping) isOnShare(server, share string) bool {
	return m.isOf(server) && win.SameName(m.Share, share)
}

// overlaps reports whether one of two mappings of a share is of a directory in the other one.
func (m *mapping) overlaps(other *mapping) bool {
	a, b := m.below(), other.below()
	return m.isOnShare(other.Server, other.Share) && a != b && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// below returns with what the paths on the share begin that the mapping is about.
func (m *mapping) below() string {
	if m.Directory == "" {
		return ""
	}
	return win.UpperName(m.Directory) + `\`
}

func (m *mapping) isOf(server string) bool { return win.SameName(m.Server, server) }

// hasUser reports whether the mapping is with a user of a server.
func (m *mapping) hasUser(server, user string) bool {
	return m.isOf(server) && win.SameName(m.User, user)
}

// Mappings lists the instances of MSFT_SmbGlobalMapping in the order of their paths.
func (n *Network) Mappings() []win.SMBMapping {
	var mappings []win.SMBMapping
	for _, m := range n.mappings {
		mappings = append(mappings, m.listed())
	}
	slices.SortFunc(mappings, func(a, b win.SMBMapping) int {
		return cmp.Or(cmp.Compare(win.UpperName(a.RemotePath), win.UpperName(b.RemotePath)),
			cmp.Compare(a.LocalPath, b.LocalPath))
	})
	return mappings
}

// nodeAccount is the node's own account.
const nodeAccount = `EXAMPLE\NODE$`

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
			Server: m.Server, Share: m.Share, UserName: `NT AUTHORITY\SYSTEM`, Credential: cmp.Or(m.User, nodeAccount),
			Opens: uint64(opens(sh.fs)),
		})
	}
	return connections
}

// Mapping is a mapping as any program may make it.
type Mapping struct {
	// LocalPath is the drive letter with a colon, or empty.
	LocalPath string
	// RemotePath is \\server\share, or a directory on it.
	RemotePath string
	// Persistent is whether it is there again after a restart of the node.
	Persistent bool
	win.SMBMappingOptions
}

// CreateMapping is Map for a mapping that CSI Proxy makes.
func (n *Network) CreateMapping(remotePath string, o win.SMBMappingOptions) error {
	return n.Map(Mapping{RemotePath: remotePath, SMBMappingOptions: o})
}

// Map is the method Create of MSFT_SmbGlobalMapping.
//
// It gives ErrorBadNetName for what isn't below \\server\share, ErrorAlreadyAssigned for a
// remote path or letter that is mapped, and ErrorSessionCredentialConflict if there is a mapping of
// the same server with another user or password, working or not: Windows has one
// session with a server. A server's refusals are those of Connect; besides them,
// ErrorAccessDenied is the answer to a mapping that asks for encryption from a server
// that can't encrypt.
//
// Guess: whether a directory is there doesn't matter. Settings.OverlapRefused has what may happen
// to a mapping of a directory beside that of its share.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnetwk/nf-winnetwk-wnetaddconnection2w
// and https://github.com/kubernetes-csi/csi-driver-smb/issues/219
func (n *Network) Map(o Mapping) error {
	server, share, directory, ok := parseRemote(o.RemotePath)
	if !ok || !isLetter(o.LocalPath) {
		return winerr.ErrorBadNetName
	}
	m := &mapping{LocalPath: o.LocalPath, RemotePath: o.RemotePath, Persistent: o.Persistent, Server: server, Share: share,
		Directory: directory, User: o.Username, RequirePrivacy: o.RequirePrivacy}
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
		if other.isOf(server) && !same || n.settings.OverlapRefused && m.overlaps(other) {
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

// RemoveMapping is the method Remove of MSFT_SmbGlobalMapping of the mapping with a name, forced: what is
// open on its share breaks. No such mapping gives ErrorNotConnected.
func (n *Network) RemoveMapping(name string) error {
	m, ok := n.mappings[win.UpperName(name)]
	if !ok {
		return winerr.ErrorNotConnected
	}
	n.endSessions(func(other *mapping) bool { return other == m })
	n.forget(m)
	return nil
}

// Restart is what a restart of the node does: it ends the mappings, except for persistent ones, which
// have no connection then. The servers stand outside of the node and stay as they are.
func (n *Network) Restart() {
	for _, m := range n.mappings {
		if !m.Persistent {
			n.forget(m)
			continue
		}
		m.Status = win.SMBMappingDisconnected
		n.changedMappings[m.key()] = struct{}{}
	}
}

func (n *Network) forget(m *mapping) {
	delete(n.mappings, m.key())
	n.changedMappings[m.key()] = struct{}{}
}

// endSessions breaks what is open through the mappings for which ended holds.
func (n *Network) endSessions(ended func(*mapping) bool) {
	for _, m := range n.mappings {
		if sv, ok := n.servers[win.UpperName(m.Server)]; ok && ended(m) {
			if sh, ok := sv.Shares[win.UpperName(m.Share)]; ok {
				n.disconnect(sh.fs)
			}
		}
	}
}

// Connect connects to a share as an access to a path on it does: through a
// mapping of the share, or of a directory on it, which remembers how it went. Nobody who uses paths has credentials of his
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
// Guess: a mapping of one directory serves the whole share, since the session and the connection are the
// share's. If there are several, the first one that works serves.
//
// Guess: a client refuses a server that can't encrypt. The documentation knows the
// servers' side only.
//
// Source: https://github.com/kubernetes-csi/csi-driver-smb/issues/733,
// https://learn.microsoft.com/openspecs/windows_protocols/ms-smb2/9a639360-87be-4d49-a1dd-4c6be0c020bd
// and https://learn.microsoft.com/openspecs/windows_protocols/ms-smb2/652e0c14-5014-4470-999d-b174d7b2da87
func (n *Network) Connect(server, share string) (fs *ntfs.FS, readOnly bool, err error) {
	defer func() {
		if err == winerr.ErrorBadNetPath && n.settings.NoServer != 0 {
			err = n.settings.NoServer
		}
	}()
	var refused error
	for _, key := range slices.Sorted(maps.Keys(n.mappings)) {
		m := n.mappings[key]
		if !m.isOnShare(server, share) {
			continue
		}
		sh, err := n.use(m)
		if err == nil {
			return sh.fs, sh.ReadOnly, nil
		}
		refused = cmp.Or(refused, err)
	}
	if refused != nil {
		return nil, false, refused
	}
	if _, err := n.reach(server); err != nil {
		return nil, false, err
	}
	return nil, false, winerr.ErrorAccessDenied
}

// use is answer, and keeps in the mapping's status how it went.
func (n *Network) use(m *mapping) (*share, error) {
	sh, err := n.answer(m)
	status := win.SMBMappingOK
	if err != nil {
		status = win.SMBMappingDisconnected
	}
	if m.Status != status {
		m.Status = status
		n.changedMappings[m.key()] = struct{}{}
	}
	return sh, err
}

// reach finds a server that answers.
func (n *Network) reach(name string) (*host, error) {
	sv, ok := n.servers[win.UpperName(name)]
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
	user, isUser := sv.Users[win.UpperName(m.User)]
	isRight := isUser && hmac.Equal(user.PasswordHash, m.PasswordHash)
	if m.User == "" {
		isRight = sv.KnowsNode
	}
	if !isRight {
		return nil, winerr.ErrorLogonFailure
	}
	sh, ok := sv.Shares[win.UpperName(m.Share)]
	if !ok {
		return nil, winerr.ErrorBadNetName
	}
	if !sh.allows(m.User) {
		return nil, winerr.ErrorAccessDenied
	}
	return sh, nil
}
