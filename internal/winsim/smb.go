// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"context"
	"crypto/hmac"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// smb are the servers that the node can reach and its global mappings of their
// shares. The names of servers, shares and users are the same in any case.
type smb struct {
	servers  map[string]*smbServer  // by folded name
	mappings map[string]*smbMapping // by smbKey

	// What the state file doesn't have yet.
	changedServers  map[string]struct{}
	changedMappings map[string]struct{}
	changedShares   map[*smbShare]struct{} // their files
	droppedShares   []string               // by smbKey
}

func newSMB() smb {
	return smb{
		servers: map[string]*smbServer{}, mappings: map[string]*smbMapping{},
		changedServers: map[string]struct{}{}, changedMappings: map[string]struct{}{}, changedShares: map[*smbShare]struct{}{},
	}
}

// smbMapping is a global mapping. It isn't persistent in Windows' sense: a restart
// of the node ends it. It is in the state file all the same, which a restart of the
// process doesn't end.
type smbMapping struct {
	RemotePath string // as it was given
	Status     win.SMBMappingStatus

	Server, Share  string
	User           string
	PasswordHash   []byte // as smbServer.hash makes it
	RequirePrivacy bool
}

func foldSMB(name string) string { return strings.ToLower(name) }

// smbKey is a share's path in the form in which paths are compared.
func smbKey(server, share string) string { return foldSMB(`\\` + server + `\` + share) }

func (m *smbMapping) key() string { return smbKey(m.Server, m.Share) }

// hasUser reports whether the mapping is with a user of a server.
func (m *smbMapping) hasUser(server, user string) bool {
	return foldSMB(m.Server) == foldSMB(server) && foldSMB(m.User) == foldSMB(user)
}

// SMBGlobalMappings lists the instances of MSFT_SmbGlobalMapping in the order of
// their paths.
func (s *System) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	var mappings []win.SMBMapping
	err := s.call(ctx, Call{win.CallSMBGlobalMappings, ""}, func() error {
		for _, m := range s.smb.mappings {
			mappings = append(mappings, win.SMBMapping{RemotePath: m.RemotePath, Status: m.Status})
		}
		slices.SortFunc(mappings, func(a, b win.SMBMapping) int { return cmp.Compare(foldSMB(a.RemotePath), foldSMB(b.RemotePath)) })
		return nil
	})
	return mappings, err
}

// CreateSMBGlobalMapping is the method Create of MSFT_SmbGlobalMapping.
//
// Besides the errors of connect it gives ErrorBadNetName for what isn't
// \\server\share, ErrorAlreadyAssigned for a share that is mapped, and
// ErrorSessionCredentialConflict if there is a mapping of the same server with
// another user or password, working or not: Windows has one session with a server.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnetwk/nf-winnetwk-wnetaddconnection2w
// and https://github.com/kubernetes-csi/csi-driver-smb/issues/219
func (s *System) CreateSMBGlobalMapping(ctx context.Context, remotePath string, o win.SMBMappingOptions) error {
	return s.call(ctx, Call{win.CallCreateSMBGlobalMapping, remotePath}, func() error {
		server, share, ok := parseShare(remotePath)
		if !ok {
			return win.ErrorBadNetName
		}
		m := &smbMapping{RemotePath: remotePath, Server: server, Share: share, User: o.Username, RequirePrivacy: o.RequirePrivacy}
		if _, exists := s.smb.mappings[m.key()]; exists {
			return win.ErrorAlreadyAssigned
		}
		host, err := s.smb.reach(server)
		if err != nil {
			return err
		}
		if m.PasswordHash, err = host.hash(o.Username, o.Password); err != nil {
			return err
		}
		for _, other := range s.smb.mappings {
			same := other.hasUser(server, m.User) && hmac.Equal(other.PasswordHash, m.PasswordHash)
			if foldSMB(other.Server) == foldSMB(server) && !same {
				return win.ErrorSessionCredentialConflict
			}
		}
		if _, err := s.smb.connect(m); err != nil {
			return err
		}
		s.smb.mappings[m.key()] = m
		s.smb.changedMappings[m.key()] = struct{}{}
		return nil
	})
}

// RemoveSMBGlobalMapping is the method Remove of MSFT_SmbGlobalMapping, forced: what
// is open through the mapping breaks.
func (s *System) RemoveSMBGlobalMapping(ctx context.Context, remotePath string) error {
	return s.call(ctx, Call{win.CallRemoveSMBGlobalMapping, remotePath}, func() error {
		server, share, _ := parseShare(remotePath)
		m, ok := s.smb.mappings[smbKey(server, share)]
		if !ok {
			return win.ErrorNotConnected
		}
		s.breakSessions(func(other *smbMapping) bool { return other == m })
		s.smb.forget(m)
		return nil
	})
}

// parseShare reads \\server\share.
func parseShare(path string) (server, share string, ok bool) {
	rest, ok := strings.CutPrefix(path, `\\`)
	if !ok {
		return "", "", false
	}
	server, share, _ = strings.Cut(rest, `\`)
	return server, share, checkSMBName(server) == nil && checkSMBName(share) == nil
}

func (b *smb) forget(m *smbMapping) {
	delete(b.mappings, m.key())
	b.changedMappings[m.key()] = struct{}{}
}

// restart ends all mappings, as none is persistent.
func (b *smb) restart() {
	for _, m := range b.mappings {
		b.forget(m)
	}
}

// breakSessions ends what is open on shares through the mappings for which broken
// holds. Their next use connects again.
func (s *System) breakSessions(broken func(*smbMapping) bool) {
	s.handles.kill(win.ErrorNetNameDeleted, func(h *handle) bool {
		share, ok := h.root.(*smbShare)
		if !ok {
			return false
		}
		m, mapped := s.smb.mappings[share.key()]
		return mapped && broken(m)
	})
}

// use connects to a share as an access to a path on it does: through its mapping,
// which remembers how it went. Nobody who uses paths has credentials of his own:
// without a mapping it gives ErrorAccessDenied, as pods see it.
//
// Source: https://github.com/kubernetes-csi/csi-driver-smb/issues/733
func (b *smb) use(server, share string) (*smbShare, error) {
	m, mapped := b.mappings[smbKey(server, share)]
	if !mapped {
		if _, err := b.reach(server); err != nil {
			return nil, err
		}
		return nil, win.ErrorAccessDenied
	}
	sh, err := b.connect(m)
	status := win.SMBMappingOK
	if err != nil {
		status = win.SMBMappingDisconnected
	}
	if m.Status != status {
		m.Status = status
		b.changedMappings[m.key()] = struct{}{}
	}
	return sh, err
}

// reach finds a server: ErrorBadNetPath if there is none that answers.
func (b *smb) reach(server string) (*smbServer, error) {
	sv, ok := b.servers[foldSMB(server)]
	if !ok || sv.Unreachable {
		return nil, win.ErrorBadNetPath
	}
	return sv, nil
}

// connect is what a server answers to a mapping, in the order of the protocol:
//   - ErrorBadNetPath: it can't be reached
//   - ErrorAccessDenied: it can't encrypt, and the mapping asks for that
//   - ErrorLogonFailure: there is no such user, or the password is another one
//   - ErrorBadNetName: there is no such share
//   - ErrorAccessDenied: the share isn't for the user
//
// For the second one the documentation knows the servers' side only.
//
// Source: https://learn.microsoft.com/openspecs/windows_protocols/ms-smb2/9a639360-87be-4d49-a1dd-4c6be0c020bd
// and https://learn.microsoft.com/openspecs/windows_protocols/ms-smb2/652e0c14-5014-4470-999d-b174d7b2da87
func (b *smb) connect(m *smbMapping) (*smbShare, error) {
	sv, err := b.reach(m.Server)
	if err != nil {
		return nil, err
	}
	if sv.NoEncryption && m.RequirePrivacy {
		return nil, win.ErrorAccessDenied
	}
	if user, ok := sv.Users[foldSMB(m.User)]; !ok || !hmac.Equal(user.PasswordHash, m.PasswordHash) {
		return nil, win.ErrorLogonFailure
	}
	share, ok := sv.Shares[foldSMB(m.Share)]
	if !ok {
		return nil, win.ErrorBadNetName
	}
	if !share.allows(m.User) {
		return nil, win.ErrorAccessDenied
	}
	return share, nil
}
