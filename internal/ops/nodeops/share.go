// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// StageShare implements [csiproxy.StorageOperations].
//
// A mapping is removed with the last link to its share. CSI Proxy counts the links that exist in the
// allowed directories. The count is therefore correct after a crash, too. Every call that makes or
// counts such links locks the share meanwhile.
func (s *Staging) StageShare(ctx context.Context, r csiproxy.StageShareRequest) (err error) {
	defer s.options.Observer.End("StageShare", quote.Text(r.RemotePath), time.Now(), &err)
	wanted, err := s.Mappings.Parse(r.RemotePath, r.StagingPath, r.Credentials)
	if err != nil {
		return err
	}
	if err := r.Privacy.Validate(); err != nil {
		return err
	}
	wanted.Staging, wanted.Privacy, wanted.ReadOnly = true, r.Privacy, r.ReadOnly
	if _, err := s.Paths.Parse(r.StagingPath, pathpolicy.MaxPath); err != nil {
		return atStaging(r.StagingPath, err)
	}
	return s.Mappings.Map(ctx, wanted)
}

// UnstageShare implements [csiproxy.StorageOperations].
func (s *Staging) UnstageShare(ctx context.Context, r csiproxy.UnstageShareRequest) (
	unstaged csiproxy.UnstagedShare, err error) {
	defer s.options.Observer.End("UnstageShare", "at "+pathText("staging_path", r.StagingPath), time.Now(), &err)
	local, err := s.Paths.Parse(r.StagingPath, pathpolicy.MaxPath)
	if err != nil {
		return unstaged, err
	}
	if r.RemotePath != "" {
		remote, err := win.ParseUNC(r.RemotePath)
		if err != nil {
			return unstaged, err
		}
		return s.unstageShare(ctx, unstaging{local: local, remote: remote, named: true})
	}
	remote, staged, err := s.shareStagedAt(ctx, local, refuseUnlessEmpty)
	if err != nil || !staged {
		return unstaged, err
	}
	return s.unstageShare(ctx, unstaging{local: local, remote: remote})
}

// unstaging is a request to unstage a share.
type unstaging struct {
	local  pathpolicy.Path // the staging path
	remote win.UNCPath     // the share: named by the caller, or the target of the link at local
	named  bool            // by the caller: the mapping is removed even without a link
	force  bool            // unstage the share even if published
}

// unstageShare removes the link at a staging path if the link leads to the share. It also removes
// the mapping of the share, if unused otherwise.
func (s *Staging) unstageShare(ctx context.Context, u unstaging) (unstaged csiproxy.UnstagedShare, _ error) {
	lockedShare, err := s.Mappings.LockForRemoval(ctx, u.remote)
	if err != nil {
		return unstaged, err
	}
	defer lockedShare.Release()
	links, err := s.Mappings.LinksToShare(ctx, lockedShare.Share)
	if err != nil {
		return unstaged, err
	}
	linkTarget, linked, err := s.shareStagedAt(ctx, u.local, acceptAny)
	if err != nil {
		return unstaged, err
	}
	staged := linked && linkTarget.Equal(u.remote)
	if !linked && !u.named { // another process has removed the link
		return unstaged, nil
	}
	wasRemoved := !linked && links.At(u.local) // after the search for links
	wasReplaced := !staged && !u.named         // before the lock, by a link to another share
	if wasRemoved || wasReplaced {
		return unstaged, changedMeanwhile()
	}
	if staged {
		if published := links.By(u.local); len(published) > 0 && !u.force {
			return unstaged, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
				"the share is published at %s; "+unpublishFirst, quote.List(published))
		}
		links = links.Except(u.local)
	}
	// The mapping is removed first. If the process removed only the link and died, no later call
	// would know about the request to remove the mapping.
	if unstaged.Unmapped, err = s.Mappings.RemoveUnused(ctx, lockedShare, links); err != nil {
		return unstaged, err
	}
	if staged {
		unstaged.Unlinked, err = s.unlink(ctx, lockedShare.Share, u.local, u.remote)
	}
	return unstaged, err
}

// shareStagedAt returns the directory of a share to which a path links, and whether the path is a
// link to a share. For an object of another kind, shareStagedAt returns the error of check.
func (s *Staging) shareStagedAt(ctx context.Context, local pathpolicy.Path,
	check checkOther) (remote win.UNCPath, staged bool, err error) {
	walk := s.Paths.Walk(s.Sys)
	defer walk.CloseInto(&err)
	e, err := walk.Reach(ctx, local)
	var link pathpolicy.Link
	if err == nil {
		link, err = e.Link(ctx)
	}
	if pathpolicy.Missing(err) {
		return remote, false, nil
	}
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return remote, false, check(ctx, e, nil)
	}
	if err != nil {
		return remote, false, err
	}
	if remote, staged = shares.ShareOf(link); !staged {
		err = check(ctx, e, &link)
	}
	return remote, staged, err
}

// checkOther is called for a staging path with an object other than a link to a share: another link
// or, if link is nil, a file or directory. It returns an error if the caller must stop.
type checkOther func(ctx context.Context, e pathpolicy.Entry, link *pathpolicy.Link) error

// acceptAny accepts any object.
func acceptAny(context.Context, pathpolicy.Entry, *pathpolicy.Link) error { return nil }

// refuseUnlessEmpty returns csiproxy.ErrFailedPrecondition for any object but an empty directory.
func refuseUnlessEmpty(ctx context.Context, e pathpolicy.Entry, link *pathpolicy.Link) error {
	refuse := func(format string, args ...any) error {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "no share is staged there: "+format, args...)
	}
	if link != nil && link.IsMountPoint() {
		return refuse("volume %s is mounted there, and UnstageVolume unmounts it", link.Volume)
	}
	if link != nil {
		return refuse("it leads to %s, and is no symbolic link to a share", quote.Text(link.Target()))
	}
	dir, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, winerr.ErrorDirectory) {
		return refuse("it is a file")
	}
	if pathpolicy.Missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(ctx, true)
	if errors.Is(err, winerr.ErrorNoMoreFiles) {
		err = nil
	}
	if err == nil && len(entries) > 0 {
		err = refuse("it is a directory with entries")
	}
	return err
}

// unlink removes the link to remote at a staging path, and reports whether it did.
func (s *Staging) unlink(ctx context.Context, _ *usage.LockedShare, local pathpolicy.Path,
	remote win.UNCPath) (removed bool, _ error) {
	return s.Files.UnlinkIf(ctx, local, func(_ context.Context, link pathpolicy.Link) (bool, error) {
		if to, ok := shares.ShareOf(link); !ok || !to.Equal(remote) {
			return false, changedMeanwhile()
		}
		return true, nil
	})
}

func changedMeanwhile() error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "another process changed the staging path during the call; try again")
}
