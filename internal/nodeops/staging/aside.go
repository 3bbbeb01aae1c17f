// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"context"
	"errors"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// MoveAside implements [storage.Operations].
func (s *Staging) MoveAside(ctx context.Context, path string) (storage.MovedAside, error) {
	return operation.Get(ctx, s.options.Runner, "MoveAside", quote.Text(path),
		func(ctx context.Context) (moved storage.MovedAside, _ error) {
			p, err := s.Volumes.Parse(path)
			if err != nil {
				return moved, err
			}
			err = s.Paths.Reach(ctx, s.Sys, p, func(e pathpolicy.Entry) (err error) {
				moved, err = s.moveAside(ctx, e)
				return err
			})
			if pathpolicy.Missing(err) {
				return moved, nil
			}
			return moved, err
		})
}

// moveAside moves the directory e, with all that is in it, in one step. It opens the directory
// for deletion, which succeeds while nobody else has it open as a way to what is below, and keeps
// others from that. So nobody can stage, publish or mount anything there after the look at what
// uses it.
func (s *Staging) moveAside(ctx context.Context, e pathpolicy.Entry) (moved storage.MovedAside, _ error) {
	if err := e.CheckReplaceable(); err != nil {
		return moved, err
	}
	if e.IsInVolume() {
		return moved, refuse("the path leads into a mounted volume, where no volume can be staged")
	}
	o := pathpolicy.Directory(win.FileOpen)
	o.Access |= win.Delete
	dir, err := e.Open(ctx, o)
	if errors.Is(err, win.ErrorDirectory) {
		return moved, refuse("there is a file and no directory")
	}
	if err != nil {
		return moved, err
	}
	info, err := dir.Info(ctx)
	if err == nil && info.IsReparsePoint() {
		err = refuse("a volume or share is staged there, or a link leads elsewhere; unstage it first")
	}
	if err == nil {
		err = s.checkUnused(ctx, dir)
	}
	if err == nil {
		err = listMoved(ctx, dir, &moved)
	}
	if err != nil || len(moved.Entries) == 0 {
		return moved, err
	}
	to := e.Aside(time.Now().UTC().Format("20060102T150405.000Z"))
	err = s.Paths.ReachMaking(ctx, s.Sys, to, func(to pathpolicy.Entry) error { return dir.Move(ctx, to) })
	if errors.Is(err, win.ErrorAccessDenied) {
		err = &csiproxy.Error{
			Kind: csiproxy.ErrFailedPrecondition, Err: err,
			Detail: "Windows doesn't move the directory, most likely since a process has a file in it open; end the pod " +
				"that writes there, and try again",
		}
	}
	if err != nil {
		return storage.MovedAside{}, err
	}
	moved.MovedTo = to.String()
	s.options.Logger.Info("directory moved aside", "path", e.Path(), "to", moved.MovedTo)
	return moved, nil
}

// checkUnused refuses a directory below which a volume is mounted, or a link leads to a volume or
// share. Nobody looks for links where things are moved to, so these would seem to be unused.
func (s *Staging) checkUnused(ctx context.Context, dir *pathpolicy.File) error {
	at, err := s.Volumes.Parse(dir.Path())
	if err != nil {
		return err
	}
	var used []string
	var failed error
	incomplete, err := dir.Links(ctx, func(l pathpolicy.FoundLink) {
		if failed != nil || len(used) > use.MostListed {
			return
		}
		switch isUse, err := s.isUse(ctx, l, at); {
		case isUse:
			used = append(used, l.Path.String())
		case err != nil:
			failed = &csiproxy.Error{Object: quote.Text(l.Path.String()), Err: err}
		}
	})
	if err == nil && len(used) == 0 {
		used, err = s.mountedBelow(ctx, at) // also where no search for links comes
	}
	if err != nil {
		return err
	}
	if len(used) > 0 {
		return refuse("volumes are mounted below it, or links lead to volumes and shares, at " + use.Listed(used) +
			"; name the staging directory itself, or unpublish and unstage these first;" +
			" csi-proxyctl fs rm PATH removes a link that nobody needs")
	}
	if failed = cmp.Or(failed, incomplete); failed != nil {
		return &csiproxy.Error{
			Kind: csiproxy.ErrUnavailable, Err: failed,
			Detail: "whether something below the directory is used can't be found out; " +
				"name the staging directory itself, or try again later",
		}
	}
	return nil
}

// mountedBelow returns the mount points below a directory.
func (s *Staging) mountedBelow(ctx context.Context, dir pathpolicy.Path) (below []string, _ error) {
	volumes, err := s.Sys.FindVolumes(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range volumes {
		mounted, err := opendisk.MountedAt(ctx, s.Sys, name)
		if win.IsGone(err) {
			away, awayErr := s.Owner.Away(ctx, volume.ID(name))
			if away {
				continue // its disk has gone offline meanwhile, or has left
			}
			err = cmp.Or(awayErr, err)
		}
		if err != nil {
			return nil, err
		}
		if mounted, err = s.Owner.Allowed(ctx, mounted); err != nil {
			return nil, err
		}
		for _, at := range mounted {
			if m, err := s.Volumes.Parse(at); err == nil && m.IsBelow(dir) {
				below = append(below, at)
			}
		}
	}
	return below, nil
}

// isUse reports whether a link below a directory is a mount point, or leads to a share or to a
// volume that is mounted elsewhere. One that can't be followed by the rules may do so.
func (s *Staging) isUse(ctx context.Context, l pathpolicy.FoundLink, dir pathpolicy.Path) (bool, error) {
	switch l.Link.Kind {
	case pathpolicy.LinkToVolume, pathpolicy.LinkToShare:
		return true, nil
	case pathpolicy.LinkInside:
		if l.Link.Path.IsBelow(dir) || l.Link.Path.Equal(dir) {
			return false, nil // what is there is looked at itself
		}
		to, err := s.Paths.Resolve(ctx, s.Sys, l.Link.Path)
		if _, windows := csiproxy.WindowsErrorOf(err); err != nil {
			return !windows && ctx.Err() == nil, err
		}
		return to.Kind == pathpolicy.MountedVolume || to.Kind == pathpolicy.SharedDirectory || to.InVolume, nil
	}
	return false, nil
}

// listMoved lists the entries of a directory that is to be moved, or the first of them.
func listMoved(ctx context.Context, dir *pathpolicy.File, moved *storage.MovedAside) error {
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		if errors.Is(err, win.ErrorNoMoreFiles) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if moved.MoreEntries = len(moved.Entries) == storage.MostMovedEntries; moved.MoreEntries {
				return nil
			}
			one := storage.MovedEntry{Name: e.Name}
			if e.Created != 0 {
				one.Created = e.Created.Time()
			}
			moved.Entries = append(moved.Entries, one)
		}
	}
}
