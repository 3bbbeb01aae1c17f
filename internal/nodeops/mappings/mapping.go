// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"errors"

	"github.com/csi-proxy/csi-proxy/smb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// state is what became of the mapping of a share: see the package comment.
type state int

const (
	missing state = iota
	working
	kept   // it fails, and stays
	broken // it fails for everybody, and is to be made again
)

// maxAttempts bounds how often a mapping is looked at anew because another process
// makes and removes it at the same time.
const maxAttempts = 4

// wanted is a mapping that a call asks for.
type wanted struct {
	remote      unc.Path
	credentials smb.Credentials
	asker       string // the path that is to lead to the share; may be empty
}

// of returns the mapping of another share that the same call asks for.
func (w wanted) of(other unc.Path) wanted {
	w.remote = other
	return w
}

// ensure has a share mapped, and reports whether it has made the mapping.
func (m *Mappings) ensure(ctx context.Context, w wanted) (made bool, _ error) {
	if seen, err := m.look(ctx, w); seen == working || seen == kept {
		return false, err
	}
	ctx, server, err := m.options.Owner.Server(ctx, w.remote)
	if err != nil {
		return false, err
	}
	defer server.Release()
	for range maxAttempts {
		// Whoever had the lock before may have made it.
		seen, err := m.look(ctx, w)
		switch seen {
		case working, kept:
			return false, err
		case broken:
			m.options.Logger.Warn("a mapping doesn't work and is made again", "remotePath", w.remote.Root(), "err", err)
			if err := m.remove(ctx, w.remote); err != nil && !errors.Is(err, win.ErrorNotConnected) {
				return false, err
			}
		}
		err = m.create(ctx, w)
		if errors.Is(err, win.ErrorSessionCredentialConflict) {
			err = m.createInstead(ctx, w)
		}
		if !errors.Is(err, win.ErrorAlreadyAssigned) && !errors.Is(err, win.ErrorDeviceAlreadyRemembered) {
			return err == nil, err
		}
	}
	return false, csiproxy.Errorf(csiproxy.ErrUnavailable, "the mapping was changed by others on every attempt; try again later")
}

// look sees what became of the mapping that is wanted. The error is why it fails.
func (m *Mappings) look(ctx context.Context, w wanted) (state, error) {
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
		return working, nil
	}
	return m.judge(w, err)
}

// judge decides what becomes of the mapping that is wanted, if the root of the share gave an
// error. The package comment has the reasons.
func (m *Mappings) judge(w wanted, err error) (state, error) {
	if err == nil {
		return working, nil
	}
	errno, ok := errors.AsType[win.Errno](err)
	if !ok { // no answer of Windows
		return kept, err
	}
	_, sameUser, sameCredentials := m.logOns.Compare(w.remote, w.credentials)
	switch errno {
	case win.ErrorBadNetName, win.ErrorNoSuchLogonSession:
		return broken, err
	case win.ErrorInvalidPassword, win.ErrorLogonFailure, win.ErrorPasswordExpired, win.ErrorPasswordMustChange, win.ErrorBadUsername:
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

// reach sees whether the directory that remote is can be used, if it is one. It may be
// missing: somebody may make it later.
func (m *Mappings) reach(ctx context.Context, remote unc.Path) error {
	if remote.IsShare() {
		return nil
	}
	err := m.options.Shares.Probe(ctx, remote)
	if errors.Is(err, win.ErrorFileNotFound) || errors.Is(err, win.ErrorPathNotFound) {
		return nil
	}
	if _, answered := errors.AsType[win.Errno](err); answered {
		return keptError(err, "the directory on it can't be used")
	}
	return err
}

func (m *Mappings) create(ctx context.Context, w wanted) error {
	// What is under way may have seen what was before.
	defer m.options.Shares.Forget(w.remote)
	err := m.logOns.LogOn(ctx, w.remote, w.credentials, w.asker, func() error {
		return m.sys.CreateSMBGlobalMapping(ctx, w.remote.Root(), win.SMBMappingOptions{
			Username:       w.credentials.Username,
			Password:       w.credentials.Password,
			RequirePrivacy: !m.options.WithoutPrivacy,
		})
	})
	if err == nil {
		m.options.Logger.Info("mapping made", "remotePath", w.remote.Root(), "requirePrivacy", !m.options.WithoutPrivacy)
	}
	if errors.Is(err, win.ErrorAccessDenied) && !m.options.WithoutPrivacy {
		return &csiproxy.Error{Detail: "access denied: the user lacks rights to the share, or the server can't encrypt; the flag -require-privacy=false allows that", Err: err}
	}
	return err
}

func (m *Mappings) remove(ctx context.Context, remote unc.Path) error {
	defer m.options.Shares.Forget(remote)
	err := m.sys.RemoveSMBGlobalMapping(ctx, remote.Root())
	if err == nil || errors.Is(err, win.ErrorNotConnected) {
		m.logOns.Unmapped(remote)
	}
	switch {
	case err == nil:
		m.options.Logger.Info("mapping removed", "remotePath", remote.Root())
	case errors.Is(err, win.ErrorNotConnected): // democratic-csi looks for the text of PowerShell
		return &csiproxy.Error{Detail: "the share isn't mapped: No MSFT_SmbGlobalMapping objects found", Err: err}
	}
	return err
}

// createInstead makes a mapping where others of the same server have other
// credentials, which Windows doesn't allow. If all of these are broken, such as after a
// change of the password, they are removed, and those of the same user made again with
// the new credentials. To another user's, or one of an earlier process, these may open
// what isn't theirs: it is made again by whoever asks for it next.
func (m *Mappings) createInstead(ctx context.Context, w wanted) error {
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
		m.options.Logger.Warn("a mapping doesn't work and makes way for another one", "remotePath", other.Root(), "other", w.remote.Root())
		if err := m.remove(ctx, other); err != nil && !errors.Is(err, win.ErrorNotConnected) {
			return err
		}
		if sameUser {
			again = append(again, other)
		}
	}
	if err := m.create(ctx, w); err != nil {
		if errors.Is(err, win.ErrorSessionCredentialConflict) {
			return &csiproxy.Error{Detail: "the server is in use with other credentials, and Windows allows one user for each server", Err: err}
		}
		return err
	}
	for _, other := range again {
		if err := m.create(ctx, w.of(other)); err != nil {
			m.options.Logger.Warn("a mapping that didn't work can't be made again", "remotePath", other.Root(), "err", err)
		}
	}
	return nil
}

// conflict is the error of a mapping that can't be made beside other.
func conflict(other unc.Path, err error) error {
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition,
		Detail: "another mapping of the server, " + quote.Text(other.Root()) + ", uses other credentials, and Windows allows one user for each server: " +
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
