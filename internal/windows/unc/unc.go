// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unc checks and compares UNC paths: the names of SMB shares and of what is
// on them.
package unc

import (
	"slices"
	"strings"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// Path is a share or a directory on one: \\server\share\directory.
type Path struct {
	server string // lower case
	share  string // as given, as are
	names  []string
}

// The longest names, in UTF-16 units.
//
// Source: https://learn.microsoft.com/openspecs/windows_protocols/ms-srvs,
// https://learn.microsoft.com/windows/win32/fileio/maximum-file-path-limitation
const (
	maxPath   = 260
	maxServer = 255
	maxShare  = 80
)

// Parse checks the text of a UNC path. Slashes are taken as backslashes, several in
// a row as one, and those at its end as none. Anything that isn't a share or below
// one, by a name that Windows takes as it is, gives csiproxy.ErrInvalidArgument; the
// error doesn't repeat the path.
//
// The server is a DNS or NetBIOS name, an IPv4 address, or an IPv6 address in the
// form that UNC paths have for it, fe80--1.ipv6-literal.net.
func Parse(path string) (Path, error) {
	switch {
	case path == "":
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the remote path is empty")
	case !utf8.ValidString(path):
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the remote path is not valid UTF-8")
	case winname.Length(path) > maxPath:
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the remote path is longer than %d characters", maxPath)
	}
	rest, ok := strings.CutPrefix(strings.ReplaceAll(path, `/`, `\`), `\\`)
	if !ok || strings.HasPrefix(rest, `\`) {
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, `the remote path is not of the form \\server\share`)
	}
	names := strings.FieldsFunc(rest, func(r rune) bool { return r == '\\' })
	if len(names) < 2 {
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, `the remote path is not of the form \\server\share`)
	}
	p := Path{winname.Lower(names[0]), names[1], names[2:]}
	if err := CheckServer(names[0]); err != nil {
		return Path{}, err
	}
	if slices.Contains(notFiles, winname.Lower(p.share)) {
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the share %s has no files", p.share)
	}
	if winname.Length(p.share) > maxShare {
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name of the share is longer than %d characters",
			maxShare)
	}
	for _, name := range names[1:] {
		if err := winname.CheckElement(name); err != nil {
			return Path{}, err
		}
	}
	return p, nil
}

// notFiles are the names, in lower case, under which Windows takes a UNC path for one
// of a server's pipes or mailslots.
//
// Source: https://learn.microsoft.com/windows/win32/ipc/pipe-names,
// https://learn.microsoft.com/windows/win32/ipc/mailslot-names
var notFiles = []string{"ipc$", "pipe", "mailslot"}

// CheckServer returns csiproxy.ErrInvalidArgument for what isn't the name of a server. It also keeps out \\?\ and \\.\, and
// server@port, which is WebDAV.
func CheckServer(server string) error {
	if len(server) > maxServer {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name of the server is longer than %d characters", maxServer)
	}
	for _, r := range server {
		if !('a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.') {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name of the server has the character %q", r)
		}
	}
	if strings.HasPrefix(server, ".") || strings.HasSuffix(server, ".") || strings.Contains(server, "..") {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"the name of the server starts or ends with a dot, or has two in a row")
	}
	return nil
}

// Server returns the server's name in lower case.
func (p Path) Server() string { return p.server }

// Root returns the share that the path is on as \\server\share, in lower case: the
// same text for the same share.
func (p Path) Root() string { return `\\` + p.server + `\` + winname.Lower(p.share) }

// Share returns the root of the share that the path is on.
func (p Path) Share() Path { return Path{server: p.server, share: p.share} }

// IsShare reports whether the path is the root of a share.
func (p Path) IsShare() bool { return len(p.names) == 0 }

// String returns the path with backslashes, without one at its end.
func (p Path) String() string {
	return `\\` + strings.Join(slices.Concat([]string{p.server, p.share}, p.names), `\`)
}

// Folded returns the path in lower case: two paths with the same folded form name the
// same file.
func (p Path) Folded() string { return winname.Lower(p.String()) }

// Equal reports whether two paths are the same but for the case of letters.
func (p Path) Equal(q Path) bool { return p.Folded() == q.Folded() }

// IsAdministrative reports whether the share is one that Windows makes for the administrators of a server: C$, ADMIN$.
//
// Source: https://learn.microsoft.com/troubleshoot/windows-server/networking/problems-administrative-shares-missing
func (p Path) IsAdministrative() bool {
	name, isHidden := strings.CutSuffix(winname.Lower(p.share), "$")
	isDrive := len(name) == 1 && 'a' <= name[0] && name[0] <= 'z'
	return isHidden && (isDrive || name == "admin" || name == "print")
}

// IsBelow reports whether a path is dir, or in it.
func (p Path) IsBelow(dir Path) bool {
	return p.Root() == dir.Root() && strings.HasPrefix(p.Folded()+`\`, dir.Folded()+`\`)
}

// MappedBy reports whether one of the mappings is of the path's share.
func (p Path) MappedBy(mappings []win.SMBMapping) bool {
	return slices.ContainsFunc(mappings, func(m win.SMBMapping) bool {
		mapped, err := Parse(m.RemotePath)
		return err == nil && mapped.Root() == p.Root()
	})
}
