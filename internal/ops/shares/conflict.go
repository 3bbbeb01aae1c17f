// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// holder is another mapping on the server of a wanted share.
type holder struct {
	win.SMBMapping
	remote win.UNCPath
	// isOurs is set if CSI Proxy is known to be the maker.
	isOurs bool
	// isOnShare is set for mappings of the wanted share: of a directory, or with a drive letter.
	isOnShare bool
}

// fate is what happens to a holder after a conflict.
type fate string

const (
	serves fate = "serves" // the caller uses the holder
	holds  fate = "holds"  // the caller is refused
	goes   fate = "goes"   // the holder is removed
)

// decideConflict implements the second table of the package comment.
func decideConflict(f facts, isOurs, isOnShare bool) fate {
	choice, err := decide(f)
	isUsable := choice == useIt || choice == replaceIdle && err == nil
	if isOnShare && isUsable {
		return serves
	}
	if isOurs && choice == replaceIt {
		return goes
	}
	return holds
}

// resolveConflict handles error 1219: mappings on the same server have other credentials. If all of
// them may go, the wanted mapping takes their place.
func (m *Mappings) resolveConflict(ctx context.Context, server *usage.LockedServer, wanted Wanted) (made bool, _ error) {
	holders, err := m.holders(ctx, wanted.remote)
	if err != nil {
		return false, err
	}
	for _, h := range holders {
		as := wanted
		if !h.isOnShare {
			as = wanted.of(h.remote.Share())
		}
		f, err := m.gatherOf(ctx, as, h.SMBMapping)
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return false, err
		}
		switch decideConflict(f, h.isOurs, h.isOnShare) {
		case serves:
			m.logOns.unmapped(wanted.remote) // a mapping of before has gone
			return false, nil
		case holds:
			return false, h.conflict()
		}
	}
	return m.createInstead(ctx, server, wanted, holders)
}

// createInstead removes broken mappings, makes the wanted mapping, and restores the removed
// mappings of the same user with the new credentials. Mappings of other users wait for the next
// request: the new credentials may open more to their pods.
func (m *Mappings) createInstead(ctx context.Context, server *usage.LockedServer, wanted Wanted,
	others []holder) (made bool, _ error) {
	var again []Wanted
	for _, other := range others {
		credentials := m.logOns.compare(other.remote, wanted.credentials)
		m.options.Logger.Warn("removing a broken mapping, so that the server accepts other credentials", "remotePath", other.RemotePath, "other",
			wanted.remote.Root())
		if err := m.removeOther(ctx, server, other); err != nil {
			return false, err
		}
		if credentials == sameCredentials || credentials == otherPassword {
			again = append(again, wanted.of(other.remote).asPrivateAs(other.RequirePrivacy))
		}
	}
	made, err := m.act(ctx, server, wanted, facts{})
	if errors.Is(err, winerr.ErrorSessionCredentialConflict) {
		return false, &csiproxy.Error{Detail: "the server is in use with other credentials, though none of the node's mappings " +
			"holds it: Get-SmbConnection and net use in the session of LocalSystem may show who does", Err: err}
	}
	if err != nil {
		return false, err
	}
	for _, other := range again {
		if _, err := m.act(ctx, server, other, facts{}); err != nil {
			m.options.Logger.Warn("can't make a broken mapping again", "remotePath", other.remote.Root(), "err", err)
		}
	}
	return made, nil
}

// removeOther removes the mapping of another share of a server.
func (m *Mappings) removeOther(ctx context.Context, server *usage.LockedServer, other holder) error {
	r, err := lockMapping(ctx, server, other.remote)
	if err != nil {
		return err
	}
	defer r.Share.Release()
	_, err = m.remove(ctx, r, other.Name())
	return err
}

// of returns the mapping of another share with the same credentials, and without a local path.
func (w Wanted) of(other win.UNCPath) Wanted {
	return Wanted{remote: other, credentials: w.credentials}
}

// holders returns the other mappings on remote's server, beginning with mappings on remote's share.
func (m *Mappings) holders(ctx context.Context, remote win.UNCPath) ([]holder, error) {
	mappings, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	var onShare, elsewhere []holder
	for _, mapping := range mappings {
		other, err := win.ParseUNC(mapping.RemotePath)
		if err != nil || other.Server() != remote.Server() {
			continue
		}
		if isPlain(mapping, remote.Share()) {
			continue
		}
		isOurs, err := m.isOurs(ctx, mapping)
		if err != nil {
			return nil, err
		}
		if h := (holder{mapping, other, isOurs, other.Root() == remote.Root()}); h.isOnShare {
			onShare = append(onShare, h)
		} else {
			elsewhere = append(elsewhere, h)
		}
	}
	return append(onShare, elsewhere...), nil
}

// isOurs reports whether CSI Proxy has made a mapping, according to this process or a record.
func (m *Mappings) isOurs(ctx context.Context, mapping win.SMBMapping) (bool, error) {
	remote, err := win.ParseUNC(mapping.RemotePath)
	if err != nil || !isPlain(mapping, remote.Share()) {
		return false, nil
	}
	if m.logOns.knows(remote) {
		return true, nil
	}
	isStaged, err := m.recorded(ctx, remote, stagedRecord)
	if err != nil || isStaged {
		return isStaged, err
	}
	return m.recorded(ctx, remote, madeRecord)
}

// conflict returns the error for a wanted mapping blocked by the holder.
func (h holder) conflict() error {
	maker := "another program or an administrator has made"
	if h.isOurs {
		maker = "CSI Proxy has made"
	}
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition,
		Detail: "another mapping of the server, " + h.describe() + ", which " + maker +
			", uses other credentials, and Windows allows one user for each server: " +
			"use the same user, remove that mapping with csi-proxyctl smb unmap " + quote.Text(h.Name()) +
			", or name the server differently",
		Err: winerr.ErrorSessionCredentialConflict,
	}
}

// describe names a mapping in an error.
func (h holder) describe() string {
	if h.LocalPath == "" {
		return quote.Text(h.RemotePath)
	}
	return h.LocalPath + " to " + quote.Text(h.RemotePath)
}
