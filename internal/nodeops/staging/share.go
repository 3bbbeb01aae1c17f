// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"errors"
	"io/fs"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/mappings"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// StageShare implements [storage.Operations].
//
// A mapping is removed with the last link that leads to its share. Links in the allowed
// directories are counted, so the count is right after a crash, too. Who makes such a link, and
// who counts them, has the right to the share meanwhile.
func (s *Staging) StageShare(ctx context.Context, r storage.StageShareRequest) error {
	return operation.Do(ctx, s.options.Runner, "StageShare", quote.Text(r.RemotePath), func(ctx context.Context) error {
		w, err := s.Mappings.Parse(r.RemotePath, r.StagingPath, r.Credentials)
		if err != nil {
			return err
		}
		w.Staging = true
		if _, err := s.Paths.Parse(r.StagingPath, pathpolicy.MaxPath); err != nil {
			return &csiproxy.Error{Object: "staging path " + quote.Text(r.StagingPath), Err: err}
		}
		return s.Mappings.Map(ctx, w)
	})
}

// UnstageShare implements [storage.Operations].
func (s *Staging) UnstageShare(ctx context.Context, r storage.UnstageShareRequest) (storage.UnstagedShare, error) {
	return operation.Get(ctx, s.options.Runner, "UnstageShare", "at "+quote.Text(r.StagingPath),
		func(ctx context.Context) (done storage.UnstagedShare, _ error) {
			local, err := s.Paths.Parse(r.StagingPath, pathpolicy.MaxPath)
			if err != nil {
				return done, err
			}
			if r.RemotePath != "" {
				remote, err := unc.Parse(r.RemotePath)
				if err != nil {
					return done, err
				}
				return s.unstageShare(ctx, unstaging{local: local, remote: remote, named: true})
			}
			remote, staged, err := s.stagedAt(ctx, local, refuseOther)
			if err != nil || !staged {
				return done, err
			}
			return s.unstageShare(ctx, unstaging{local: local, remote: remote})
		})
}

// unstaging is a share that is to be unstaged.
type unstaging struct {
	local  pathpolicy.Path // the staging path
	remote unc.Path        // where the link there leads to
	named  bool            // the caller has named remote: the mapping goes also if there is no link
	force  bool            // also if the share is published
}

// unstageShare removes the link at a staging path if it leads to the share, and the mapping of
// that unless something else uses it.
func (s *Staging) unstageShare(ctx context.Context, u unstaging) (done storage.UnstagedShare, _ error) {
	ctx, rights, err := s.Mappings.Rights(ctx, u.remote)
	if err != nil {
		return done, err
	}
	defer rights.Release()
	links, err := s.Mappings.LinksTo(ctx, rights.Share)
	if err != nil {
		return done, err
	}
	is, linked, err := s.stagedAt(ctx, u.local, acceptOther)
	staged := linked && is.Equal(u.remote)
	switch {
	case err != nil:
		return done, err
	case !linked && !u.named: // somebody else has removed the link
		return done, nil
	case !linked && links.At(u.local), !staged && !u.named:
		return done, changedMeanwhile()
	}
	if staged {
		if published := links.By(u.local); len(published) > 0 && !u.force {
			return done, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "the share is published at %s; "+unpublishFirst,
				use.Listed(published))
		}
		links = links.Except(u.local)
	}
	// First the mapping: if the link went first, nobody would know later that the mapping was
	// to go.
	if done.Unmapped, err = s.Mappings.RemoveUnused(ctx, rights, links); err != nil {
		return done, err
	}
	if staged {
		done.Unlinked, err = s.unlink(ctx, rights.Share, u.local, u.remote)
	}
	return done, err
}

// stagedAt returns the directory of a share that a path is a link to, and whether it is one.
// If something else is there, the error is that of other.
func (s *Staging) stagedAt(ctx context.Context, local pathpolicy.Path,
	other somethingElse) (remote unc.Path, staged bool, _ error) {
	err := s.Paths.Reach(ctx, s.Sys, local, func(e pathpolicy.Entry) error {
		link, err := e.Link(ctx)
		if errors.Is(err, win.ErrorNotAReparsePoint) {
			return other(ctx, e, nil)
		}
		if err != nil {
			return err
		}
		if remote, staged = mappings.ShareOf(link); !staged {
			return other(ctx, e, &link)
		}
		return nil
	})
	if pathpolicy.Missing(err) {
		return unc.Path{}, false, nil
	}
	return remote, staged, err
}

// somethingElse says whether it is an error that a staging path is no link to a share, but
// another link or, if link is nil, a file or directory.
type somethingElse func(ctx context.Context, e pathpolicy.Entry, link *pathpolicy.Link) error

// acceptOther takes it for no error.
func acceptOther(context.Context, pathpolicy.Entry, *pathpolicy.Link) error { return nil }

// refuseOther refuses it with csiproxy.ErrFailedPrecondition, unless it is an empty directory.
func refuseOther(ctx context.Context, e pathpolicy.Entry, link *pathpolicy.Link) error {
	refuse := func(format string, args ...any) error {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "no share is staged there: "+format, args...)
	}
	switch {
	case link == nil:
	case link.IsMountPoint():
		return refuse("volume %s is mounted there, and UnstageVolume unmounts it", link.Volume)
	default:
		return refuse("it leads to %s, and is no symbolic link to a share", quote.Text(link.Target()))
	}
	dir, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, win.ErrorDirectory) {
		return refuse("it is a file")
	}
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(ctx, true)
	if errors.Is(err, win.ErrorNoMoreFiles) {
		err = nil
	}
	if err == nil && len(entries) > 0 {
		err = refuse("it is a directory with entries")
	}
	return err
}

// unlink removes the link to remote at a staging path, and reports whether there was one.
func (s *Staging) unlink(ctx context.Context, _ *use.Share, local pathpolicy.Path,
	remote unc.Path) (removed bool, _ error) {
	err := s.Paths.Reach(ctx, s.Sys, local, func(e pathpolicy.Entry) error {
		o := win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen}
		var link pathpolicy.Link
		err := e.With(ctx, o, func(file *pathpolicy.File) (err error) {
			link, err = file.Link(ctx)
			if to, ok := mappings.ShareOf(link); err == nil && (!ok || !to.Equal(remote)) {
				err = changedMeanwhile()
			}
			if err == nil {
				err = file.Delete(ctx)
			}
			return err
		})
		if err == nil {
			removed = true
			s.options.Logger.Info("link removed", "path", e.Path(), "to", link.Target())
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) && pathpolicy.Missing(err) {
		err = nil
	}
	return removed, err
}

func changedMeanwhile() error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the staging path was changed by somebody else meanwhile; try again")
}

// ListRefusedLogOns implements [storage.Operations].
func (s *Staging) ListRefusedLogOns(ctx context.Context, forget bool) ([]storage.RefusedLogOn, error) {
	return operation.Get(ctx, s.options.Runner, "ListRefusedLogOns", "",
		func(context.Context) (all []storage.RefusedLogOn, _ error) {
			refused := s.LogOns.Refused()
			if forget {
				refused = s.LogOns.Forget()
			}
			for _, r := range refused {
				number, _ := csiproxy.WindowsErrorOf(r.Err)
				all = append(all, storage.RefusedLogOn{
					RemotePath: r.RemotePath, WindowsError: number,
					RefusedFor: time.Since(r.Since), HeldBackFor: max(0, time.Until(r.NextAttempt)),
				})
			}
			return all, nil
		})
}
