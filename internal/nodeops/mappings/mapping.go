// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/smb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// state is what became of the mapping of a share: see the package comment.
type state int

const (
	missing state = iota
	working
	foreign // it works, but isn't known to have the caller's credentials
	kept    // it fails, and stays
	broken  // it fails for everybody, and is to be made again
)

// maxAttempts bounds how often a mapping is looked at again because another process
// makes and removes it at the same time.
const maxAttempts = 4

// Wanted is a mapping that a call asks for.
type Wanted struct {
	remote      unc.Path
	credentials smb.Credentials
	local       pathpolicy.Path
	localText   string // "" if nothing is to lead to the share
	// Staging has the rules of StageShare: the directory on the share must be there, the
	// credentials must be those of the mapping, the mapping that it makes goes again if it
	// fails, and a directory that a call has left at the local path is replaced.
	Staging bool
}

// Parse checks a request for a mapping. localPath may be empty.
func (m *Mappings) Parse(remotePath, localPath string, c smb.Credentials) (w Wanted, err error) {
	w.credentials, w.localText = c, localPath
	if w.remote, err = unc.Parse(remotePath); err != nil {
		return w, err
	}
	if err := c.Validate(); err != nil {
		return w, err
	}
	if localPath != "" {
		w.local, err = m.paths.Parse(localPath, pathpolicy.MaxPath)
	}
	return w, w.at(err)
}

// at says that err is about the local path.
func (w Wanted) at(err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "local path " + quote.Text(w.localText), Err: err}
}

// of returns the mapping of another share that the same call asks for.
func (w Wanted) of(other unc.Path) Wanted {
	w.remote = other
	return w
}

// Map has a share mapped, and its local path a link to it. If the mapping goes before the link
// is made, it begins again.
func (m *Mappings) Map(ctx context.Context, w Wanted) (err error) {
	m.claims.begin(w.remote)
	defer func() { m.endClaim(ctx, w.remote, err) }()
	for range maxAttempts {
		made, err := m.ensure(ctx, w)
		if made && w.Staging {
			m.claims.made(w.remote)
		}
		if err == nil {
			err = m.reach(ctx, w)
			if err != nil && m.isUnmapped(ctx, w.remote) {
				continue // the error is that of a share that isn't mapped
			}
		}
		if err != nil {
			return err
		}
		mapped, err := m.linkWhileMapped(ctx, w)
		if err != nil || mapped {
			return w.at(err)
		}
	}
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the mapping was removed by others on every attempt; try again later")
}

// ensure has a share mapped, and reports whether it has made the mapping.
func (m *Mappings) ensure(ctx context.Context, w Wanted) (made bool, _ error) {
	if seen, err := m.look(ctx, w); seen == working || seen == kept {
		return false, err
	}
	ctx, server, err := m.options.Owner.Server(ctx, w.remote)
	if err != nil {
		return false, err
	}
	defer server.Release()
	for range maxAttempts {
		// Whoever had the right before may have made it.
		seen, err := m.look(ctx, w)
		switch seen {
		case working, kept:
			return false, err
		case foreign:
			if removed, removeErr := m.removeIdle(ctx, server, w.remote); !removed {
				return false, cmp.Or(ctx.Err(), err, removeErr)
			}
		case broken:
			m.options.Logger.Warn("a mapping doesn't work and is made again", "remotePath", w.remote.Root(), "err", err)
		}
		err = m.create(ctx, server, w, seen == broken)
		if errors.Is(err, win.ErrorSessionCredentialConflict) {
			err = m.createInstead(ctx, server, w)
		}
		if !errors.Is(err, win.ErrorAlreadyAssigned) && !errors.Is(err, win.ErrorDeviceAlreadyRemembered) {
			return err == nil, err
		}
	}
	return false, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"the mapping was changed by others on every attempt; try again later")
}

// isUnmapped reports whether it is certain that a share isn't mapped now.
func (m *Mappings) isUnmapped(ctx context.Context, remote unc.Path) bool {
	mappings, err := m.options.Shares.Mappings(ctx)
	return err == nil && !remote.MappedBy(mappings)
}

// look sees what became of the mapping that is wanted. The error is why it fails, or why it
// isn't for the caller.
func (m *Mappings) look(ctx context.Context, w Wanted) (seen state, err error) {
	for range maxAttempts {
		before := m.logOns.Changes(w.remote)
		seen, err = m.lookOnce(ctx, w)
		if m.logOns.Changes(w.remote) == before {
			break
		}
	}
	return seen, err
}

func (m *Mappings) lookOnce(ctx context.Context, w Wanted) (state, error) {
	remote := w.remote
	mappings, err := m.options.Shares.Mappings(ctx)
	if err != nil {
		return kept, err
	}
	if !remote.MappedBy(mappings) {
		return missing, nil
	}
	// The status in the list tells how things were when the mapping was used last.
	err = m.options.Shares.Probe(ctx, remote.Share())
	if errors.Is(err, win.ErrorAccessDenied) && !remote.IsShare() && m.options.Shares.Probe(ctx, remote) == nil {
		err = nil
	}
	if err == nil && w.Staging {
		return m.compare(ctx, w)
	}
	if known, _, _ := m.logOns.Compare(remote, w.credentials); !known && errors.Is(err, win.ErrorAccessDenied) &&
		disconnected(mappings, remote) {
		return broken, err
	}
	return m.judge(w, err)
}

// disconnected reports whether the mapping of a share had no connection when it was used last.
func disconnected(mappings []win.SMBMapping, remote unc.Path) bool {
	return slices.ContainsFunc(mappings, func(mapping win.SMBMapping) bool {
		return mapping.Status == win.SMBMappingDisconnected && remote.MappedBy([]win.SMBMapping{mapping})
	})
}

// compare says whether a mapping that works is one with the credentials of the caller. One that
// an earlier process has made is known by its user only, as far as Windows tells: then the error
// may be nil though it is foreign.
func (m *Mappings) compare(ctx context.Context, w Wanted) (state, error) {
	known, sameUser, samePassword := m.logOns.Compare(w.remote, w.credentials)
	if !known {
		var err error
		if sameUser, err = m.maybeSameUser(ctx, w); err != nil {
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

// maybeSameUser reports whether the user of a mapping may be the one given: it isn't known while
// the node has no connection to the share. An error says nothing of the user.
func (m *Mappings) maybeSameUser(ctx context.Context, w Wanted) (bool, error) {
	connections, err := m.connections(ctx, w.remote)
	if err != nil {
		return false, &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "the share is mapped, and Windows doesn't tell for which user; try again later",
		}
	}
	return len(connections) == 0 || slices.ContainsFunc(connections, func(c win.SMBConnection) bool {
		return strings.EqualFold(account(c.Credential), account(w.credentials.Username))
	}), nil
}

// account returns a user's name without the domain, which has several spellings.
func account(user string) string {
	if at := strings.LastIndex(user, `\`); at >= 0 {
		return user[at+1:]
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
		at, err := unc.Parse(`\\` + c.Server + `\` + c.Share)
		return err != nil || at.Root() != remote.Root()
	}), nil
}

// judge decides what becomes of the mapping that is wanted, if the root of the share gave an
// error. The package comment has the reasons.
func (m *Mappings) judge(w Wanted, err error) (state, error) {
	if err == nil {
		return working, nil
	}
	var errno win.Errno
	ok := errors.As(err, &errno)
	if !ok { // no answer of Windows
		return kept, err
	}
	_, sameUser, sameCredentials := m.logOns.Compare(w.remote, w.credentials)
	switch errno {
	case win.ErrorNoSuchLogonSession:
		return broken, err
	case win.ErrorBadNetName:
		return kept, keptError(err, "its server has no such share now, or can't be reached")
	case win.ErrorInvalidPassword, win.ErrorLogonFailure, win.ErrorPasswordExpired, win.ErrorPasswordMustChange,
		win.ErrorBadUsername:
		if sameCredentials {
			return kept, keptError(err, "its server refuses its credentials, which are the ones given")
		}
		return broken, err
	case win.ErrorAccountRestriction, win.ErrorAccountDisabled, win.ErrorLogonTypeNotGranted:
		if sameUser {
			return kept, keptError(err, "its server refuses its user, who is the one given")
		}
		return broken, err
	case win.ErrorAccountLockedOut:
		return kept, keptError(err, "its server has locked its user out for now")
	case win.ErrorAccessDenied:
		return kept, keptError(err, "its server denies the access")
	}
	return kept, keptError(err, "it can't be used now")
}

// keptError is the error of a mapping that fails and is kept.
func keptError(err error, why string) error {
	kind := csiproxy.KindOf(err)
	switch kind {
	case csiproxy.ErrPermissionDenied, csiproxy.ErrUnauthenticated, csiproxy.ErrFailedPrecondition:
	default:
		kind = csiproxy.ErrUnavailable
	}
	return &csiproxy.Error{Kind: kind, Detail: "the share is mapped, but " + why, Err: err}
}

// reach sees whether the directory that is wanted can be used, if it is one. It may be missing,
// except for a staging: somebody may make it later.
func (m *Mappings) reach(ctx context.Context, w Wanted) error {
	if w.remote.IsShare() && !w.Staging {
		return nil
	}
	err := m.options.Shares.Probe(ctx, w.remote)
	if errors.Is(err, win.ErrorFileNotFound) || errors.Is(err, win.ErrorPathNotFound) {
		if !w.Staging {
			return nil
		}
		return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "the share has no such directory", Err: err}
	}
	if errors.As(err, new(win.Errno)) {
		return keptError(err, "the path on it can't be used")
	}
	return err
}

// create makes the mapping of a share, instead of the one that there is if instead is set, and
// before that its record, if it is for a staged path.
func (m *Mappings) create(ctx context.Context, server *use.Server, w Wanted, instead bool) error {
	ctx, r, err := m.rights(ctx, server, w.remote)
	if err != nil {
		return err
	}
	defer r.Share.Release()
	if instead {
		if err := m.unmap(ctx, r); err != nil && !errors.Is(err, win.ErrorNotConnected) {
			return err
		}
	}
	isNew := false
	if w.localText != "" {
		if isNew, err = m.record(ctx, w.remote); err != nil {
			return err
		}
	}
	// What is under way may have seen what was before.
	defer m.options.Shares.Forget(w.remote)
	err = m.logOns.LogOn(ctx, w.remote, w.credentials, w.localText, func() error {
		return m.sys.CreateSMBGlobalMapping(ctx, w.remote.Root(), win.SMBMappingOptions{
			Username:       w.credentials.Username,
			Password:       w.credentials.Password,
			RequirePrivacy: !m.options.WithoutPrivacy,
		})
	})
	if err == nil {
		m.options.Logger.Info("mapping made", "remotePath", w.remote.Root(), "requirePrivacy", !m.options.WithoutPrivacy)
	}
	if err != nil && isNew && ctx.Err() == nil {
		if dropErr := m.dropRecord(ctx, w.remote); dropErr != nil {
			m.options.Logger.Info("records of SMB mappings can't be looked at", "err", dropErr)
		}
	}
	if errors.Is(err, win.ErrorAccessDenied) && !m.options.WithoutPrivacy {
		return &csiproxy.Error{Detail: "access denied: the user lacks rights to the share, or the server can't encrypt; " +
			"the flag -require-privacy=false allows that", Err: err}
	}
	return err
}

// unmap removes the mapping of a share. What is open through it breaks.
func (m *Mappings) unmap(ctx context.Context, r *Rights) error {
	remote := r.remote
	defer m.options.Shares.Forget(remote)
	err := m.sys.RemoveSMBGlobalMapping(ctx, remote.Root())
	if err == nil || errors.Is(err, win.ErrorNotConnected) {
		m.logOns.Unmapped(remote)
	}
	if err == nil {
		m.options.Logger.Info("mapping removed", "remotePath", remote.Root())
	}
	return err
}

// createInstead makes a mapping where others of the same server have other
// credentials, which Windows doesn't allow. If all of these are broken, such as after a
// change of the password, they are removed, and those of the same user are made again with
// the new credentials. A mapping of another user, or of an earlier process, isn't: the new
// credentials may give its pods access to more. It is made when it is next asked for.
func (m *Mappings) createInstead(ctx context.Context, server *use.Server, w Wanted) error {
	others, err := m.others(ctx, w.remote)
	if err != nil {
		return err
	}
	for _, other := range others {
		if seen, _ := m.judge(w.of(other), m.options.Shares.Probe(ctx, other)); seen != broken {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return conflict(other, win.ErrorSessionCredentialConflict)
		}
	}
	var again []unc.Path
	for _, other := range others {
		_, sameUser, _ := m.logOns.Compare(other, w.credentials)
		m.options.Logger.Warn("a mapping doesn't work and makes way for another one", "remotePath", other.Root(), "other",
			w.remote.Root())
		if err := m.makeWay(ctx, server, other); err != nil {
			return err
		}
		if sameUser {
			again = append(again, other)
		}
	}
	if err := m.create(ctx, server, w, false); err != nil {
		if errors.Is(err, win.ErrorSessionCredentialConflict) {
			return &csiproxy.Error{Detail: "the server is in use with other credentials, and Windows allows one user for " +
				"each server", Err: err}
		}
		return err
	}
	for _, other := range again {
		if err := m.create(ctx, server, w.of(other), false); err != nil {
			m.options.Logger.Warn("a mapping that didn't work can't be made again", "remotePath", other.Root(), "err", err)
		}
	}
	return nil
}

// makeWay removes the mapping of a share for that of another one.
func (m *Mappings) makeWay(ctx context.Context, server *use.Server, other unc.Path) error {
	ctx, r, err := m.rights(ctx, server, other)
	if err != nil {
		return err
	}
	defer r.Share.Release()
	if err := m.unmap(ctx, r); err != nil && !errors.Is(err, win.ErrorNotConnected) {
		return err
	}
	return nil
}

// conflict is the error of a mapping that can't be made beside other.
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
	mappings, err := m.options.Shares.Mappings(ctx)
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
