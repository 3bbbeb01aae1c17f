// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"slices"
	"strings"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// UNCPath is a share or a directory on a share: \\server\share\directory.
type UNCPath struct {
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

// ParseUNC checks the text of a UNC path. Slashes are taken as backslashes, several in a row as
// one, and slashes at the end are dropped. Anything but a share, or a path below a share by names
// that Windows keeps unchanged, gives csiproxy.ErrInvalidArgument; the error omits the path.
//
// The server is a DNS or NetBIOS name, an IPv4 address, or an IPv6 address in the form for UNC
// paths, fe80--1.ipv6-literal.net.
func ParseUNC(path string) (UNCPath, error) {
	switch {
	case path == "":
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the remote path is empty")
	case !utf8.ValidString(path):
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the remote path is not valid UTF-8")
	case NameLength(path) > maxPath:
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the remote path is longer than %d characters", maxPath)
	}
	rest, ok := strings.CutPrefix(strings.ReplaceAll(path, `/`, `\`), `\\`)
	if !ok || strings.HasPrefix(rest, `\`) {
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, `the remote path is not of the form \\server\share`)
	}
	names := strings.FieldsFunc(rest, func(r rune) bool { return r == '\\' })
	if len(names) < 2 {
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, `the remote path is not of the form \\server\share`)
	}
	p := UNCPath{LowerName(names[0]), names[1], names[2:]}
	if err := CheckServerName(names[0]); err != nil {
		return UNCPath{}, err
	}
	if slices.Contains(notFiles, LowerName(p.share)) {
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the share %s has no files", p.share)
	}
	if NameLength(p.share) > maxShare {
		return UNCPath{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name of the share is longer than %d characters",
			maxShare)
	}
	for _, name := range names[1:] {
		if err := CheckNameElement(name); err != nil {
			return UNCPath{}, err
		}
	}
	return p, nil
}

// notFiles are the names, in lower case, under which Windows takes a UNC path for a pipe or
// mailslot of a server.
//
// Source: https://learn.microsoft.com/windows/win32/ipc/pipe-names,
// https://learn.microsoft.com/windows/win32/ipc/mailslot-names
var notFiles = []string{"ipc$", "pipe", "mailslot"}

// CheckServerName returns csiproxy.ErrInvalidArgument for an invalid server name, including \\?\
// and \\.\, and server@port (WebDAV).
func CheckServerName(server string) error {
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
func (p UNCPath) Server() string { return p.server }

// Root returns the path's share as \\server\share, in lower case: the same text for the same share.
func (p UNCPath) Root() string { return `\\` + p.server + `\` + LowerName(p.share) }

// Share returns the root of the path's share.
func (p UNCPath) Share() UNCPath { return UNCPath{server: p.server, share: p.share} }

// IsShare reports whether the path is the root of a share.
func (p UNCPath) IsShare() bool { return len(p.names) == 0 }

// String returns the path with backslashes, and without a backslash at its end.
func (p UNCPath) String() string {
	return `\\` + strings.Join(slices.Concat([]string{p.server, p.share}, p.names), `\`)
}

// Folded returns the path in lower case: two paths with the same folded form name the
// same file.
func (p UNCPath) Folded() string { return LowerName(p.String()) }

// Equal reports whether two paths are the same, ignoring case.
func (p UNCPath) Equal(q UNCPath) bool { return p.Folded() == q.Folded() }

// IsAdministrative reports whether the share is one of Windows' shares for the administrators of a
// server: C$, ADMIN$.
//
// Source: https://learn.microsoft.com/troubleshoot/windows-server/networking/problems-administrative-shares-missing
func (p UNCPath) IsAdministrative() bool {
	name, isHidden := strings.CutSuffix(LowerName(p.share), "$")
	isDrive := len(name) == 1 && 'a' <= name[0] && name[0] <= 'z'
	return isHidden && (isDrive || name == "admin" || name == "print")
}

// IsBelow reports whether a path is dir, or in dir.
func (p UNCPath) IsBelow(dir UNCPath) bool {
	return p.Root() == dir.Root() && strings.HasPrefix(p.Folded()+`\`, dir.Folded()+`\`)
}

// MappedBy reports whether the path's share is among the mappings.
func (p UNCPath) MappedBy(mappings []SMBMapping) bool {
	return slices.ContainsFunc(mappings, func(m SMBMapping) bool {
		mapped, err := ParseUNC(m.RemotePath)
		return err == nil && mapped.Root() == p.Root()
	})
}
