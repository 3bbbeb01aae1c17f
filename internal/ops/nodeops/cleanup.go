// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// CleanUp implements [csiproxy.StorageOperations].
func (s *Staging) CleanUp(ctx context.Context, remove bool) (_ csiproxy.Leftovers, err error) {
	defer s.options.Observer.End("CleanUp", "", time.Now(), &err)
	list, err := s.list(ctx, true)
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
				one.Error = "its removal has not ended in time" // replaced when the removal ends
			}
			toRemove, owners = append(toRemove, len(all.Mounts)), append(owners, owner)
		}
		all.Mounts = append(all.Mounts, one)
	}
	return all, askByOwner(ctx, s.options.Driver, owners, 1, func(ctx context.Context, i int) (func(), error) {
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
		if err != nil || !shares.IsOwnKind(win.SMBMapping{LocalPath: m.Path}, remote) {
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
	gone, err := s.volumeLeftNode(ctx, volume.ID, s.Paths.DriverOf(path))
	if err != nil || !gone {
		return false, err
	}
	links, err := s.Users.LinksToVolume(ctx, volume.ID)
	if err != nil || len(links) > 0 {
		return false, err
	}
	err = s.Volumes.Unmount(ctx, volume, path, func(directory *pathpolicy.File) error {
		if directory.Path() != m.Path {
			return changedMeanwhile() // a directory on the way has become a link, perhaps to another driver's mount
		}
		return nil
	})
	return err == nil, err
}

// volumeLeftNode reports whether a volume, mounted in a directory of a driver, has left the node. It
// returns false while a disk that may have the volume is offline or silent.
func (s *Staging) volumeLeftNode(ctx context.Context, id csiproxy.VolumeID, driver string) (bool, error) {
	missing, err := s.Users.IsMissing(ctx, id)
	if err != nil || !missing {
		return false, err
	}
	return s.Disks.AllOnline(ctx, cmp.Or(s.options.Driver, driver))
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
