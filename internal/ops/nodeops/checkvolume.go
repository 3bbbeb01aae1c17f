// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

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
		// UnstageVolume may have taken the disk offline during the scan. The caller may retry: if
		// the volume is unstaged, the retry finds no volume at the path.
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
