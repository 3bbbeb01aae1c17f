// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// UnstageVolume implements [csiproxy.StorageOperations].
func (s *Staging) UnstageVolume(ctx context.Context, request csiproxy.UnstageVolumeRequest) (
	result csiproxy.UnstagedVolume, err error) {
	defer s.options.Observer.End("UnstageVolume", "at "+pathText("staging_path", request.StagingPath), time.Now(), &err)
	stagingPath, err := s.Volumes.Parse(request.StagingPath)
	if err != nil {
		return result, err
	}
	if err := request.Disk.Validate(); err != nil {
		return result, err
	}
	found, err := s.lookUpStaged(ctx, stagingPath)
	if err != nil {
		return result, err
	}
	if found.isShare && request.Disk.IsZero() {
		unstaged, err := s.unstageShare(ctx, unstaging{local: stagingPath, remote: found.share, force: request.Force})
		return csiproxy.UnstagedVolume{Unmounted: unstaged.Unlinked, Unmapped: unstaged.Unmapped}, err
	}
	var target csiproxy.ISCSISelector // provides the volume's disk
	if found.volume != "" {
		err := s.whenUnused(ctx, func() (err error) {
			target, err = s.unstageVolume(ctx, request, stagingPath, found.volume, &result)
			return err
		})
		if err != nil {
			return result, err
		}
	}
	if !result.Unmounted && !request.Disk.IsZero() {
		if err := s.whenUnused(ctx, func() error { return s.retireNamed(ctx, request, &result) }); err != nil {
			return result, err
		}
	}
	// A request that names a disk is about the disk's volume: a share at the path stays.
	if !result.Unmounted && !found.isShare {
		if err := s.finishWithoutUnmount(ctx, request, stagingPath, found.volume); err != nil {
			return result, err
		}
	}
	if request.Disk.ISCSI != nil && target.IQN == "" {
		target = *request.Disk.ISCSI
	}
	if target.IQN != "" {
		result.LoggedOut, err = s.logOut(ctx, target)
	}
	return result, err
}

// stagedObject is the object staged at a path: a volume, a share, or nothing.
type stagedObject struct {
	volume  csiproxy.VolumeID // "" if no volume is mounted there
	share   win.UNCPath
	isShare bool
}

// lookUpStaged returns the object staged at a path. Callers must check again after taking the lock.
func (s *Staging) lookUpStaged(ctx context.Context, stagingPath pathpolicy.Path) (found stagedObject, _ error) {
	resolved, err := s.Paths.Lookup(ctx, s.Sys, stagingPath)
	if err != nil || resolved.Volume != "" {
		return stagedObject{volume: csiproxy.VolumeID(resolved.Volume)}, err
	}
	found.share, found.isShare, err = s.shareStagedAt(ctx, stagingPath, acceptAny)
	if err != nil || found.isShare {
		return found, err
	}
	// Lookup ignores a file or a link at the path; MountedAtPath returns an error.
	found.volume, err = s.Volumes.MountedAtPath(ctx, stagingPath)
	return found, err
}

// finishWithoutUnmount ends the unstaging of a path where no volume was unmounted. mounted is the
// volume that was mounted there at the start of the call, or "". If the request names a disk, and a
// different volume is mounted there now, finishWithoutUnmount returns an error: the volume may be on
// the requested disk.
func (s *Staging) finishWithoutUnmount(ctx context.Context, request csiproxy.UnstageVolumeRequest, stagingPath pathpolicy.Path,
	mounted csiproxy.VolumeID) error {
	if !request.Disk.IsZero() {
		mountedNow, err := s.Volumes.MountedAtPath(ctx, stagingPath)
		if err != nil {
			return err
		}
		if mountedNow != "" && !mountedNow.Equal(mounted) {
			another := "another volume"
			if !s.Paths.IsOfDriver() {
				another = "volume " + string(mountedNow)
			}
			return csiproxy.Errorf(csiproxy.ErrUnavailable, "%s was mounted there by another call during this one; try again", another)
		}
	}
	// An earlier call may have died between the unmount and this step.
	return s.removeStagingDirectory(ctx, stagingPath)
}

// How long and how often to retry while a volume is in use. Virus scanners end their use after a
// moment. The interval grows, since each attempt flushes and locks the volume.
const (
	useTimeout         = 15 * time.Second
	useInterval        = 200 * time.Millisecond
	useLongestInterval = 5 * time.Second
)

// whenUnused retries f while its error means that a volume is in use: for useTimeout, or half of
// the caller's remaining time if shorter. No locks are held between two attempts, and concurrent
// calls on the disk and its volumes can proceed.
func (s *Staging) whenUnused(ctx context.Context, f func() error) (err error) {
	polling := operation.Polling{Timeout: useTimeout, First: useInterval, Longest: useLongestInterval}
	if deadline, ok := ctx.Deadline(); ok {
		polling.Timeout = min(polling.Timeout, time.Until(deadline)/2)
	}
	var firstUse error // for the log: names the processes using the volume at the first attempt
	for polling.Next(ctx) {
		if err = f(); !IsInUse(err) {
			if firstUse != nil {
				s.options.Logger.Warn("the unmount of a volume waited for its users", "err", firstUse)
			}
			return err
		}
		if firstUse == nil {
			firstUse = s.Volumes.ExplainInUse(ctx, err)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return s.Volumes.ExplainInUse(ctx, err)
}

// unstageVolume unmounts the volume id from its staging path, and takes its disk offline. It returns
// the target that provides the disk. If the request names another disk, the volume stays mounted.
func (s *Staging) unstageVolume(ctx context.Context, request csiproxy.UnstageVolumeRequest, stagingPath pathpolicy.Path,
	id csiproxy.VolumeID, result *csiproxy.UnstagedVolume) (target csiproxy.ISCSISelector, _ error) {
	lockedDisk, _, err := s.Locks.LockDiskOf(ctx, id)
	if winerr.IsGone(err) {
		isThere, missingErr := s.unstageMissing(ctx, request, id, stagingPath, err, result)
		if missingErr != nil || !isThere {
			return target, missingErr
		}
		lockedDisk, _, err = s.Locks.LockDiskOf(ctx, id)
	}
	if err != nil {
		return target, unavailableIfDiskLeft(err)
	}
	defer lockedDisk.Release()
	if meant, err := s.mayBeMeant(ctx, request.Disk, lockedDisk); err != nil || !meant {
		return target, unavailableIfDiskLeft(err)
	}
	volume, err := s.Locks.LockVolumeOnly(ctx, id) // succeeds even if the volume leaves the node just now
	if err != nil {
		return target, err
	}
	defer volume.Release()
	if still, err := s.isStillMounted(ctx, volume, stagingPath); err != nil || !still {
		return target, err
	}
	if !request.Force {
		if err := s.checkUnpublished(ctx, volume, ""); err != nil {
			return target, err
		}
	}
	held := heldDisk{LockedDisk: lockedDisk, staging: s}
	defer held.unlockInWindows()
	if request.Force {
		err = s.Volumes.UnmountByForce(ctx, volume, stagingPath)
	} else {
		err = held.unmount(ctx, volume, stagingPath)
	}
	if err != nil {
		return target, unavailableIfDiskLeft(err)
	}
	result.Unmounted = true
	// The disk goes offline now, whatever else fails: a repeated call finds no volume, and can't learn
	// which disk to take offline. For the same reason, the disk's error comes before the others.
	removeErr := s.removeStagingDirectory(ctx, stagingPath)
	target, targetErr := s.targetOf(ctx, lockedDisk.Disk)
	result.DiskOffline, err = held.retire(ctx)
	return target, unavailableIfDiskLeft(cmp.Or(err, targetErr, removeErr))
}

// isStillMounted reports whether a locked volume is mounted at a path. The previous holder of the lock
// may have unmounted the volume.
func (s *Staging) isStillMounted(ctx context.Context, volume *usage.LockedVolume, stagingPath pathpolicy.Path) (bool, error) {
	resolved, err := s.Paths.Lookup(ctx, s.Sys, stagingPath) // Unmount checks again, holding the directories open
	return volume.ID.Equal(csiproxy.VolumeID(resolved.Volume)), err
}

// removeStagingDirectory removes the directory of the former mount point, if empty. If a pod still
// writes through its link, the writes then fail, and don't fill the node's disk.
func (s *Staging) removeStagingDirectory(ctx context.Context, stagingPath pathpolicy.Path) (err error) {
	walk := s.Paths.Walk(s.Sys)
	defer walk.CloseInto(&err)
	e, err := walk.Reach(ctx, stagingPath)
	if err == nil {
		_, err = s.Files.RemoveEmpty(ctx, e)
	}
	if pathpolicy.Missing(err) || errors.Is(err, winerr.ErrorDirNotEmpty) {
		return nil
	}
	return err
}

// unavailableIfDiskLeft converts the error of a missing disk to csiproxy.ErrUnavailable: a disk
// that was there at the start of the call may be missing only for a moment. A repeated call finds
// out whether the disk has left.
func unavailableIfDiskLeft(err error) error {
	if !winerr.IsGone(err) {
		return err
	}
	return &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
		Detail: "the disk does not answer, or has left the node during the call; try again", Err: err}
}

// unstageMissing unmounts a missing volume, without a flush: the volume's pods must be able to end.
// reason is the error that reports the volume missing. A single error may be transient, and
// unstageMissing asks once more. If the volume is now present, nothing changes, and isThere is
// true. If the request names a disk that is online without the volume, the volume belongs to
// another disk, and stays mounted.
func (s *Staging) unstageMissing(ctx context.Context, request csiproxy.UnstageVolumeRequest, id csiproxy.VolumeID,
	stagingPath pathpolicy.Path, reason error, result *csiproxy.UnstagedVolume) (isThere bool, _ error) {
	if !request.Disk.IsZero() {
		lockedDisk, err := s.lockNamed(ctx, request.Disk)
		if err != nil {
			return false, unavailableIfDiskLeft(err)
		}
		if lockedDisk != nil {
			defer lockedDisk.Release()
			if isOther, err := s.isOnlineWithout(ctx, lockedDisk, id); err != nil || isOther {
				return false, unavailableIfDiskLeft(err)
			}
		}
	}
	volume, err := s.Locks.LockVolumeOnly(ctx, id)
	if err != nil {
		return false, err
	}
	defer volume.Release()
	if still, err := s.isStillMounted(ctx, volume, stagingPath); err != nil || !still {
		return false, err
	}
	isMissing, err := s.Users.IsMissing(ctx, id)
	if err != nil {
		return false, unavailableIfDiskLeft(err)
	}
	if !isMissing {
		return true, nil
	}
	err = s.Volumes.Unmount(ctx, volume, stagingPath, func(*pathpolicy.File) error {
		s.options.Logger.Warn("unmounting a missing volume without a flush", "volume", id, "err", reason)
		return nil
	})
	result.Unmounted = err == nil
	if err == nil {
		err = s.removeStagingDirectory(ctx, stagingPath)
	}
	return false, err
}

// isOnlineWithout reports whether a disk is online and lacks a volume. If the disk has just come
// online, isOnlineWithout waits for the arrival of the disk's volumes.
func (s *Staging) isOnlineWithout(ctx context.Context, lockedDisk *usage.LockedDisk, id csiproxy.VolumeID) (bool, error) {
	state, err := lockedDisk.State(ctx)
	if err != nil || state.Offline {
		return false, err
	}
	volumes, err := s.Disks.Volumes(ctx, lockedDisk)
	if err != nil {
		return false, err
	}
	for _, name := range volumes {
		if id.Equal(csiproxy.VolumeID(name)) {
			return false, nil
		}
	}
	return true, nil
}

// mayBeMeant reports whether an open disk may be the requested disk. If the disk fails to report a
// compared property, mayBeMeant assumes that it is the requested disk, unless another disk matches:
// a sick disk must not keep its volume mounted forever.
func (s *Staging) mayBeMeant(ctx context.Context, wanted csiproxy.Selector, lockedDisk *usage.LockedDisk) (bool, error) {
	if wanted.IsZero() {
		return true, nil
	}
	described, meant, err := s.isMeant(ctx, wanted, lockedDisk.Disk)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if meant {
		return true, nil
	}
	if err == nil && isAnother(wanted, described) {
		return false, nil
	}
	n, err := s.find(ctx, wanted, 0)
	if isAbsent(err) {
		return true, nil
	}
	return n == lockedDisk.Number, err
}

// retireNamed takes the disk named by a request offline, if the disk is on the node.
func (s *Staging) retireNamed(ctx context.Context, request csiproxy.UnstageVolumeRequest,
	result *csiproxy.UnstagedVolume) error {
	lockedDisk, err := s.lockNamed(ctx, request.Disk)
	if err != nil || lockedDisk == nil {
		return unavailableIfDiskLeft(err)
	}
	defer lockedDisk.Release()
	state, err := lockedDisk.State(ctx)
	if err != nil {
		return unavailableIfDiskLeft(err)
	}
	held := heldDisk{LockedDisk: lockedDisk, staging: s}
	defer held.unlockInWindows()
	if !state.Offline && !request.Force { // an offline disk has no volumes
		if err := held.lockOthers(ctx, ""); err != nil {
			return err
		}
	}
	result.DiskOffline, err = held.retire(ctx)
	return unavailableIfDiskLeft(err)
}

// lockNamed locks the disk named by a request. It returns nil for a disk that isn't on the node.
func (s *Staging) lockNamed(ctx context.Context, wanted csiproxy.Selector) (*usage.LockedDisk, error) {
	lockedDisk, err := s.findAndLock(ctx, wanted, 0)
	if isAbsent(err) {
		return nil, nil
	}
	return lockedDisk, err
}

// heldDisk is a locked disk on its way offline. Its volumes are locked in Windows, to keep programs
// from opening them before the disk is offline.
type heldDisk struct {
	*usage.LockedDisk
	staging *Staging
	locked  []windowsLock

	volumes  opendisk.Volumes
	areKnown bool // the disk has reported its volumes
}

// windowsLock is a handle with Windows' lock of a flushed volume.
type windowsLock struct {
	id csiproxy.VolumeID
	win.DeviceHandle
}

// unlockInWindows closes the handles with the locks.
func (d *heldDisk) unlockInWindows() {
	for _, h := range d.locked {
		h.Close()
	}
	d.locked = nil
}

func (d *heldDisk) hasLocked(_ uint32, name string) bool {
	return slices.ContainsFunc(d.locked, func(h windowsLock) bool { return h.id.Equal(csiproxy.VolumeID(name)) })
}

// unmount unmounts a volume of the disk after locking the disk's volumes in Windows, as far as
// lockOthers can. If any of them is in use, IsInUse(err) is true.
func (d *heldDisk) unmount(ctx context.Context, volume *usage.LockedVolume, stagingPath pathpolicy.Path) error {
	if err := d.lockOthers(ctx, volume.ID); err != nil {
		return err
	}
	h, err := d.staging.Volumes.UnmountUnused(ctx, volume, stagingPath)
	if err == nil {
		d.locked = append(d.locked, windowsLock{volume.ID, h})
	}
	return err
}

// lockOthers locks the volumes of the disk in Windows, except id. If any of them is in use, IsInUse
// is true of the error. If any of them is mounted, and the disk therefore stays online, lockOthers
// locks none.
//
// A volume whose lock fails for another reason stays unlocked: on a sick disk, the failure must not
// keep id mounted. For the same reason, lockOthers succeeds if the disk fails to report its volumes,
// or Windows fails to report their mount points; retire asks again.
func (d *heldDisk) lockOthers(ctx context.Context, id csiproxy.VolumeID) (err error) {
	if d.volumes, err = d.staging.Disks.Volumes(ctx, d.LockedDisk); err != nil {
		return nil
	}
	d.areKnown = true
	others := maps.Clone(d.volumes)
	maps.DeleteFunc(others, func(_ uint32, name string) bool { return id.Equal(csiproxy.VolumeID(name)) })
	mounted, err := d.staging.Disks.DirectoriesOf(ctx, others)
	if err != nil || len(mounted) > 0 {
		return nil
	}
	for _, name := range others {
		h, err := d.staging.Volumes.Lock(ctx, csiproxy.VolumeID(name))
		if IsInUse(err) {
			return err
		}
		if err == nil {
			d.locked = append(d.locked, windowsLock{csiproxy.VolumeID(name), h})
		}
	}
	return nil
}

// retire takes the disk offline if none of its volumes is mounted, and reports whether this call
// took the disk offline. A disk staged read-only becomes writable.
//
// retire first tries with dismounted, locked volumes, to keep programs from opening a volume before
// its disk is offline. Whether Windows takes a disk offline under such locks is undocumented, and
// public programs differ: DynamicDiskPartitioner keeps the locks, win32diskimager goes on after a
// refusal, and WSL closes its handles first. If Windows refuses, retire closes the handles, too,
// and tries again at once without the locks. A process that opens a volume between the two attempts
// loses the data it has written and not yet flushed, as if the disk were pulled out. Such a process
// can't be a pod: the volumes have no mount paths, and the process must use a drive letter or the
// volume's name. Leaving the disk online instead would prevent its PersistentVolume from ever being
// detached.
//
// Source: https://github.com/microsoft/WSL/blob/3e27a6a50177ce4e32e72f7b957aef5db5768062/src/windows/common/disk.cpp#L68-L105
// (SetOnline: the handles are closed at the end of the block, before
// IOCTL_DISK_SET_DISK_ATTRIBUTES)
func (d *heldDisk) retire(ctx context.Context) (tookOffline bool, _ error) {
	state, err := d.State(ctx)
	if err != nil || state == offlineWritable {
		return false, err
	}
	disks := d.staging.Disks
	var toFlush opendisk.Volumes // the unlocked volumes
	if !state.Offline {
		if !d.areKnown {
			if d.volumes, err = disks.Volumes(ctx, d.LockedDisk); err != nil {
				return false, err
			}
		}
		paths, err := disks.DirectoriesOf(ctx, d.volumes)
		if err != nil || len(paths) > 0 {
			return false, err
		}
		for _, h := range d.locked {
			if err := h.DismountVolume(ctx); err != nil { // not fatal: Windows dismounts volumes when their disk goes offline
				d.staging.options.Logger.Warn("can't dismount a volume before its disk goes offline", "volume", h.id, "err", err)
			}
		}
		toFlush = maps.Clone(d.volumes)
		maps.DeleteFunc(toFlush, d.hasLocked)
	}
	err = disks.TakeOffline(ctx, d.LockedDisk, toFlush, state, offlineWritable)
	if err != nil && len(d.locked) > 0 {
		d.staging.options.Logger.Warn("unlocking volumes, since their disk doesn't go offline while they are locked",
			"disk", d.Number, "err", err)
		d.unlockInWindows()
		err = disks.TakeOffline(ctx, d.LockedDisk, toFlush, state, offlineWritable)
	}
	return !state.Offline && err == nil, err
}
