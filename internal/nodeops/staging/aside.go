// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
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
)

// MoveAside implements [storage.Operations].
func (s *Staging) MoveAside(ctx context.Context, path string) (storage.MovedAside, error) {
	return operation.Get(ctx, s.options.Runner, "MoveAside", quote.Text(path), func(ctx context.Context) (moved storage.MovedAside, _ error) {
		p, err := s.Volumes.Parse(path)
		if err == nil {
			err = s.checkNothingMountedBelow(ctx, p)
		}
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

// checkNothingMountedBelow refuses a directory above mount points: those who have mounted
// these reach them by their paths.
func (s *Staging) checkNothingMountedBelow(ctx context.Context, path pathpolicy.Path) error {
	volumes, err := s.Sys.FindVolumes(ctx)
	if err != nil {
		return err
	}
	for _, name := range volumes {
		mounted, err := opendisk.MountedAt(ctx, s.Sys, name)
		if err != nil {
			return err
		}
		for _, at := range use.Directories(mounted) {
			if m, err := s.Volumes.Parse(at); err == nil && m.IsBelow(path) {
				return refuse("a volume is mounted below it, at " + quote.Text(at) + "; name the staging directory itself")
			}
		}
	}
	return nil
}

// moveAside moves the directory e, with all that is in it, in one step. Nobody else can mount
// there meanwhile: the directory is held, and isn't shared for deletion.
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
			Detail: "Windows doesn't move the directory, most likely since a process has a file in it open; end the pod that writes there, and try again",
		}
	}
	if err != nil {
		return storage.MovedAside{}, err
	}
	moved.MovedTo = to.String()
	s.options.Logger.Info("directory moved aside", "path", e.Path(), "to", moved.MovedTo)
	return moved, nil
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
