// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// maxAttempts limits the checks of a mapping while another process makes and removes it.
const maxAttempts = 4

// Wanted is a mapping requested by a call.
type Wanted struct {
	remote      win.UNCPath
	credentials csiproxy.SMBCredentials
	local       pathpolicy.Path
	localText   string // "" for a mapping without a link
	// Staging applies the rules of StageShare. The directory on the share must exist. The
	// credentials must match the mapping's. A failed staging removes its new mapping. An empty
	// directory left by a call at the local path is replaced.
	Staging bool
	// Privacy and ReadOnly have the meaning of csiproxy.StageShareRequest.
	Privacy  csiproxy.SharePrivacy
	ReadOnly bool
}

// Parse checks a request for a mapping. localPath may be empty.
func (m *Mappings) Parse(remotePath, localPath string, c csiproxy.SMBCredentials) (wanted Wanted, err error) {
	wanted.credentials, wanted.localText = c, localPath
	if wanted.remote, err = win.ParseUNC(remotePath); err != nil {
		return wanted, err
	}
	if err := c.Validate(); err != nil {
		return wanted, err
	}
	if err := m.checkNodeAccount(wanted); err != nil {
		return wanted, err
	}
	if localPath != "" {
		wanted.local, err = m.paths.Parse(localPath, pathpolicy.MaxPath)
	}
	return wanted, wanted.at(err)
}

// checkNodeAccount refuses the node's own account for administrative shares, and everywhere if an
// option forbids the account: a mapping of an administrative share under one of the node's own
// names would give pods the node as SYSTEM.
func (m *Mappings) checkNodeAccount(wanted Wanted) error {
	if !wanted.credentials.AsNode() {
		return nil
	}
	if m.options.RefuseNodeAccount {
		return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "the user name is empty, which stands for the node's own account, and "+
			"the flag -refuse-node-account forbids that: give a user name and a password")
	}
	if wanted.remote.IsAdministrative() {
		return csiproxy.Errorf(csiproxy.ErrPermissionDenied, "the user name is empty, which stands for the node's own account, and "+
			"the share is for administrators: give a user name and a password")
	}
	return nil
}

// Remote returns the wanted share or directory.
func (w Wanted) Remote() win.UNCPath { return w.remote }

// at adds the local path to err.
func (w Wanted) at(err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "local path " + quote.Text(w.localText), Err: err}
}

// Map maps a share, unless the share is mapped, and makes the local path a link to the share. If
// another call removes the mapping before the link is made, Map begins again. If a staging fails,
// Map removes its new, unused mapping: kubelet never unstages a volume whose staging has failed for
// good. If the removal fails, or the process dies before, CleanUp finds the mapping.
func (m *Mappings) Map(ctx context.Context, wanted Wanted) (err error) {
	made := false
	defer func() {
		if err != nil && made && wanted.Staging {
			m.undo(ctx, wanted.remote)
		}
	}()
	for range maxAttempts {
		if made, err = m.ensure(ctx, wanted); err != nil {
			return err
		}
		if err := m.reach(ctx, wanted, made); err != nil {
			if m.isUnmapped(ctx, wanted.remote) {
				continue // another call has removed the mapping, hence the error
			}
			return err
		}
		if err := m.checkReadOnly(ctx, wanted); err != nil {
			return err
		}
		mapped, err := m.linkToMapped(ctx, wanted)
		if err != nil || mapped {
			return wanted.at(err)
		}
	}
	return csiproxy.Errorf(csiproxy.ErrUnavailable,
		"the mapping was removed by others on every attempt; try again later")
}

// undoTimeout bounds the removal of a failed call's mapping. The call's own context may have ended.
const undoTimeout = 30 * time.Second

// undo removes the unused mapping of a failed staging. Concurrent calls for the share make a new
// mapping.
func (m *Mappings) undo(ctx context.Context, remote win.UNCPath) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, err := m.RemoveIfUnused(ctx, remote); err != nil {
		m.options.Logger.Warn("can't remove the mapping of a StageShare that has failed",
			"remotePath", remote.Root(), "err", err)
	}
}

// ensure maps a share, unless the share is mapped, and reports whether ensure has made the mapping.
func (m *Mappings) ensure(ctx context.Context, wanted Wanted) (made bool, _ error) {
	f, err := m.gather(ctx, wanted)
	if err != nil {
		return false, err
	}
	switch choice, err := decide(f); choice {
	case useIt:
		return false, err
	case refuseCaller:
		if !m.isUnmapped(ctx, wanted.remote) { // otherwise another call has removed the mapping meanwhile
			return false, err
		}
	}
	server, err := m.options.Locks.LockServer(ctx, wanted.remote)
	if err != nil {
		return false, err
	}
	defer server.Release()
	m.making.Add(1)
	defer m.making.Add(-1)
	for range maxAttempts {
		// The previous holder of the lock may have made the mapping.
		f, err := m.gather(ctx, wanted)
		if err != nil {
			return false, err
		}
		made, err := m.act(ctx, server, wanted, f)
		if errors.Is(err, winerr.ErrorSessionCredentialConflict) {
			made, err = m.resolveConflict(ctx, server, wanted)
		}
		if !winerr.IsAny(err, winerr.ErrorAlreadyAssigned, winerr.ErrorDeviceAlreadyRemembered) {
			return made, err
		}
	}
	return false, csiproxy.Errorf(csiproxy.ErrUnavailable,
		"the mapping was changed by others on every attempt; try again later")
}

// isUnmapped reports whether a share is certainly unmapped now.
func (m *Mappings) isUnmapped(ctx context.Context, remote win.UNCPath) bool {
	mappings, err := m.List(ctx)
	return err == nil && !remote.MappedBy(mappings)
}

// act carries out the decision about a share, and reports whether it has made the mapping. The
// record comes first. The replacement of a broken mapping goes with the last link only if the
// broken mapping did.
func (m *Mappings) act(ctx context.Context, server *usage.LockedServer, wanted Wanted, f facts) (made bool, _ error) {
	choice, reason := decide(f)
	if choice == useIt || choice == refuseCaller {
		return false, reason
	}
	r, err := lockMapping(ctx, server, wanted.remote)
	if err != nil {
		return false, err
	}
	defer r.Share.Release()
	isReplaced := false
	switch choice {
	case replaceIdle:
		links, err := m.LinksToShare(ctx, r.Share)
		isRemoved := false
		if err == nil && links.Incomplete == nil {
			isRemoved, err = m.RemoveUnused(ctx, r, links)
		}
		if !isRemoved {
			return false, cmp.Or(ctx.Err(), reason, err)
		}
	case replaceIt:
		m.options.Logger.Warn("making a broken mapping again", "remotePath", wanted.remote.Root(), "err", reason)
		wanted = wanted.asPrivateAs(f.isPrivate)
		if isReplaced, err = m.remove(ctx, r, f.name); err != nil {
			return false, err
		}
	}
	kind := madeRecord
	if wanted.localText != "" && !isReplaced {
		kind = stagedRecord
	}
	isNew, err := m.record(ctx, r.Share, kind)
	if err != nil {
		return false, err
	}
	err = m.logOns.logOn(wanted.remote, wanted.credentials, wanted.localText, func() error { return m.createNow(ctx, wanted) })
	if err == nil {
		m.options.Logger.Info("mapping made", "remotePath", wanted.remote.Root(), "requirePrivacy", m.requiresPrivacy(wanted))
		return true, nil
	}
	if isNew && ctx.Err() == nil {
		if dropErr := m.dropRecord(ctx, r.Share, kind); dropErr != nil {
			m.options.Logger.Info("can't read records of SMB mappings", "err", dropErr)
		}
	}
	if wanted.credentials.AsNode() && csiproxy.KindOf(err) == csiproxy.ErrUnauthenticated {
		return false, &csiproxy.Error{Detail: "the server doesn't let the node's own account in, which an empty user name stands for: the " +
			"node must be in the server's domain, or in one that this trusts", Err: err}
	}
	return false, explain(err, m.requiresPrivacy(wanted))
}

// reach checks access to the wanted directory on the share. A directory may be missing, since
// somebody may make it later, but not for a staging. The root of a share with an earlier mapping is
// already checked.
func (m *Mappings) reach(ctx context.Context, wanted Wanted, made bool) error {
	if wanted.remote.IsShare() && !made {
		return nil
	}
	err := m.Probe(ctx, wanted.remote)
	isMissing := errors.Is(err, winerr.ErrorFileNotFound) || errors.Is(err, winerr.ErrorPathNotFound)
	if !errors.As(err, new(winerr.Errno)) {
		return err
	}
	if wanted.remote.IsShare() {
		return unusable(err)
	}
	if isMissing && !wanted.Staging {
		return nil
	}
	if isMissing {
		return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "the share has no such directory", Err: err}
	}
	if errors.Is(err, winerr.ErrorAccessDenied) {
		return unusableFor(err, denied)
	}
	return unusableFor(err, "the path on it can't be used")
}

// checkReadOnly refuses a directory for read-only use if the server lets the user make files or
// directories there.
func (m *Mappings) checkReadOnly(ctx context.Context, wanted Wanted) error {
	if !wanted.ReadOnly {
		return nil
	}
	for _, access := range []win.Access{win.FileAddFile, win.FileAddSubdirectory} {
		dir, err := m.sys.OpenFile(ctx, wanted.remote.String()+`\`, win.OpenOptions{Access: access, Disposition: win.FileOpen,
			Share: win.ShareRead | win.ShareWrite | win.ShareDelete, Options: win.FileDirectoryFile})
		if errors.Is(err, winerr.ErrorAccessDenied) || errors.Is(err, winerr.ErrorWriteProtect) {
			continue
		}
		if err != nil {
			return &csiproxy.Error{Detail: "can't find out whether the user may write to the share", Err: err}
		}
		return errors.Join(csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "the share must be read-only, and its server lets the user "+
			"write: give the user read access only, since Windows maps no share read-only"), dir.Close())
	}
	return nil
}

// asPrivateAs keeps the encryption of a restored mapping: a user of the mapping may require
// encryption.
func (w Wanted) asPrivateAs(isPrivate bool) Wanted {
	if isPrivate {
		w.Privacy = csiproxy.PrivacyRequired
	}
	return w
}

// requiresPrivacy reports whether a mapping is made with encryption.
func (m *Mappings) requiresPrivacy(wanted Wanted) bool {
	if wanted.Privacy == csiproxy.PrivacyOfNode {
		return !m.options.WithoutPrivacy
	}
	return wanted.Privacy == csiproxy.PrivacyRequired
}

// createNow calls Windows. After an unknown error, it looks for the mapping, and succeeds if the
// mapping exists.
func (m *Mappings) createNow(ctx context.Context, wanted Wanted) error {
	err := m.sys.CreateSMBGlobalMapping(ctx, wanted.remote.Root(), win.SMBMappingOptions{
		Username:       wanted.credentials.Username,
		Password:       wanted.credentials.Password,
		RequirePrivacy: m.requiresPrivacy(wanted),
	})
	if !tellsNothing(err) {
		return err
	}
	if mappings, listErr := m.sys.SMBGlobalMappings(ctx); listErr != nil || !hasPlain(mappings, wanted.remote.Share()) {
		return err
	}
	m.options.Logger.Warn("Windows made a mapping, but returned an error", "remotePath", wanted.remote.Root(), "err", err)
	return nil
}
