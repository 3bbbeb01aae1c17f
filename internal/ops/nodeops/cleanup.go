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
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// CleanUp implements [csiproxy.StorageOperations].
func (s *Staging) CleanUp(ctx context.Context, remove bool) (_ csiproxy.Leftovers, err error) {
	defer s.options.Observer.End("CleanUp", "", time.Now(), &err)
	list, err := s.sharedList(ctx, true)
	if err != nil {
		return csiproxy.Leftovers{}, err
	}
	all := csiproxy.Leftovers{IncompleteReason: list.IncompleteReason}
	var toRemove []int
	var owners []string
	for _, m := range list.Mounts {
		if m.LeftoverReason == "" && m.ForgottenPod == "" {
			continue
		}
		one := csiproxy.Leftover{Mount: m}
		if remove && m.LeftoverReason != "" {
			owner := s.ownerOfMount(m)
			if owner != "" {
				one.Error = "its removal has not ended in time"
			}
			toRemove, owners = append(toRemove, len(all.Mounts)), append(owners, owner)
		}
		all.Mounts = append(all.Mounts, one)
	}
	return all, s.askByOwner(ctx, owners, 1, func(ctx context.Context, i int) (func(), error) {
		one := &all.Mounts[toRemove[i]]
		removed, err := s.removeLeftover(ctx, one.Mount)
		return func() {
			one.Removed, one.Error = removed, ""
			if err != nil {
				one.Error = err.Error()
			}
		}, ctx.Err()
	})
}

// ownerOfMount returns the driver that owns a mount; "" if there is none.
func (s *Staging) ownerOfMount(m csiproxy.Mount) string {
	if m.Volume.Share != "" {
		return s.Users.OwnerOfShare(m.Volume.Share)
	}
	path, err := s.Volumes.Parse(m.Path)
	if err != nil {
		return s.options.Driver
	}
	return s.Paths.DriverOf(path)
}

// removeLeftover removes a mount if the mount still is a leftover, and reports whether it did.
func (s *Staging) removeLeftover(ctx context.Context, m csiproxy.Mount) (removed bool, _ error) {
	switch m.Kind {
	case csiproxy.MountKindMountPoint:
		return s.removeMount(ctx, m)
	case csiproxy.MountKindLink:
		return s.removeLink(ctx, m)
	case csiproxy.MountKindMapping:
		remote, err := win.ParseUNC(m.Target)
		if err != nil || !isOwnKind(win.SMBMapping{LocalPath: m.Path}, remote) {
			return false, err
		}
		return s.Mappings.RemoveIfUnused(ctx, remote)
	}
	return false, nil
}

// removeMount unmounts a volume if the volume's disk has left the node and no link leads to the
// volume.
func (s *Staging) removeMount(ctx context.Context, m csiproxy.Mount) (removed bool, _ error) {
	path, err := s.Volumes.Parse(m.Path)
	if err != nil {
		return false, err
	}
	volume, err := s.Locks.LockVolumeOnly(ctx, m.Volume.VolumeID)
	if err != nil {
		return false, err
	}
	defer volume.Release()
	gone, err := s.volumeLeftNode(ctx, volume.ID)
	if err != nil || !gone {
		return false, err
	}
	links, err := s.Users.LinksToVolume(ctx, volume.ID)
	if err != nil || len(links) > 0 {
		return false, err
	}
	err = s.Volumes.Unmount(ctx, volume, path, func() error { return nil })
	return err == nil, err
}

// volumeLeftNode reports whether a volume has left the node. It returns false while a disk that may
// have the volume is offline or silent.
func (s *Staging) volumeLeftNode(ctx context.Context, id csiproxy.VolumeID) (bool, error) {
	missing, err := s.Users.IsMissing(ctx, id)
	if err != nil || !missing {
		return false, err
	}
	return s.Disks.AllOnline(ctx)
}

// removeLink removes a link that leads nowhere. The link stays open meanwhile, to keep a concurrent
// MakeSymlink from finding the link and relying on it: see pathpolicy.Entry.MakeSymlink.
func (s *Staging) removeLink(ctx context.Context, m csiproxy.Mount) (removed bool, _ error) {
	path, err := s.Volumes.Parse(m.Path)
	if err != nil {
		return false, err
	}
	return s.Files.UnlinkIf(ctx, path, func(ctx context.Context, link pathpolicy.Link) (bool, error) {
		reason, err := s.Users.ExplainEmpty(ctx, &pathpolicy.FoundLink{Path: path, Link: link})
		return err == nil && reason != "", err
	})
}

// CheckVolume implements [csiproxy.StorageOperations].
func (s *Staging) CheckVolume(ctx context.Context, r csiproxy.CheckVolumeRequest) (
	checked csiproxy.CheckedVolume, err error) {
	defer s.options.Observer.End("CheckVolume", "at "+pathText("staging_path", r.StagingPath), time.Now(), &err)
	id, err := s.Volumes.GetVolumeIDFromTargetPath(ctx, r.StagingPath)
	if err != nil {
		return checked, err
	}
	if r.SpotFix { // before a scan that may take hours
		links, err := s.Users.LinksToVolume(ctx, id)
		if err != nil {
			return checked, err
		}
		if err := s.refusePublished(ctx, links, forSpotFix); err != nil {
			return checked, err
		}
	}
	begun := time.Now()
	if since, busy := s.beginCheck(id, begun); busy {
		return checked, csiproxy.Errorf(csiproxy.ErrUnavailable,
			"Windows has been checking the volume since %s; try again when that has ended", since.UTC().Format(time.RFC3339))
	}
	defer s.endCheck(id)
	found, err := s.Volumes.Repair(ctx, id, win.RepairScan)
	if errors.Is(err, winerr.ErrorRetry) && s.isDiskMissing(ctx, id) {
		// A concurrent UnstageVolume also takes the disk offline. The caller's retry then finds no
		// volume.
		return checked, csiproxy.Errorf(csiproxy.ErrUnavailable, "the disk of the volume has left the node or is offline")
	}
	if err != nil {
		return checked, err
	}
	if found && r.SpotFix {
		if err := s.spotFix(ctx, id); err != nil {
			return checked, err
		}
		left, err := s.Volumes.Repair(ctx, id, win.RepairScan)
		if err != nil {
			return checked, err
		}
		checked.Fixed = !left
	}
	checked.ErrorsFound = found
	checked.Duration = time.Since(begun)
	v, err := s.Volumes.Describe(ctx, id)
	checked.Conditions = v.Conditions
	return checked, err
}

// isDiskMissing reports whether the disk of a volume is known to be offline or to have left the
// node.
func (s *Staging) isDiskMissing(ctx context.Context, id csiproxy.VolumeID) bool {
	v, err := s.Volumes.Describe(ctx, id)
	return err == nil && slices.ContainsFunc(v.Conditions, func(c csiproxy.Condition) bool {
		return c.Reason == csiproxy.ReasonDiskMissing
	})
}

// beginCheck records the start of a volume's check. If a check is already running, busy is true,
// and since is the start of the running check. A scan may take hours, and repeated requests must
// not pile up.
func (s *Staging) beginCheck(id csiproxy.VolumeID, now time.Time) (since time.Time, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	volume := volumeCheck{s.options.Driver, id}
	if since, busy = s.checking[volume]; !busy {
		s.checking[volume] = now
	}
	return since, busy
}

func (s *Staging) endCheck(id csiproxy.VolumeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.checking, volumeCheck{s.options.Driver, id})
}

// spotFix repairs a volume. It checks again for links to the volume: a pod may have started during
// the scan.
func (s *Staging) spotFix(ctx context.Context, id csiproxy.VolumeID) error {
	lockedDisk, _, err := s.Locks.LockDiskOf(ctx, id)
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	volume, err := lockedDisk.LockVolume(ctx, id)
	if err != nil {
		return err
	}
	defer volume.Release()
	if err := s.checkUnpublished(ctx, volume, forSpotFix); err != nil {
		return err
	}
	_, err = s.Volumes.Repair(ctx, id, win.RepairSpotFix)
	return err
}

// forSpotFix begins the error of a spot fix on a published volume.
const forSpotFix = "a spot fix takes the volume offline for a moment, and "

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
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%sa link that isn't driver %s's leads to it; an administrator "+
			"finds it with csi-proxyctl storage volumes", reason, quote.Text(s.options.Driver))
	}
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%sit is published at %s; "+unpublishFirst, reason,
		quote.List(links))
}

// isOwnLink reports whether a link belongs to the driver of s: the driver's policy reaches the
// link.
func (s *Staging) isOwnLink(ctx context.Context, path string) bool {
	parsed, err := s.Paths.Parse(path, pathpolicy.MaxLongPath)
	if err != nil {
		return false
	}
	return s.Paths.Reach(ctx, s.Sys, parsed, func(pathpolicy.Entry) error { return nil }) == nil
}
