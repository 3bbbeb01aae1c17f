// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// StageVolume implements [csiproxy.StorageOperations].
func (s *Staging) StageVolume(ctx context.Context, r csiproxy.StageVolumeRequest) (
	staged csiproxy.StagedVolume, err error) {
	defer s.options.Observer.End("StageVolume", "at "+pathText("staging_path", r.StagingPath), time.Now(), &err)
	path, err := s.checkRequest(r)
	if err != nil {
		return staged, err
	}
	mounted, err := s.Volumes.CheckMountable(ctx, path) // checked again while disk and volume are locked
	if err != nil {
		return staged, err
	}
	// stagedAlready compares neither a target's sessions nor the number of a partition.
	isComparable := mounted != "" && r.Disk.ISCSI == nil && r.Partition == 0
	if isComparable && s.stagedAlready(ctx, r, path, mounted, &staged) {
		return staged, nil
	}
	if r.Disk.ISCSI != nil {
		endConnecting, err := s.connect(ctx, *r.Disk.ISCSI, r.Login)
		if err != nil {
			return staged, err
		}
		defer endConnecting()
	}
	lockedDisk, err := s.findAndLock(ctx, r.Disk, cmp.Or(r.Wait, csiproxy.DefaultWait))
	if err != nil {
		return staged, err
	}
	defer lockedDisk.Release()
	staged.Disk = lockedDisk.Number
	if err := s.checkOnDisk(ctx, lockedDisk, mounted); err != nil {
		return staged, err
	}
	err = s.whileUsable(ctx, lockedDisk, r, func(layout *win.DriveLayout, made bool) error {
		staged.Partitioned = made
		volume, extent, fileSystem, err := s.lockVolume(ctx, lockedDisk, r, layout)
		if err != nil {
			return err
		}
		defer volume.Release()
		staged.VolumeID = volume.ID
		formatted := false
		staged.FileSystem, formatted, err = s.format(ctx, lockedDisk, volume, extent, fileSystem, r)
		staged.Formatted = staged.Formatted || formatted // an earlier run of this function may have formatted
		if err != nil {
			return err
		}
		if err := s.mountAtStagingPath(ctx, lockedDisk, volume, path, r.Format.Writers); err != nil {
			return err
		}
		return s.finish(ctx, lockedDisk, volume, extent, r, &staged)
	})
	return staged, err
}

// pathText returns a path for an error, or the name of the field if the path is empty: the client may
// have misspelled the field.
func pathText(field, path string) string {
	return quote.Text(cmp.Or(path, field))
}

// checkRequest does the checks of a request that are independent of the node's state.
func (s *Staging) checkRequest(r csiproxy.StageVolumeRequest) (path pathpolicy.Path, err error) {
	if path, err = s.Volumes.ParseToMount(r.StagingPath); err != nil {
		return path, err
	}
	if r.Disk.IsZero() {
		return path, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"no disk is named: give its number, its serial number, an identifier or its iSCSI target")
	}
	if err := cmp.Or(r.Disk.Validate(), r.Format.Validate()); err != nil {
		return path, err
	}
	if t := r.Disk.ISCSI; t != nil {
		return path, s.Initiator.CheckLogin(t.Portal, t.IQN, r.Login)
	}
	return path, nil
}

// stagedAlready is StageVolume for a volume that is mounted at the path and staged exactly as
// requested. This is the usual state when kubelet repeats a request. In any other state, or after
// an error, stagedAlready returns false, and the caller does the full sequence.
func (s *Staging) stagedAlready(ctx context.Context, r csiproxy.StageVolumeRequest, path pathpolicy.Path, id csiproxy.VolumeID,
	staged *csiproxy.StagedVolume) (alreadyStaged bool) {
	lockedDisk, extent, err := s.Locks.LockDiskOf(ctx, id)
	if err != nil {
		return false
	}
	defer lockedDisk.Release()
	volume, err := lockedDisk.LockVolume(ctx, id)
	if err != nil {
		return false
	}
	defer volume.Release()
	if mounted, err := s.Volumes.MountedAtPath(ctx, path); err != nil || !mounted.Equal(id) {
		return false
	}
	if _, meant, err := s.isMeant(ctx, r.Disk, lockedDisk.Disk); err != nil || !meant {
		return false
	}
	info, formatted, err := s.Volumes.Information(ctx, id)
	if err != nil || !formatted {
		return false
	}
	if otherFileSystem(r.Format, info.FileSystem) {
		return false
	}
	staged.Disk, staged.VolumeID, staged.FileSystem = lockedDisk.Number, id, info.FileSystem
	return s.finish(ctx, lockedDisk, volume, extent, r, staged) == nil
}

// finish checks that the disk of a mounted volume still is read-only, or writable, as requested. It
// grows the volume if requested, and fills in the volume's size. finish fails for a disk that has
// gone offline, since the size is unavailable.
func (s *Staging) finish(ctx context.Context, lockedDisk *usage.LockedDisk, volume *usage.LockedVolume,
	extent win.DiskExtent, r csiproxy.StageVolumeRequest, staged *csiproxy.StagedVolume) error {
	state, err := lockedDisk.State(ctx)
	if err != nil {
		return onDisk(lockedDisk.Number, err)
	}
	if state.ReadOnly && !r.ReadOnly {
		return onDisk(lockedDisk.Number, opendisk.ChangedError("it is now read-only"))
	}
	if !state.ReadOnly && r.ReadOnly {
		return onDisk(lockedDisk.Number, opendisk.ChangedError("it is now writable"))
	}
	if r.Grow && !r.ReadOnly {
		_, err := s.grow(ctx, lockedDisk, volume.ID, extent, &staged.SizeBytes, &staged.Grown)
		return err
	}
	stats, err := s.Volumes.GetVolumeStats(ctx, volume.ID)
	staged.SizeBytes = stats.SizeBytes
	return err
}

func otherFileSystem(o csiproxy.FormatOptions, fileSystem string) bool {
	return o.FileSystem != "" && !strings.EqualFold(fileSystem, string(o.FileSystem))
}

// checkOnDisk returns an error if the volume mounted at the staging path is on another disk. If the
// volume is missing, checkOnDisk succeeds: the volume may belong to this disk, and be missing only
// because the disk is offline. Volumes.Mount compares the volumes once the disk is online.
func (s *Staging) checkOnDisk(ctx context.Context, lockedDisk *usage.LockedDisk, mounted csiproxy.VolumeID) error {
	if mounted == "" {
		return nil
	}
	extent, err := usage.Extent(ctx, s.Sys, mounted)
	if winerr.IsGone(err) {
		return nil
	}
	if err == nil && extent.DiskNumber != lockedDisk.Number {
		err = refuse(fmt.Sprintf("another volume is mounted there: %s", mounted))
	}
	return err
}

func onDisk(n csiproxy.DiskNumber, err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "disk " + n.String(), Err: err}
}

// whileUsable brings a disk online, read-only or writable as requested, and calls use with the
// disk's partition table. A writable disk without a data partition gets a data partition; made
// tells that this call made the partition. use may run several times: see [Disks.WhileOnline].
func (s *Staging) whileUsable(ctx context.Context, lockedDisk *usage.LockedDisk, r csiproxy.StageVolumeRequest,
	use func(layout *win.DriveLayout, made bool) error) error {
	before, err := lockedDisk.State(ctx)
	if err != nil {
		return onDisk(lockedDisk.Number, err)
	}
	if r.ReadOnly {
		if err := s.makeReadOnly(ctx, lockedDisk, before); err != nil {
			return onDisk(lockedDisk.Number, err)
		}
		err := s.Disks.WhileOnline(ctx, lockedDisk, before, onlineReadOnly, refuseBlank,
			func(layout *win.DriveLayout) error { return use(layout, false) })
		return onDisk(lockedDisk.Number, err)
	}
	if err := s.checkWritable(ctx, lockedDisk, before); err != nil {
		return onDisk(lockedDisk.Number, err)
	}
	return onDisk(lockedDisk.Number, s.Disks.WhilePartitioned(ctx, lockedDisk, before, onlineWritable, use))
}

// checkWritable returns an error if a disk must not become online and writable: the disk is staged
// read-only, or has foreign data.
func (s *Staging) checkWritable(ctx context.Context, lockedDisk *usage.LockedDisk, before win.DiskState) error {
	if before == onlineReadOnly {
		paths, err := s.Disks.StagedReadOnly(ctx, lockedDisk)
		if err != nil {
			return err
		}
		if len(paths) > 0 {
			return refuse("it is staged read-only at " + quote.List(paths) +
				", and can't be staged writable too; unstage it there first")
		}
	}
	_, err := s.Disks.CheckBeforeChange(ctx, lockedDisk, before)
	return err
}

// makeReadOnly makes a disk read-only before the disk goes online. When a disk goes online, Windows
// mounts its file systems at once, read-only or writable like the disk. A disk that is online and writable
// therefore goes offline first.
func (s *Staging) makeReadOnly(ctx context.Context, lockedDisk *usage.LockedDisk, before win.DiskState) error {
	if before.Offline {
		// A read-only copy can't be online beside its original: see clone.go. If Windows hides the
		// table of the offline disk, WhileOnline refuses the copy later.
		if layout, err := lockedDisk.Layout(ctx); err == nil {
			err := s.Disks.RefuseCopy(ctx, lockedDisk, layout, "stage it writable, so that Windows gives it new ids")
			if err != nil {
				return err
			}
		}
	} else if !before.ReadOnly {
		layout, err := lockedDisk.Layout(ctx)
		if err != nil {
			return err
		}
		if err := refuseBlank(layout); err != nil {
			return err
		}
		volumes, paths, err := s.Disks.Mounted(ctx, lockedDisk)
		if err != nil {
			return err
		}
		if len(paths) > 0 {
			return refuse("it is staged writable at " + quote.List(paths) +
				", and can't be staged read-only too; unstage it there first")
		}
		if err := s.Disks.TakeOffline(ctx, lockedDisk, volumes, before, offlineWritable); err != nil {
			return err
		}
	}
	if before.ReadOnly {
		return nil
	}
	err := operation.UntilReady(ctx, func() error { return lockedDisk.Verify(ctx) }, func() error {
		return lockedDisk.SetState(ctx, offlineWritable, offlineReadOnly)
	})
	if err == nil {
		s.options.Logger.Info("disk made read-only", "disk", lockedDisk.Number)
	}
	return err
}

// refuseBlank returns an error for a disk without a data partition.
func refuseBlank(layout *win.DriveLayout) error {
	if len(opendisk.DataPartitions(layout)) == 0 {
		return refuse("it has no data partition, and a disk that is staged read-only isn't partitioned")
	}
	return nil
}

// lockVolume waits for the volumes of an online disk, locks the requested volume, and brings the
// volume online. fileSystem is "" for a raw volume.
func (s *Staging) lockVolume(ctx context.Context, lockedDisk *usage.LockedDisk, r csiproxy.StageVolumeRequest,
	layout *win.DriveLayout) (_ *usage.LockedVolume, extent win.DiskExtent, fileSystem string, _ error) {
	volumes, err := s.Disks.AwaitVolumes(ctx, lockedDisk, layout, win.DiskState{ReadOnly: r.ReadOnly})
	if err != nil {
		return nil, extent, "", err
	}
	name, err := chosen(volumes, r.Partition)
	if err != nil {
		return nil, extent, "", err
	}
	volume, err := lockedDisk.LockVolume(ctx, csiproxy.VolumeID(name))
	if err != nil {
		return nil, extent, "", err
	}
	isReady := false
	defer func() { // also after a panic, which the daemon survives
		if !isReady {
			volume.Release()
		}
	}()
	if fileSystem, err = s.Disks.BringVolumeOnline(ctx, lockedDisk.Number, name); err != nil {
		return nil, extent, "", err
	}
	extent, err = usage.Extent(ctx, s.Sys, volume.ID)
	if err == nil && extent.DiskNumber != lockedDisk.Number {
		err = opendisk.ChangedError("its volume lies on another disk")
	}
	if err != nil {
		return nil, extent, "", err
	}
	isReady = true
	return volume, extent, fileSystem, nil
}

// chosen returns the volume of a partition, or the disk's only volume if partition is 0.
func chosen(volumes opendisk.Volumes, partition uint32) (name string, _ error) {
	if name, ok := volumes[partition]; ok {
		return name, nil
	}
	if partition != 0 {
		return "", csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data partition %d", partition)
	}
	if len(volumes) != 1 {
		return "", refuse(fmt.Sprintf("it has %d data partitions; choose one by its partition number", len(volumes)))
	}
	for _, only := range volumes {
		name = only
	}
	return name, nil
}

// format formats a raw volume, and returns the volume's resulting file system. fileSystem is the
// present file system, "" for a raw volume.
func (s *Staging) format(ctx context.Context, lockedDisk *usage.LockedDisk, volume *usage.LockedVolume,
	extent win.DiskExtent, fileSystem string, r csiproxy.StageVolumeRequest) (_ string, formatted bool, _ error) {
	if fileSystem == "" {
		if r.ReadOnly {
			return "", false, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
				"volume %s has no file system, and a volume that is staged read-only isn't formatted", volume.ID)
		}
		err := s.Volumes.Format(ctx, lockedDisk, volume, extent, win.FormatOptions{
			FileSystem: string(cmp.Or(r.Format.FileSystem.Canonical(), csiproxy.NTFS)),
			Label:      r.Format.Label, ClusterSize: r.Format.AllocationUnitBytes,
			NoShortNames: r.Format.NoShortNames, IntegrityStreams: r.Format.IntegrityStreams,
		}, r.Format.Writers)
		if err != nil {
			return "", false, err
		}
		formatted = true
		info, _, err := s.Volumes.Information(ctx, volume.ID)
		if err != nil {
			return "", true, err
		}
		fileSystem = info.FileSystem
	}
	if fileSystem == "" {
		return "", formatted, csiproxy.Errorf(csiproxy.ErrUnavailable, "volume %s is raw after it was formatted; try again",
			volume.ID)
	}
	if otherFileSystem(r.Format, fileSystem) {
		return "", formatted, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"volume %s has the file system %s, not %s as requested", volume.ID, fileSystem, r.Format.FileSystem)
	}
	return fileSystem, formatted, nil
}

// mountAtStagingPath mounts a volume at a staging path, and refuses a volume staged elsewhere. It
// removes the volume's drive letters.
func (s *Staging) mountAtStagingPath(ctx context.Context, lockedDisk *usage.LockedDisk, volume *usage.LockedVolume,
	path pathpolicy.Path, writers []string) error {
	mounted, err := s.Users.MountedAt(ctx, string(volume.ID))
	if err != nil {
		return err
	}
	stagedAt, err := s.Users.StagedAt(ctx, volume.ID, mounted)
	if err != nil {
		return err
	}
	isStagedHere := slices.ContainsFunc(stagedAt, func(mountPath string) bool {
		other, err := s.Volumes.Parse(mountPath)
		return err == nil && other.Equal(path)
	})
	// StageVolume never stages a volume at two paths. If the volume is staged here, its other mount points come from
	// MountVolume, and may stay.
	if len(stagedAt) > 0 && !isStagedHere {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"volume %s is staged at another path, %s; unstage it there first", volume.ID, quote.Text(stagedAt[0]))
	}
	if err := s.Volumes.Mount(ctx, lockedDisk, volume, path, writers); err != nil {
		return err
	}
	for _, mountPath := range mounted {
		if usage.IsDriveLetter(mountPath) {
			s.removeLetter(ctx, volume, mountPath)
		}
	}
	return nil
}

// removeLetter removes a drive letter of a staged volume, which needs none. A failure is only logged,
// since the letter is harmless.
func (s *Staging) removeLetter(ctx context.Context, volume *usage.LockedVolume, letter string) {
	if err := s.Sys.DeleteVolumeMountPoint(ctx, letter); err != nil {
		s.options.Logger.Warn("can't remove the drive letter that Windows gave a staged volume", "volume", volume.ID, "drive",
			letter, "err", err)
		return
	}
	s.options.Logger.Info("drive letter removed", "volume", volume.ID, "drive", letter)
}
