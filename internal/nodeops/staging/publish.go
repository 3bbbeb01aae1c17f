// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"context"
	"errors"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/files"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// PublishVolume implements [storage.Operations].
func (s *Staging) PublishVolume(ctx context.Context, stagingPath, targetPath string) error {
	return operation.Do(ctx, s.options.Runner, "PublishVolume", quote.Text(targetPath), func(ctx context.Context) error {
		target, err := s.Paths.Parse(targetPath, pathpolicy.MaxPath)
		if err != nil {
			return err
		}
		source, err := s.Paths.Parse(stagingPath, pathpolicy.MaxPath)
		if err != nil {
			return atStaging(stagingPath, err)
		}
		// The source is looked at twice, and neither look changes where Windows runs from.
		ctx, to, release, err := s.Owner.MountedAt(systemdisk.Once(ctx), source)
		if err != nil {
			return atStaging(stagingPath, err)
		}
		defer release()
		if err := s.checkStaged(ctx, to); err != nil {
			return atStaging(stagingPath, err)
		}
		if source.Equal(target) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path would be a link to itself")
		}
		return s.Files.MakeLink(ctx, target, source, s.Paths.ReachMaking, func(e pathpolicy.Entry) (bool, error) {
			return s.publish(ctx, e, source)
		})
	})
}

func atStaging(path string, err error) error {
	return &csiproxy.Error{Object: "staging path " + quote.Text(path), Err: err}
}

// checkStaged refuses a path at which neither a volume nor a share is staged, by what it
// leads to.
func (s *Staging) checkStaged(ctx context.Context, to pathpolicy.Resolved) error {
	switch {
	case to.ByLink:
		return refuse("it is a link to another path, not a staging path")
	case to.Kind == pathpolicy.MountedVolume:
		return nil
	case to.Kind == pathpolicy.SharedDirectory:
		roots, err := s.Mappings.Roots(ctx)
		if err != nil {
			return err
		}
		if remote, err := unc.Parse(to.Target); err != nil || !slices.Contains(roots, remote.Root()) {
			return refuse("the share " + quote.Text(to.Target) + " is not mapped; it must be staged again")
		}
		return nil
	}
	return refuse("neither a volume nor a share is staged there")
}

// publish makes an entry a link to source, also in place of an empty directory: a call that
// died half-way has left that, or whoever has made the directory for the pod.
func (s *Staging) publish(ctx context.Context, e pathpolicy.Entry, source pathpolicy.Path) (made bool, _ error) {
	if e.IsInVolume() {
		return false, refuse("the path leads into a mounted volume, where no volume can be published")
	}
	made, err := e.MakeSymlink(ctx, source.String(), false, files.IsLinkTo(source))
	if csiproxy.KindOf(err) != csiproxy.ErrAlreadyExists {
		return made, err
	}
	removed, removeErr := s.Files.RemoveEmpty(ctx, e)
	switch {
	case removed || pathpolicy.Missing(removeErr):
		return e.MakeSymlink(ctx, source.String(), false, files.IsLinkTo(source))
	case removeErr != nil && !errors.Is(removeErr, win.ErrorDirNotEmpty):
		return false, removeErr
	}
	return false, err
}

// UnpublishVolume implements [storage.Operations].
func (s *Staging) UnpublishVolume(ctx context.Context, targetPath string) error {
	return operation.Do(ctx, s.options.Runner, "UnpublishVolume", quote.Text(targetPath), func(ctx context.Context) error {
		target, err := s.Paths.Parse(targetPath, pathpolicy.MaxPath)
		if err != nil {
			return err
		}
		return s.Files.Unlink(ctx, target)
	})
}
