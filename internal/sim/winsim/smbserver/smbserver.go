// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package smbserver is the SMB servers that a simulated node can reach, with their
// shares and users, and the node's global mappings of these shares.
//
// It does no locking: the owner holds one lock around every call. It doesn't know
// how paths are resolved: whoever resolves \\server\share\… asks Connect for the
// share's file system.
package smbserver

import (
	"strings"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Network is the servers and the node's mappings. The names of servers, shares and
// users are the same in any case.
type Network struct {
	servers  map[string]*host    // by folded name
	mappings map[string]*mapping // by mapping.key

	// disconnect breaks what the node has open on the file system of a share.
	disconnect func(*ntfs.FS)
	settings   *settings.Settings

	// What the state file doesn't have yet.
	changedServers  map[string]struct{}
	changedMappings map[string]struct{}
	changedShares   map[*share]struct{} // their files
	droppedShares   []string            // by shareKey
}

// New returns a network without servers. It calls disconnect when a share's server
// ends the node's session: what is open on that file system breaks, and its next use
// has to connect again.
func New(disconnect func(*ntfs.FS), settings *settings.Settings) *Network {
	return &Network{
		servers: map[string]*host{}, mappings: map[string]*mapping{}, disconnect: disconnect, settings: settings,
		changedServers: map[string]struct{}{}, changedMappings: map[string]struct{}{}, changedShares: map[*share]struct{}{},
	}
}

// shareKey is a share's path in the form in which paths are compared.
func shareKey(server, share string) string { return win.UpperName(`\\` + server + `\` + share) }

// parseRemote reads \\server\share or \\server\share\directory.
func parseRemote(path string) (server, share, directory string, ok bool) {
	rest, ok := strings.CutPrefix(path, `\\`)
	if !ok {
		return "", "", "", false
	}
	server, rest, _ = strings.Cut(rest, `\`)
	share, directory, hasDirectory := strings.Cut(rest, `\`)
	if checkName(server) != nil || checkName(share) != nil {
		return "", "", "", false
	}
	for name := range strings.SplitSeq(directory, `\`) {
		if hasDirectory && checkName(name) != nil {
			return "", "", "", false
		}
	}
	return server, share, directory, true
}

// isLetter reports whether a mapping may have a local path: none, or a drive letter with a colon.
func isLetter(local string) bool {
	return local == "" || len(local) == 2 && local[1] == ':' && 'A' <= local[0]&^0x20 && local[0]&^0x20 <= 'Z'
}

// checkName refuses what can't be the name of a server or share.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || strings.ContainsRune(`"*/:;<>?[\]|+=,`, r) }) {
		return winerr.ErrorInvalidName
	}
	return nil
}

func checkUser(name string) error {
	if name == "" || !utf8.ValidString(name) {
		return winerr.ErrorInvalidParameter
	}
	return nil
}
