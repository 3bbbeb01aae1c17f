// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"crypto/hmac"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/secret"
)

// SMBShare is a share of a server.
type SMBShare struct {
	Server, Name string
	// Users are those who may connect, by the names that SetSMBUser gave them; none:
	// all users of the server.
	Users []string
}

// SMBServerState is how a server is.
type SMBServerState struct {
	Unreachable  bool // it doesn't answer
	NoEncryption bool // it can't encrypt connections
}

// SMBServer is what the control calls say of a server.
type SMBServer struct {
	Name string
	SMBServerState
	Shares []SMBShare // in the order of their names
	Users  []string   // sorted
}

// smbServer stands outside of the node: no restart of the node touches it.
type smbServer struct {
	Name string
	SMBServerState
	Salt   []byte
	Users  map[string]smbUser   // by folded name
	Shares map[string]*smbShare // by folded name
}

type smbUser struct {
	Name         string
	PasswordHash []byte
}

// smbShare is a share with its files. What is written is on the server's disk when
// the call ends: Windows sends what it holds back when a file is closed.
type smbShare struct {
	SMBShare
	fs *ntfs.FS
}

// smbShareSize is the size in bytes of a share's file system, of which each has its own.
const smbShareSize = 1 << 40

func (sh *smbShare) key() string { return smbKey(sh.Server, sh.Name) }

// mount and writable implement root.
func (sh *smbShare) mount() (*ntfs.FS, error) { return sh.fs, nil }

func (sh *smbShare) writable() bool { return true }

func (sh *smbShare) allows(user string) bool {
	return len(sh.Users) == 0 || slices.ContainsFunc(sh.Users, func(u string) bool { return foldSMB(u) == foldSMB(user) })
}

// hash is what is kept of a password. It is the same again for the same user and
// password.
func (sv *smbServer) hash(user string, password secret.Text) ([]byte, error) {
	return hashSecret(password, append(slices.Clone(sv.Salt), foldSMB(user)...))
}

// checkSMBName refuses what can't be the name of a server or share.
func checkSMBName(name string) error {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || strings.ContainsRune(`"*/:;<>?[\]|+=,`, r) }) {
		return win.ErrorInvalidName
	}
	return nil
}

func checkSMBUser(name string) error {
	if name == "" || !utf8.ValidString(name) {
		return win.ErrorInvalidParameter
	}
	return nil
}

// AddSMBShare adds an empty share, and its server if there is none. A share that
// is there gives ErrorAlreadyExists, a name with characters that paths can't have
// ErrorInvalidName.
func (s *System) AddSMBShare(share SMBShare) error {
	return s.control(func() error {
		if err := s.addSMBShare(share); err != nil {
			return fmt.Errorf(`add share \\%s\%s: %w`, share.Server, share.Name, err)
		}
		return nil
	})
}

func (s *System) addSMBShare(share SMBShare) error {
	if err := checkSMBName(share.Server); err != nil {
		return err
	}
	if err := checkSMBName(share.Name); err != nil {
		return err
	}
	for _, user := range share.Users {
		if err := checkSMBUser(user); err != nil {
			return err
		}
	}
	sv, ok := s.smb.servers[foldSMB(share.Server)]
	if !ok {
		sv = &smbServer{Name: share.Server, Salt: newSalt(), Users: map[string]smbUser{}, Shares: map[string]*smbShare{}}
		s.smb.servers[foldSMB(share.Server)] = sv
	}
	if _, exists := sv.Shares[foldSMB(share.Name)]; exists {
		return win.ErrorAlreadyExists
	}
	share.Server, share.Users = sv.Name, slices.Clone(share.Users)
	sh := &smbShare{SMBShare: share, fs: ntfs.New(smbShareSize, 0)}
	sv.Shares[foldSMB(share.Name)] = sh
	s.smb.addFiles(sh)
	s.smb.changedShares[sh] = struct{}{}
	s.smb.touch(sv)
	return nil
}

func (b *smb) touch(sv *smbServer) { b.changedServers[foldSMB(sv.Name)] = struct{}{} }

// addFiles makes the changes of a share's files known.
func (b *smb) addFiles(sh *smbShare) {
	sh.fs.OnChange = func() { b.changedShares[sh] = struct{}{} }
}

// RemoveSMBShare removes a share with its files. A mapping of it stays, and fails
// when it is used. No such share gives ErrorNotFound.
func (s *System) RemoveSMBShare(server, name string) error {
	return s.controlSMBServer("remove share of", server, func(sv *smbServer) error {
		sh, ok := sv.Shares[foldSMB(name)]
		if !ok {
			return notFound("share", name)
		}
		s.breakSessions(func(m *smbMapping) bool { return m.key() == sh.key() })
		delete(sv.Shares, foldSMB(name))
		s.smb.droppedShares = append(s.smb.droppedShares, sh.key())
		return nil
	})
}

// SetSMBUser adds a user to a server, or changes his password: then his sessions
// break, and mappings with the old password fail when they are used next. The user
// has to be named in the same way, with a domain or without, when a mapping is
// made. An empty name or password gives ErrorInvalidParameter, no such server
// ErrorNotFound.
func (s *System) SetSMBUser(server, user string, password secret.Text) error {
	return s.controlSMBServer("set user of", server, func(sv *smbServer) error {
		if err := checkSMBUser(user); err != nil {
			return err
		}
		if password.Reveal() == "" { // no logon over the network goes without
			return win.ErrorInvalidParameter
		}
		hash, err := sv.hash(user, password)
		if err != nil {
			return err
		}
		if old, exists := sv.Users[foldSMB(user)]; exists && !hmac.Equal(old.PasswordHash, hash) {
			s.breakSessions(func(m *smbMapping) bool { return m.hasUser(server, user) })
		}
		sv.Users[foldSMB(user)] = smbUser{Name: user, PasswordHash: hash}
		return nil
	})
}

// RemoveSMBUser removes a user from a server. No such server or user gives
// ErrorNotFound.
func (s *System) RemoveSMBUser(server, user string) error {
	return s.controlSMBServer("remove user of", server, func(sv *smbServer) error {
		if _, ok := sv.Users[foldSMB(user)]; !ok {
			return notFound("user", user)
		}
		s.breakSessions(func(m *smbMapping) bool { return m.hasUser(server, user) })
		delete(sv.Users, foldSMB(user))
		return nil
	})
}

// SetSMBServer sets how a server is. When it becomes unreachable, what is open on
// it breaks; its mappings work again when it is back. No such server gives
// ErrorNotFound.
func (s *System) SetSMBServer(server string, state SMBServerState) error {
	return s.controlSMBServer("set state of", server, func(sv *smbServer) error {
		if state.Unreachable {
			s.breakSessions(func(m *smbMapping) bool { return foldSMB(m.Server) == foldSMB(server) })
		}
		sv.SMBServerState = state
		return nil
	})
}

// SMBServers lists the servers in the order of their names.
func (s *System) SMBServers() []SMBServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var servers []SMBServer
	for _, sv := range s.smb.servers {
		server := SMBServer{Name: sv.Name, SMBServerState: sv.SMBServerState}
		for _, name := range slices.Sorted(maps.Keys(sv.Shares)) {
			share := sv.Shares[name].SMBShare
			share.Users = slices.Clone(share.Users)
			server.Shares = append(server.Shares, share)
		}
		for _, u := range sv.Users {
			server.Users = append(server.Users, u.Name)
		}
		slices.Sort(server.Users)
		servers = append(servers, server)
	}
	slices.SortFunc(servers, func(a, b SMBServer) int { return cmp.Compare(foldSMB(a.Name), foldSMB(b.Name)) })
	return servers
}

// controlSMBServer runs a control call on the server with a name.
func (s *System) controlSMBServer(what, name string, f func(*smbServer) error) error {
	return s.control(func() error {
		sv, ok := s.smb.servers[foldSMB(name)]
		if !ok {
			return notFound("SMB server", name)
		}
		if err := f(sv); err != nil {
			return fmt.Errorf("%s SMB server %s: %w", what, name, err)
		}
		s.smb.touch(sv)
		return nil
	})
}
