// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// PublishVolume implements [csiproxy.StorageOperations].
func (s *Staging) PublishVolume(ctx context.Context, stagingPath, targetPath string) (err error) {
	defer s.options.Observer.End("PublishVolume", pathText("target_path", targetPath), time.Now(), &err)
	target, err := s.Paths.Parse(targetPath, pathpolicy.MaxPath)
	if err != nil {
		return err
	}
	source, err := s.Paths.Parse(stagingPath, pathpolicy.MaxPath)
	if err != nil {
		return atStaging(stagingPath, err)
	}
	resolved, release, err := s.Locks.LockMountedAt(ctx, source)
	if err != nil {
		return atStaging(stagingPath, err)
	}
	defer release()
	if err := s.checkStaged(ctx, resolved); err != nil {
		return atStaging(stagingPath, err)
	}
	if source.Equal(target) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path would be a link to itself")
	}
	walk := s.Paths.Walk(s.Sys)
	defer walk.CloseInto(&err)
	e, err := walk.ReachOrMake(ctx, target)
	if err != nil {
		return err
	}
	return s.publish(ctx, e, source)
}

func atStaging(path string, err error) error {
	return &csiproxy.Error{Object: "staging path " + pathText("staging_path", path), Err: err}
}

// checkStaged checks that a volume or share is staged at a path. resolved is what the path leads to.
func (s *Staging) checkStaged(ctx context.Context, resolved pathpolicy.Resolved) error {
	if resolved.ByLink { // a link to another path; a link to a share doesn't set ByLink
		return refuse("it is a link to another path, not a staging path")
	}
	if resolved.Kind == pathpolicy.MountedVolume {
		return nil
	}
	if resolved.Kind == pathpolicy.SharedDirectory {
		mapped, err := s.Mappings.IsMapped(ctx, resolved.Target)
		if err == nil && !mapped {
			err = refuse("the share " + quote.Text(resolved.Target) + " is not mapped; it must be staged again")
		}
		return err
	}
	return refuse("neither a volume nor a share is staged there")
}

// publish makes an entry a link to source. It replaces an empty directory, left by an interrupted
// call or made for the pod.
func (s *Staging) publish(ctx context.Context, e pathpolicy.Entry, source pathpolicy.Path) error {
	if err := e.CheckSearched(); err != nil {
		return err
	}
	err := s.Files.makeLink(ctx, e, source, false)
	if csiproxy.KindOf(err) != csiproxy.ErrAlreadyExists {
		return err
	}
	removed, removeErr := s.Files.RemoveEmpty(ctx, e)
	if removed || pathpolicy.Missing(removeErr) {
		return s.Files.makeLink(ctx, e, source, false)
	}
	if removeErr != nil && !errors.Is(removeErr, winerr.ErrorDirNotEmpty) {
		return removeErr
	}
	return err
}

// UnpublishVolume implements [csiproxy.StorageOperations].
func (s *Staging) UnpublishVolume(ctx context.Context, targetPath string) (err error) {
	defer s.options.Observer.End("UnpublishVolume", pathText("target_path", targetPath), time.Now(), &err)
	target, err := s.Paths.Parse(targetPath, pathpolicy.MaxPath)
	if err != nil {
		return err
	}
	return s.Files.Unlink(ctx, target)
}

// unpublishFirst is the advice in errors about a published volume.
const unpublishFirst = "unpublish it first; csi-proxyctl storage unpublish PATH removes the link of a pod that is gone"

// checkUnpublished returns an error if a link leads to a volume. The error begins with reason.
func (s *Staging) checkUnpublished(ctx context.Context, volume *usage.LockedVolume, reason string) error {
	links, err := s.Users.LinksToVolume(ctx, volume.ID)
	if err != nil {
		return err
	}
	return s.refusePublished(ctx, links, reason)
}

// refusePublished returns an error if a volume has links. A driver sees only its own links in the
// error, because links contain the UIDs of pods.
func (s *Staging) refusePublished(ctx context.Context, links []string, reason string) error {
	if len(links) == 0 {
		return nil
	}
	if s.options.Driver != "" {
		links = slices.DeleteFunc(links, func(link string) bool { return !s.isOwnLink(ctx, link) })
	}
	if len(links) == 0 {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%sa link of another owner leads to it; an administrator finds "+
			"the link with csi-proxyctl storage volumes", reason)
	}
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%sit is published at %s; "+unpublishFirst, reason,
		quote.List(links))
}

// isOwnLink reports whether a link belongs to the driver of s: the driver's policy reaches the
// link.
func (s *Staging) isOwnLink(ctx context.Context, path string) bool {
	walk := s.Paths.Walk(s.Sys)
	defer walk.Close()
	parsed, err := s.Paths.Parse(path, pathpolicy.MaxLongPath)
	if err == nil {
		_, err = walk.Reach(ctx, parsed)
	}
	return err == nil
}
