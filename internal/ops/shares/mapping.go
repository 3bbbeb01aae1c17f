// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/unc"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// state is the state of the mapping of a share: see the package comment.
type state int

const (
	missing state = iota
	working
	foreign // it works, but isn't known to have the caller's credentials
	kept    // it fails, and stays
	broken  // it fails for everybody, and is to be made again
)

// maxAttempts bounds how often a mapping is checked again because another process makes
// and removes it at the same time.
const maxAttempts = 4

// Wanted is a mapping that a call asks for.
type Wanted struct {
	remote      unc.Path
	credentials csiproxy.SMBCredentials
	local       pathpolicy.Path
	localText   string // "" if nothing is to lead to the share
	// Staging applies the rules of StageShare. The directory on the share must be there. The
	// credentials must be those of the mapping. If the staging fails, a mapping that it has made
	// is removed. An empty directory that a call has left at the local path is replaced.
	Staging bool
}

// Parse checks a request for a mapping. localPath may be empty.
func (m *Mappings) Parse(remotePath, localPath string, c csiproxy.SMBCredentials) (wanted Wanted, err error) {
	wanted.credentials, wanted.localText = c, localPath
	if wanted.remote, err = unc.Parse(remotePath); err != nil {
		return wanted, err
	}
	if err := c.Validate(); err != nil {
		return wanted, err
	}
	if localPath != "" {
		wanted.local, err = m.paths.Parse(localPath, pathpolicy.MaxPath)
	}
	return wanted, wanted.at(err)
}

// at says that err is about the local path.
func (w Wanted) at(err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "local path " + quote.Text(w.localText), Err: err}
}

// of returns the mapping of another share with the same credentials, and without a local path.
func (w Wanted) of(other unc.Path) Wanted {
	return Wanted{remote: other, credentials: w.credentials}
}

// Map maps a share, unless it is mapped, and makes the local path a link to it. If another call
// removes the mapping before the link is made, Map begins again. If a staging fails, Map removes the
// mapping that it has made, unless that is used: kubelet doesn't unstage a volume whose staging has
// failed for good. If the removal fails, or the process dies before it, CleanUp finds the mapping.
func (m *Mappings) Map(ctx context.Context, wanted Wanted) error {
	made, err := m.mapAndLink(ctx, wanted)
	if err == nil || !made || !wanted.Staging {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if undoErr := m.undo(ctx, wanted.remote); undoErr != nil {
		m.options.Logger.Warn("a StageShare has failed, and the mapping that it made stays",
			"remotePath", wanted.remote.Root(), "err", undoErr)
	}
	return err
}

// undoTimeout bounds the removal of what a failed call has made. The call's own context may have
// ended already.
const undoTimeout = 30 * time.Second

// undo removes the mapping of a share unless something uses it. If another call needs the mapping, but
// has made no link yet, that call makes the mapping again: see [Mappings.linkToMapped].
func (m *Mappings) undo(ctx context.Context, remote unc.Path) error {
	r, err := m.LockForRemoval(ctx, remote)
	if err != nil {
		return err
	}
	defer r.Release()
	links, err := m.LinksToShare(ctx, r.Share)
	if err != nil {
		return err
	}
	_, err = m.RemoveUnused(ctx, r, links)
	return err
}

// mapAndLink maps a share and makes the link, and reports whether it has made the mapping.
func (m *Mappings) mapAndLink(ctx context.Context, wanted Wanted) (made bool, err error) {
	for range maxAttempts {
		if made, err = m.ensure(ctx, wanted); err != nil {
			return made, err
		}
		if err := m.reach(ctx, wanted); err != nil {
			if m.isUnmapped(ctx, wanted.remote) {
				continue // the error only says that the share isn't mapped any more
			}
			return made, err
		}
		mapped, err := m.linkToMapped(ctx, wanted)
		if err != nil || mapped {
			return made, wanted.at(err)
		}
	}
	return made, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"the mapping was removed by others on every attempt; try again later")
}

// ensure maps a share, unless it is mapped, and reports whether it has made the mapping.
func (m *Mappings) ensure(ctx context.Context, wanted Wanted) (made bool, _ error) {
	// If another call removes the mapping during the query of its server, the error doesn't count.
	seen, err := m.queryState(ctx, wanted)
	if seen == working || seen == kept && !m.isUnmapped(ctx, wanted.remote) {
		return false, err
	}
	server, err := m.options.Locks.LockServer(ctx, wanted.remote, locks.ToChange)
	if err != nil {
		return false, err
	}
	defer server.Release()
	for range maxAttempts {
		// The call that had the lock before may have made the mapping.
		seen, err := m.queryState(ctx, wanted)
		switch seen {
		case working, kept:
			return false, err
		case foreign:
			if removed, removeErr := m.removeIdle(ctx, server, wanted.remote); !removed {
				return false, cmp.Or(ctx.Err(), err, removeErr)
			}
		case broken:
			m.options.Logger.Warn("a mapping doesn't work and is made again",
				"remotePath", wanted.remote.Root(), "err", err)
		}
		err = m.create(ctx, server, wanted, seen == broken)
		if errors.Is(err, winerr.ErrorSessionCredentialConflict) {
			err = m.createInstead(ctx, server, wanted)
		}
		if !errors.Is(err, winerr.ErrorAlreadyAssigned) && !errors.Is(err, winerr.ErrorDeviceAlreadyRemembered) {
			return err == nil, err
		}
	}
	return false, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"the mapping was changed by others on every attempt; try again later")
}

// isUnmapped reports whether it is certain that a share isn't mapped now.
func (m *Mappings) isUnmapped(ctx context.Context, remote unc.Path) bool {
	mappings, err := m.List(ctx)
	return err == nil && !remote.MappedBy(mappings)
}

// queryState queries the state of the wanted mapping. The error says why the mapping doesn't work, or
// why it isn't for the caller.
func (m *Mappings) queryState(ctx context.Context, wanted Wanted) (state, error) {
	remote := wanted.remote
	mappings, err := m.List(ctx)
	if err != nil {
		return kept, err
	}
	if !remote.MappedBy(mappings) {
		return missing, nil
	}
	// The status in the list is that of the last use, so the server is queried, too.
	err = m.Probe(ctx, remote.Share())
	if errors.Is(err, winerr.ErrorAccessDenied) && !remote.IsShare() && m.Probe(ctx, remote) == nil {
		err = nil
	}
	if err == nil && wanted.Staging {
		return m.compare(ctx, wanted)
	}
	if known, _, _ := m.logOns.compare(remote, wanted.credentials); !known && errors.Is(err, winerr.ErrorAccessDenied) &&
		disconnected(mappings, remote) {
		return broken, err
	}
	return m.judge(wanted, err)
}

// disconnected reports whether the mapping of a share had no connection when it was used last.
func disconnected(mappings []win.SMBMapping, remote unc.Path) bool {
	return slices.ContainsFunc(mappings, func(mapping win.SMBMapping) bool {
		return mapping.Status == win.SMBMappingDisconnected && remote.MappedBy([]win.SMBMapping{mapping})
	})
}

// compare says whether a working mapping has the credentials of the caller. If an earlier process has
// made the mapping, only its user may be known, and only if Windows tells it. Then compare may
// return foreign without an error.
func (m *Mappings) compare(ctx context.Context, wanted Wanted) (state, error) {
	known, sameUser, samePassword := m.logOns.compare(wanted.remote, wanted.credentials)
	if !known {
		var err error
		if sameUser, err = m.maybeSameUser(ctx, wanted); err != nil {
			return kept, err
		}
	}
	switch {
	case !sameUser:
		return foreign, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped for another user than the one given, and all pods of the node share a mapping: use the "+
				"same user, or unstage the share everywhere first")
	case known && !samePassword:
		return foreign, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped with another password than the one given, which works: if the password was changed, "+
				"unstage the share everywhere first")
	case !known:
		return foreign, nil
	}
	return working, nil
}

// maybeSameUser reports whether a mapping may be that of the given user. It returns true if the user
// isn't known, because the node has no connection to the share.
func (m *Mappings) maybeSameUser(ctx context.Context, wanted Wanted) (bool, error) {
	connections, err := m.connections(ctx, wanted.remote)
	if err != nil {
		return false, &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "the share is mapped, and Windows doesn't tell for which user; try again later",
		}
	}
	return len(connections) == 0 || slices.ContainsFunc(connections, func(c win.SMBConnection) bool {
		return strings.EqualFold(plainName(c.Credential), plainName(wanted.credentials.Username))
	}), nil
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
func (m *Mappings) connections(ctx context.Context, remote unc.Path) ([]win.SMBConnection, error) {
	all, err := m.sys.SMBConnections(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c win.SMBConnection) bool {
		connected, err := unc.Parse(`\\` + c.Server + `\` + c.Share)
		return err != nil || connected.Root() != remote.Root()
	}), nil
}

// judge returns the state of the wanted mapping by err, that of the query of the share's root. The
// package comment has the reasons.
func (m *Mappings) judge(wanted Wanted, err error) (state, error) {
	if err == nil {
		return working, nil
	}
	var errno winerr.Errno
	ok := errors.As(err, &errno)
	if !ok { // err is no answer of Windows
		return kept, err
	}
	_, sameUser, sameCredentials := m.logOns.compare(wanted.remote, wanted.credentials)
	switch errno {
	case winerr.ErrorNoSuchLogonSession:
		return broken, err
	case winerr.ErrorBadNetName:
		return kept, keptError(err, "its server has no such share now, or can't be reached")
	case winerr.ErrorInvalidPassword, winerr.ErrorLogonFailure, winerr.ErrorPasswordExpired, winerr.ErrorPasswordMustChange,
		winerr.ErrorBadUsername:
		if sameCredentials {
			return kept, keptError(err, "its server refuses its credentials, which are the ones given")
		}
		return broken, err
	case winerr.ErrorAccountRestriction, winerr.ErrorAccountDisabled, winerr.ErrorLogonTypeNotGranted:
		if sameUser {
			return kept, keptError(err, "its server refuses its user, who is the one given")
		}
		return broken, err
	case winerr.ErrorAccountLockedOut:
		return kept, keptError(err, "its server has locked its user out for now")
	case winerr.ErrorAccessDenied:
		return kept, keptError(err, "its server denies the access")
	}
	return kept, keptError(err, "it can't be used now")
}

// keptError is the error of a mapping that fails and is kept.
func keptError(err error, reason string) error {
	kind := csiproxy.KindOf(err)
	switch kind {
	case csiproxy.ErrPermissionDenied, csiproxy.ErrUnauthenticated, csiproxy.ErrFailedPrecondition:
	default:
		kind = csiproxy.ErrUnavailable
	}
	return &csiproxy.Error{Kind: kind, Detail: "the share is mapped, but " + reason, Err: err}
}

// reach checks that the wanted directory on the share can be used. Except for a staging, it may be
// missing, since somebody may make it later.
func (m *Mappings) reach(ctx context.Context, wanted Wanted) error {
	if wanted.remote.IsShare() && !wanted.Staging {
		return nil
	}
	err := m.Probe(ctx, wanted.remote)
	if errors.Is(err, winerr.ErrorFileNotFound) || errors.Is(err, winerr.ErrorPathNotFound) {
		if !wanted.Staging {
			return nil
		}
		return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "the share has no such directory", Err: err}
	}
	if errors.As(err, new(winerr.Errno)) {
		return keptError(err, "the path on it can't be used")
	}
	return err
}

// create makes the mapping of a share; with instead, it replaces the one that there is. A mapping for a
// staged path gets its record first. A mapping that replaces another one has a record only if that
// had one, so it stays CSI Proxy's or an administrator's.
func (m *Mappings) create(ctx context.Context, server *locks.LockedServer, wanted Wanted, instead bool) error {
	r, err := lockMapping(ctx, server, wanted.remote)
	if err != nil {
		return err
	}
	defer r.Share.Release()
	if instead {
		err := m.unmap(ctx, r)
		instead = !errors.Is(err, winerr.ErrorNotConnected)
		if err != nil && instead {
			return err
		}
	}
	isNew := false
	if wanted.localText != "" && !instead {
		if isNew, err = m.record(ctx, r.Share); err != nil {
			return err
		}
	}
	err = m.logOns.logOn(wanted.remote, wanted.credentials, wanted.localText, func() error {
		return m.sys.CreateSMBGlobalMapping(ctx, wanted.remote.Root(), win.SMBMappingOptions{
			Username:       wanted.credentials.Username,
			Password:       wanted.credentials.Password,
			RequirePrivacy: !m.options.WithoutPrivacy,
		})
	})
	if err == nil {
		m.options.Logger.Info("mapping made", "remotePath", wanted.remote.Root(),
			"requirePrivacy", !m.options.WithoutPrivacy)
	}
	if err != nil && isNew && ctx.Err() == nil {
		if dropErr := m.dropRecord(ctx, r.Share); dropErr != nil {
			m.options.Logger.Info("records of SMB mappings can't be read", "err", dropErr)
		}
	}
	if errors.Is(err, winerr.ErrorAccessDenied) && !m.options.WithoutPrivacy {
		return &csiproxy.Error{Detail: "access denied: the user lacks rights to the share, or the server can't encrypt; " +
			"the flag -require-privacy=false allows that", Err: err}
	}
	return err
}

// unmap removes the mapping of a share. Files that are open through it break.
func (m *Mappings) unmap(ctx context.Context, r *LockedMapping) error {
	remote := r.remote
	err := m.sys.RemoveSMBGlobalMapping(ctx, remote.Root())
	if err == nil || errors.Is(err, winerr.ErrorNotConnected) {
		m.logOns.unmapped(remote)
	}
	if err == nil {
		m.options.Logger.Info("mapping removed", "remotePath", remote.Root())
	}
	return err
}

// createInstead makes a mapping when Windows refuses it because other mappings of the same server
// have other credentials. If all of these are broken, such as after a change of the password,
// it removes them. Those of the same user it makes again with the new credentials. Those of
// another user, or of an earlier process, it doesn't, since the new credentials may give their
// pods access to more. These are made again when they are next requested.
func (m *Mappings) createInstead(ctx context.Context, server *locks.LockedServer, wanted Wanted) error {
	others, err := m.others(ctx, wanted.remote)
	if err != nil {
		return err
	}
	for _, other := range others {
		if seen, _ := m.judge(wanted.of(other), m.Probe(ctx, other)); seen != broken {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return conflict(other, winerr.ErrorSessionCredentialConflict)
		}
	}
	var again []unc.Path
	for _, other := range others {
		_, sameUser, _ := m.logOns.compare(other, wanted.credentials)
		m.options.Logger.Warn("a mapping doesn't work and makes way for another one", "remotePath", other.Root(), "other",
			wanted.remote.Root())
		if err := m.makeWay(ctx, server, other); err != nil {
			return err
		}
		if sameUser {
			again = append(again, other)
		}
	}
	if err := m.create(ctx, server, wanted, false); err != nil {
		if errors.Is(err, winerr.ErrorSessionCredentialConflict) {
			return &csiproxy.Error{Detail: "the server is in use with other credentials, and Windows allows one user for " +
				"each server", Err: err}
		}
		return err
	}
	for _, other := range again {
		if err := m.create(ctx, server, wanted.of(other), false); err != nil {
			m.options.Logger.Warn("a mapping that didn't work can't be made again", "remotePath", other.Root(), "err", err)
		}
	}
	return nil
}

// makeWay removes the mapping of a share, so that another one of the server can be made.
func (m *Mappings) makeWay(ctx context.Context, server *locks.LockedServer, other unc.Path) error {
	r, err := lockMapping(ctx, server, other)
	if err != nil {
		return err
	}
	defer r.Share.Release()
	if err := m.unmap(ctx, r); err != nil && !errors.Is(err, winerr.ErrorNotConnected) {
		return err
	}
	return nil
}

// conflict is the error of a mapping that can't be made as long as that of other exists.
func conflict(other unc.Path, err error) error {
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition,
		Detail: "another mapping of the server, " + quote.Text(other.Root()) +
			", uses other credentials, and Windows allows one user for each server: " +
			"use the same user, remove that mapping, or name the server differently",
		Err: err,
	}
}

// others returns the other shares of remote's server that are mapped.
func (m *Mappings) others(ctx context.Context, remote unc.Path) ([]unc.Path, error) {
	mappings, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	var others []unc.Path
	for _, mapping := range mappings {
		other, err := unc.Parse(mapping.RemotePath)
		if err == nil && other.Server() == remote.Server() && other.Root() != remote.Root() {
			others = append(others, other)
		}
	}
	return others, nil
}
