// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"errors"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// facts are decide's knowledge of a mapping.
type facts struct {
	// name is the name of the mapping in Windows' list; empty if the share isn't mapped.
	name string
	// isFull is set if the share isn't mapped, and the driver has maxMappings with the call's own mapping
	// and those of concurrent calls.
	isFull bool
	// answer is Windows' error for the root of the share; nil if the root exists, or if the root is
	// denied and the wanted directory exists.
	answer error
	// disconnected is the mapping's status in Windows' list.
	disconnected bool
	credentials  comparison
	staging      bool
	// isPrivate is set if the mapping requires encryption, and lacksPrivacy if only the caller does.
	isPrivate, lacksPrivacy bool
}

// maxMappings limits the mappings of a driver with endpoints of its own. Windows lists the mappings of all
// drivers at once.
const maxMappings = 512

// comparison is how the caller's credentials compare to those of a mapping.
type comparison string

const (
	sameCredentials    comparison = "same"
	otherPassword      comparison = "password" // of the same user
	otherUser          comparison = "user"
	unknownCredentials comparison = "unknown" // an earlier process or another program has made the mapping
)

// gather collects the facts of a share's plain mapping.
func (m *Mappings) gather(ctx context.Context, wanted Wanted) (facts, error) {
	making := m.making.Load() // before the list, which has the mappings of the calls that have ended
	mappings, err := m.List(ctx)
	if err != nil {
		return facts{}, err
	}
	index := slices.IndexFunc(mappings, func(mapping win.SMBMapping) bool { return isPlain(mapping, wanted.remote.Share()) })
	if index < 0 {
		isFull := m.options.Users.Driver() != "" && len(mappings)+int(making) > maxMappings
		return facts{staging: wanted.Staging, isFull: isFull}, nil
	}
	return m.gatherOf(ctx, wanted, mappings[index])
}

// gatherOf collects the facts of a mapping on the wanted share. Credentials are known only for
// plain mappings of this process.
func (m *Mappings) gatherOf(ctx context.Context, wanted Wanted, mapping win.SMBMapping) (facts, error) {
	f := facts{name: mapping.Name(), staging: wanted.Staging, disconnected: mapping.Status == win.SMBMappingDisconnected,
		credentials: unknownCredentials, isPrivate: mapping.RequirePrivacy}
	f.lacksPrivacy = wanted.Privacy == csiproxy.PrivacyRequired && !f.isPrivate
	if isPlain(mapping, wanted.remote.Share()) {
		f.credentials = m.logOns.compare(wanted.remote, wanted.credentials)
	}
	// The status in the list dates from the last use, and gatherOf also queries the server.
	f.answer = m.Probe(ctx, wanted.remote.Share())
	if errors.Is(f.answer, winerr.ErrorAccessDenied) && !wanted.remote.IsShare() && m.Probe(ctx, wanted.remote) == nil {
		f.answer = nil
	}
	if f.answer != nil || !f.staging || f.credentials != unknownCredentials {
		return f, nil
	}
	isOther, err := m.isOfOtherUser(ctx, wanted)
	if err != nil {
		return f, &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "the share is mapped, and Windows doesn't tell for which user; try again later",
		}
	}
	if isOther {
		f.credentials = otherUser
	}
	return f, nil
}

// isPlain reports whether a mapping of path has no drive letter. CSI Proxy makes plain mappings of
// shares.
func isPlain(mapping win.SMBMapping, path win.UNCPath) bool {
	remote, err := win.ParseUNC(mapping.RemotePath)
	return err == nil && mapping.LocalPath == "" && remote.Equal(path)
}

// IsOwnKind reports whether CSI Proxy may have made a mapping of remote: a plain mapping of a share.
func IsOwnKind(mapping win.SMBMapping, remote win.UNCPath) bool {
	return mapping.LocalPath == "" && remote.IsShare()
}

// hasPlain reports whether path has a plain mapping.
func hasPlain(mappings []win.SMBMapping, path win.UNCPath) bool {
	return slices.ContainsFunc(mappings, func(mapping win.SMBMapping) bool { return isPlain(mapping, path) })
}

// isOfOtherUser reports whether the node has connections to the wanted share, all of users other
// than the caller's.
func (m *Mappings) isOfOtherUser(ctx context.Context, wanted Wanted) (bool, error) {
	connections, err := m.connections(ctx, wanted.remote)
	return len(connections) > 0 && !slices.ContainsFunc(connections, func(c win.SMBConnection) bool {
		user := plainName(c.Credential)
		if wanted.credentials.AsNode() {
			return strings.HasSuffix(user, "$") // as names of computers' accounts end
		}
		return strings.EqualFold(user, plainName(wanted.credentials.Username))
	}), err
}

// plainName returns a user's name without the domain, which has several spellings.
func plainName(user string) string {
	if index := strings.LastIndex(user, `\`); index >= 0 {
		return user[index+1:]
	}
	name, _, _ := strings.Cut(user, "@")
	return name
}

// connections returns the connections of the node to a share.
func (m *Mappings) connections(ctx context.Context, remote win.UNCPath) ([]win.SMBConnection, error) {
	all, err := m.sys.SMBConnections(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c win.SMBConnection) bool {
		connected, err := win.ParseUNC(`\\` + c.Server + `\` + c.Share)
		return err != nil || connected.Root() != remote.Root()
	}), nil
}
