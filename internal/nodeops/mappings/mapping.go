// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"errors"

	"github.com/csi-proxy/csi-proxy/smb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// state is what became of the mapping of a share.
type state int

const (
	missing state = iota
	broken        // and must be made again
	working
)

// maxAttempts bounds how often a mapping is looked at anew because others make and
// remove it at the same time.
const maxAttempts = 4

// ensure has the share of remote mapped.
func (m *Mappings) ensure(ctx context.Context, remote unc.Path, c smb.Credentials) error {
	for range maxAttempts {
		seen, err := m.look(ctx, remote)
		if err != nil || seen == working {
			return err
		}
		again, err := m.renew(ctx, remote, seen, c)
		if !again {
			return err
		}
	}
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "others make and remove the mapping all the time")
}

// look sees whether the share of remote is mapped, and whether remote can be used. A
// mapping that can't but is to be kept is an error.
func (m *Mappings) look(ctx context.Context, remote unc.Path) (state, error) {
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil {
		return missing, err
	}
	if !remote.MappedBy(mappings) {
		return missing, nil
	}
	// The status in the list tells how things were when the mapping was used last.
	err = m.options.Shares.Probe(ctx, remote)
	var errno win.Errno
	switch {
	case err == nil:
		return working, nil
	case !errors.As(err, &errno):
		return missing, err
	case errno == win.ErrorFileNotFound, errno == win.ErrorPathNotFound: // on the share
		return working, nil
	case unreachable(errno):
		return missing, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the share is mapped, but its server can't be reached now", Err: err}
	case errno == win.ErrorAccessDenied:
		return missing, &csiproxy.Error{Detail: "the share is mapped, but its server denies the access", Err: err}
	}
	m.options.Logger.Info("a mapping doesn't work and is made again", "remotePath", remote.Root(), "err", err)
	return broken, nil
}

// renew makes the mapping that was seen to be missing or broken. If it turns out to
// be otherwise now, again is true.
func (m *Mappings) renew(ctx context.Context, remote unc.Path, seen state, c smb.Credentials) (again bool, err error) {
	unlock, err := m.locks.Lock(ctx, remote.Server())
	if err != nil {
		return false, err
	}
	defer unlock()
	if seen == broken {
		if seen, err = m.look(ctx, remote); err != nil || seen != broken {
			return seen != working, err
		}
		if err := m.sys.RemoveSMBGlobalMapping(ctx, remote.Root()); err != nil && !errors.Is(err, win.ErrorNotConnected) {
			return false, err
		}
	}
	err = m.create(ctx, remote, c)
	if errors.Is(err, win.ErrorSessionCredentialConflict) {
		err = m.createInstead(ctx, remote, c)
	}
	if errors.Is(err, win.ErrorAlreadyAssigned) || errors.Is(err, win.ErrorDeviceAlreadyRemembered) {
		return true, nil // by somebody else
	}
	return false, err
}

func (m *Mappings) create(ctx context.Context, remote unc.Path, c smb.Credentials) error {
	// A probe under way may have seen the mapping that was.
	defer m.options.Shares.Forget(remote)
	err := m.sys.CreateSMBGlobalMapping(ctx, remote.Root(), win.SMBMappingOptions{
		Username:       c.Username,
		Password:       c.Password,
		RequirePrivacy: !m.options.WithoutPrivacy,
	})
	if err == nil {
		m.users.made(remote, c)
	}
	if errors.Is(err, win.ErrorAccessDenied) && !m.options.WithoutPrivacy {
		return &csiproxy.Error{Detail: "the user may not use the share, or its server can't encrypt, which is required", Err: err}
	}
	return err
}

// createInstead makes a mapping where others of the same server have other
// credentials, which Windows doesn't allow. Those that the server refuses now, since
// the password was changed, are replaced: the broken mappings are removed, and those of
// the same user made again with the new credentials. To another user's, or one of an
// earlier process, these may open what isn't theirs: it is made again by whoever asks
// for it next.
func (m *Mappings) createInstead(ctx context.Context, remote unc.Path, c smb.Credentials) error {
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil {
		return err
	}
	var again []unc.Path
	for _, mapping := range mappings {
		other, err := unc.Parse(mapping.RemotePath)
		if err != nil || other.Server() != remote.Server() || other.Root() == remote.Root() {
			continue
		}
		if err := m.options.Shares.Probe(ctx, other); !refused(err) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		if err := m.sys.RemoveSMBGlobalMapping(ctx, other.Root()); err != nil && !errors.Is(err, win.ErrorNotConnected) {
			return err
		}
		if m.users.same(other, c) {
			again = append(again, other)
		}
		m.users.removed(other)
	}
	err = m.create(ctx, remote, c)
	if errors.Is(err, win.ErrorSessionCredentialConflict) {
		return &csiproxy.Error{
			Kind:   csiproxy.ErrFailedPrecondition,
			Detail: "other mappings of the server use other credentials, and Windows allows one user for each server: use the same user, remove those mappings, or name the server differently",
			Err:    err,
		}
	}
	if err != nil {
		return err
	}
	for _, other := range again {
		if err := m.create(ctx, other, c); err != nil {
			m.options.Logger.Warn("a mapping whose credentials its server refuses isn't made again", "remotePath", other.Root(), "err", err)
		}
	}
	return nil
}

// unreachable reports whether Windows didn't get as far as a verdict on the share or
// the credentials, for want of a network, a domain controller or resources here or
// there. Windows connects a mapping again by itself; one removed for that couldn't be
// made again, and all who use it would lose it.
func unreachable(errno win.Errno) bool {
	switch errno {
	case win.ErrorBadNetPath, win.ErrorUnexpNetErr, win.ErrorNetNameDeleted, win.ErrorSemTimeout, win.ErrorRetry, win.ErrorBusy,
		win.ErrorNoNetOrBadPath, win.ErrorNoNetwork, win.ErrorNetworkUnreachable, win.ErrorHostUnreachable, win.ErrorPortUnreachable,
		win.ErrorConnectionRefused, win.ErrorConnectionAborted, win.ErrorTimeout, win.ErrorRemNotList, win.ErrorNetworkBusy,
		win.ErrorSharingPaused, win.ErrorReqNotAccep, win.ErrorTooManyCmds, win.ErrorNoLogonServers,
		win.ErrorNotEnoughMemory, win.ErrorNoSystemResources:
		return true
	}
	return false
}

// refused reports whether a server doesn't accept a mapping's credentials (any more).
func refused(err error) bool {
	return err != nil && csiproxy.KindOf(err) == csiproxy.ErrUnauthenticated
}
