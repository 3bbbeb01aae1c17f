// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smbserver

import (
	"cmp"
	"crypto/hmac"
	"fmt"
	"maps"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/credential"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Share is a share of a server.
type Share struct {
	Server, Name string
	// Users are the users who may connect, by the names that SetUser gave them. If there
	// are none, all users of the server may.
	Users []string
	// SizeBytes is the size of its file system, of which each share has its own; default:
	// 1 TiB.
	SizeBytes int64
	// ReadOnly is whether the server lets nobody write.
	ReadOnly bool
}

// State is how a server is.
type State struct {
	Unreachable  bool // it doesn't answer
	NoEncryption bool // it can't encrypt connections
	// KnowsNode is whether it is in a domain with the node: then it lets the node's own account in, which a mapping
	// without a user has.
	KnowsNode bool
}

// Server describes a server.
type Server struct {
	Name string
	State
	Shares []Share  // in the order of their names
	Users  []string // sorted
}

// host is a server. It stands outside of the node: no restart of the node touches it.
type host struct {
	Name string
	State
	Salt   []byte
	Users  map[string]user   // by folded name
	Shares map[string]*share // by folded name
}

type user struct {
	Name         string
	PasswordHash []byte
}

// share is a share with its files. What is written is on the server's disk when
// the call ends: Windows sends what it holds back when a file is closed.
type share struct {
	Share
	fs *ntfs.FS
}

// The size in bytes of a share's file system.
const (
	defaultShareSize = 1 << 40
	minShareSize     = 16 << 20
)

func (sh *share) key() string { return shareKey(sh.Server, sh.Name) }

func (sh *share) allows(user string) bool {
	return len(sh.Users) == 0 || slices.ContainsFunc(sh.Users, func(u string) bool { return win.SameName(u, user) })
}

// hash is what is kept of a password. It is the same again for the same user and
// password.
func (sv *host) hash(user string, password csiproxy.Secret) ([]byte, error) {
	return credential.Hash(password, append(slices.Clone(sv.Salt), win.UpperName(user)...))
}

// AddShare adds an empty share, and its server if there is none. A share that is
// there gives ErrorAlreadyExists, a name with characters that paths can't have
// ErrorInvalidName.
func (n *Network) AddShare(s Share) error {
	if err := n.addShare(s); err != nil {
		return fmt.Errorf(`add share \\%s\%s: %w`, s.Server, s.Name, err)
	}
	return nil
}

func (n *Network) addShare(s Share) error {
	if err := checkName(s.Server); err != nil {
		return err
	}
	if err := checkName(s.Name); err != nil {
		return err
	}
	if s.SizeBytes = cmp.Or(s.SizeBytes, defaultShareSize); s.SizeBytes < minShareSize {
		return fmt.Errorf("a size of %d bytes: %w", s.SizeBytes, winerr.ErrorInvalidParameter)
	}
	for _, user := range s.Users {
		if err := checkUser(user); err != nil {
			return err
		}
	}
	sv, ok := n.servers[win.UpperName(s.Server)]
	if !ok {
		sv = &host{Name: s.Server, Salt: credential.NewSalt(), Users: map[string]user{}, Shares: map[string]*share{}}
		n.servers[win.UpperName(s.Server)] = sv
	}
	if _, exists := sv.Shares[win.UpperName(s.Name)]; exists {
		return winerr.ErrorAlreadyExists
	}
	s.Server, s.Users = sv.Name, slices.Clone(s.Users)
	sh := &share{Share: s, fs: ntfs.New(s.SizeBytes, 0)}
	sv.Shares[win.UpperName(s.Name)] = sh
	n.watchFiles(sh)
	n.changedShares[sh] = struct{}{}
	n.touch(sv)
	return nil
}

func (n *Network) touch(sv *host) { n.changedServers[win.UpperName(sv.Name)] = struct{}{} }

// watchFiles notes the changes of a share's files for the next Save.
func (n *Network) watchFiles(sh *share) {
	sh.fs.OnChange = func() { n.changedShares[sh] = struct{}{} }
}

// GrowShare makes the file system of a share larger. A size below the present one gives
// ErrorInvalidParameter, no such share ErrorNotFound.
func (n *Network) GrowShare(server, name string, sizeBytes int64) error {
	return n.change("grow share of", server, func(sv *host) error {
		sh, ok := sv.Shares[win.UpperName(name)]
		switch {
		case !ok:
			return refusal.NotFound("share", name)
		case sizeBytes < sh.fs.Capacity():
			return winerr.ErrorInvalidParameter
		}
		sh.fs.Extend(sizeBytes)
		sh.SizeBytes = sh.fs.Capacity()
		return nil
	})
}

// RemoveShare removes a share with its files. Mappings of the share stay, and fail when
// used. An unknown share is ErrorNotFound.
func (n *Network) RemoveShare(server, name string) error {
	return n.change("remove share of", server, func(sv *host) error {
		sh, ok := sv.Shares[win.UpperName(name)]
		if !ok {
			return refusal.NotFound("share", name)
		}
		n.endSessions(func(m *mapping) bool { return m.key() == sh.key() })
		delete(sv.Shares, win.UpperName(name))
		delete(n.changedShares, sh)
		n.droppedShares = append(n.droppedShares, sh.key())
		return nil
	})
}

// SetUser adds a user to a server, or changes his password: then his sessions
// break, and mappings with the old password fail when they are used next. The user
// has to be named in the same way, with a domain or without, when a mapping is
// made. An empty name or password gives ErrorInvalidParameter, no such server
// ErrorNotFound.
func (n *Network) SetUser(server, name string, password csiproxy.Secret) error {
	return n.change("set user of", server, func(sv *host) error {
		if err := checkUser(name); err != nil {
			return err
		}
		if password.Reveal() == "" { // no logon over the network goes without
			return winerr.ErrorInvalidParameter
		}
		hash, err := sv.hash(name, password)
		if err != nil {
			return err
		}
		if old, exists := sv.Users[win.UpperName(name)]; exists && !hmac.Equal(old.PasswordHash, hash) {
			n.endSessions(func(m *mapping) bool { return m.hasUser(server, name) })
		}
		sv.Users[win.UpperName(name)] = user{Name: name, PasswordHash: hash}
		return nil
	})
}

// RemoveUser removes a user from a server. No such server or user gives
// ErrorNotFound.
func (n *Network) RemoveUser(server, name string) error {
	return n.change("remove user of", server, func(sv *host) error {
		if _, ok := sv.Users[win.UpperName(name)]; !ok {
			return refusal.NotFound("user", name)
		}
		n.endSessions(func(m *mapping) bool { return m.hasUser(server, name) })
		delete(sv.Users, win.UpperName(name))
		return nil
	})
}

// SetState sets how a server is. When it becomes unreachable, what is open on it
// breaks; its mappings work again when it is back. No such server gives
// ErrorNotFound.
func (n *Network) SetState(server string, state State) error {
	return n.change("set state of", server, func(sv *host) error {
		if state.Unreachable {
			n.endSessions(func(m *mapping) bool { return m.isOf(server) })
		}
		sv.State = state
		return nil
	})
}

// Servers lists the servers in the order of their names.
func (n *Network) Servers() []Server {
	var servers []Server
	for _, sv := range n.servers {
		described := Server{Name: sv.Name, State: sv.State}
		for _, name := range slices.Sorted(maps.Keys(sv.Shares)) {
			s := sv.Shares[name].Share
			s.Users, s.SizeBytes = slices.Clone(s.Users), sv.Shares[name].fs.Capacity()
			described.Shares = append(described.Shares, s)
		}
		for _, u := range sv.Users {
			described.Users = append(described.Users, u.Name)
		}
		slices.Sort(described.Users)
		servers = append(servers, described)
	}
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Compare(win.UpperName(a.Name), win.UpperName(b.Name)) })
	return servers
}

// change changes the server with a name.
func (n *Network) change(what, name string, f func(*host) error) error {
	sv, ok := n.servers[win.UpperName(name)]
	if !ok {
		return refusal.NotFound("SMB server", name)
	}
	if err := f(sv); err != nil {
		return fmt.Errorf("%s SMB server %s: %w", what, name, err)
	}
	n.touch(sv)
	return nil
}
