// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/disks"
	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/users"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// StageVolume implements [csiproxy.StorageOperations].
func (s *Staging) StageVolume(ctx context.Context, r csiproxy.StageVolumeRequest) (
	staged csiproxy.StagedVolume, err error) {
	defer s.options.Runner.Done("StageVolume", "at "+quote.Text(r.StagingPath), time.Now(), &err)
	// First the checks of the request that don't depend on the state of the node.
	path, err := s.Volumes.ParseToMount(r.StagingPath)
	if err != nil {
		return staged, err
	}
	if r.Disk.IsZero() {
		return staged, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
			"no disk is named: give its number, its serial number, an identifier or its iSCSI target")
	}
	if err := cmp.Or(r.Disk.Validate(), r.Format.Validate()); err != nil {
		return staged, err
	}
	if t := r.Disk.ISCSI; t != nil {
		if err := s.Initiator.CheckLogin(t.Portal, t.IQN, r.Login); err != nil {
			return staged, err
		}
	}
	mounted, err := s.Volumes.CheckMountable(ctx, path) // checked again once disk and volume are locked
	if err != nil {
		return staged, err
	}
	if r.Disk.ISCSI == nil && r.Partition == 0 && mounted != "" && s.stagedAlready(ctx, r, path, mounted, &staged) {
		return staged, nil
	}
	err = s.stageInFull(ctx, r, path, mounted, &staged)
	return staged, err
}

// stagedAlready is StageVolume for a volume that is mounted at the path and staged just as requested.
// That is the usual state when kubelet repeats a request. In any other state, or on an error, it
// returns false, and the caller does the full sequence.
func (s *Staging) stagedAlready(ctx context.Context, r csiproxy.StageVolumeRequest, path pathpolicy.Path, id csiproxy.VolumeID,
	staged *csiproxy.StagedVolume) (alreadyStaged bool) {
	lockedDisk, extent, err := s.Locks.LockDiskOf(ctx, id, locks.ToChange)
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
	if err != nil || !formatted || otherFileSystem(r.Format, info.FileSystem) {
		return false
	}
	staged.Disk, staged.VolumeID, staged.FileSystem = lockedDisk.Number, id, info.FileSystem
	return s.finish(ctx, lockedDisk, volume, extent, r, staged) == nil
}

// finish returns an error unless the disk of a mounted volume is read-only or writable, as requested.
// It grows the volume if that is requested, and fills in its size. A disk that has gone offline gives
// no size, so finish fails for it.
func (s *Staging) finish(ctx context.Context, lockedDisk *locks.LockedDisk, volume *locks.LockedVolume,
	extent win.DiskExtent, r csiproxy.StageVolumeRequest, staged *csiproxy.StagedVolume) error {
	state, err := lockedDisk.State(ctx)
	switch {
	case err != nil:
		return onDisk(lockedDisk.Number, err)
	case state.ReadOnly != r.ReadOnly:
		return onDisk(lockedDisk.Number, opendisk.ErrChanged("it was made read-only, or writable, after it was prepared"))
	case r.Grow && !r.ReadOnly:
		return s.grow(ctx, lockedDisk, volume.ID, extent, &staged.SizeBytes, &staged.Grown)
	}
	stats, err := s.Volumes.GetVolumeStats(ctx, volume.ID)
	staged.SizeBytes = stats.SizeBytes
	return err
}

func otherFileSystem(o csiproxy.FormatOptions, fileSystem string) bool {
	return o.FileSystem != "" && !strings.EqualFold(fileSystem, string(o.FileSystem))
}

// stageInFull is StageVolume for a volume that isn't staged, or not as the request asks for. mounted is what was
// mounted at the path.
func (s *Staging) stageInFull(ctx context.Context, r csiproxy.StageVolumeRequest, path pathpolicy.Path, mounted csiproxy.VolumeID,
	staged *csiproxy.StagedVolume) error {
	if r.Disk.ISCSI != nil {
		endConnecting, err := s.connect(ctx, *r.Disk.ISCSI, r.Login)
		if err != nil {
			return err
		}
		defer endConnecting()
	}
	lockedDisk, err := s.take(ctx, r.Disk, cmp.Or(r.Wait, csiproxy.DefaultWait), locks.ToChange)
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	staged.Disk = lockedDisk.Number
	if err := s.checkOnDisk(ctx, lockedDisk, mounted); err != nil {
		return err
	}
	before, err := lockedDisk.State(ctx)
	if err != nil {
		return onDisk(lockedDisk.Number, err)
	}
	for again, state := false, before; ; again = true {
		id, made, err := s.prepare(ctx, lockedDisk, r, state)
		staged.VolumeID, staged.Partitioned = id, staged.Partitioned || made
		if err != nil {
			err = onDisk(lockedDisk.Number, err)
		} else {
			err = s.stagePrepared(ctx, lockedDisk, r, path, staged)
		}
		if disks.IsRefusal(err) {
			s.Disks.PutBack(ctx, lockedDisk, before)
			return err
		}
		if err == nil {
			return nil
		}
		// Windows may take a disk that has just arrived offline again, also after its volumes came.
		var stateErr error
		if state, stateErr = lockedDisk.State(ctx); stateErr != nil || !state.Offline {
			return err
		}
		if again {
			return onDisk(lockedDisk.Number, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
				Detail: "it went offline again while it was staged; try again later"})
		}
		s.options.Logger.Info("disk went offline again while it was staged", "disk", lockedDisk.Number, "err", err)
	}
}

// checkOnDisk returns an error if a volume, mounted where one of the disk is to be staged, is on another disk. A volume
// that isn't there may be this disk's, which is offline, and is compared when it has come.
func (s *Staging) checkOnDisk(ctx context.Context, lockedDisk *locks.LockedDisk, mounted csiproxy.VolumeID) error {
	if mounted == "" {
		return nil
	}
	extent, err := users.Extent(ctx, s.Sys, mounted)
	switch {
	case winerr.IsGone(err):
		return nil
	case err == nil && extent.DiskNumber != lockedDisk.Number:
		err = refuse(fmt.Sprintf("another volume is mounted there: %s", mounted))
	}
	return err
}

// stagePrepared formats, mounts and measures the volume that prepare has found.
func (s *Staging) stagePrepared(ctx context.Context, lockedDisk *locks.LockedDisk, r csiproxy.StageVolumeRequest,
	path pathpolicy.Path, staged *csiproxy.StagedVolume) error {
	// The volume's id says which one is meant: no other disk has it.
	volume, err := lockedDisk.LockVolume(ctx, staged.VolumeID)
	if err != nil {
		return err
	}
	defer volume.Release()
	extent, err := users.Extent(ctx, s.Sys, volume.ID)
	if err == nil && extent.DiskNumber != lockedDisk.Number {
		err = opendisk.ErrChanged("its volume lies on another disk")
	}
	if err != nil {
		return err
	}
	fileSystem, formatted, err := s.format(ctx, lockedDisk, volume, extent, r)
	staged.FileSystem, staged.Formatted = fileSystem, staged.Formatted || formatted
	if err != nil {
		return err
	}
	if err := s.mount(ctx, lockedDisk, volume, path, r.Format.Writers); err != nil {
		return err
	}
	return s.finish(ctx, lockedDisk, volume, extent, r, staged)
}

func onDisk(n csiproxy.DiskNumber, err error) error {
	return &csiproxy.Error{Object: "disk " + n.String(), Err: err}
}

// prepare brings a disk in a state online, makes a data partition if there is none, and
// returns the volume of the data partition, ready for use. made says whether prepare has made the
// partition.
func (s *Staging) prepare(ctx context.Context, lockedDisk *locks.LockedDisk, r csiproxy.StageVolumeRequest,
	state device.State) (id csiproxy.VolumeID, made bool, err error) {
	if r.ReadOnly {
		err = s.makeReadOnly(ctx, lockedDisk, state)
	} else {
		made, err = s.makeWritable(ctx, lockedDisk, state)
	}
	if err != nil {
		return "", made, err
	}
	volumes, err := s.Disks.AwaitVolumes(ctx, lockedDisk, device.State{ReadOnly: r.ReadOnly})
	if err != nil {
		return "", made, err
	}
	for number, name := range volumes {
		if number == r.Partition || r.Partition == 0 && len(volumes) == 1 {
			return csiproxy.VolumeID(name), made, s.Disks.BringVolumeOnline(ctx, lockedDisk.Number, name)
		}
	}
	if r.Partition != 0 {
		return "", made, csiproxy.Errorf(csiproxy.ErrNotFound, "it has no data partition %d", r.Partition)
	}
	return "", made, refuse(fmt.Sprintf("it has %d data partitions; choose one by its partition number", len(volumes)))
}

// makeWritable brings a disk online writable, and makes a data partition if there is none. It returns
// an error if the disk is staged read-only.
func (s *Staging) makeWritable(ctx context.Context, lockedDisk *locks.LockedDisk, before device.State) (
	made bool, _ error) {
	if before.ReadOnly && !before.Offline {
		paths, err := s.Disks.StagedReadOnly(ctx, lockedDisk)
		if err != nil {
			return false, err
		}
		if len(paths) > 0 {
			return false, refuse("it is staged read-only at " + quote.List(paths) +
				", and can't be staged writable too; unstage it there first")
		}
	}
	made, err := s.Disks.EnsurePartition(ctx, lockedDisk, before)
	if err != nil || made {
		return made, err
	}
	return false, s.Disks.BringOnline(ctx, lockedDisk, device.State{})
}

// makeReadOnly brings a disk with a data partition online read-only. Windows mounts a file system
// read-only only if the disk is read-only before. So a disk that is online and writable goes offline
// first.
func (s *Staging) makeReadOnly(ctx context.Context, lockedDisk *locks.LockedDisk, before device.State) error {
	hasPartition := func() error {
		layout, err := lockedDisk.Layout(ctx)
		if err == nil && len(opendisk.DataPartitions(layout)) == 0 {
			err = refuse("it has no data partition, and a disk that is staged read-only isn't partitioned")
		}
		return err
	}
	switch before {
	case device.State{ReadOnly: true}:
		return hasPartition()
	case device.State{}:
		if err := hasPartition(); err != nil {
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
		if err := s.Disks.TakeOffline(ctx, lockedDisk, volumes, before, device.State{Offline: true}); err != nil {
			return err
		}
	default:
		// A copy gets new ids only if it is writable. If the disk shows no table, Windows will keep it offline.
		if layout, err := lockedDisk.Layout(ctx); err == nil {
			err := s.Disks.RefuseCopy(ctx, lockedDisk, layout, "stage it writable, so that Windows gives it new ids")
			if err != nil {
				return err
			}
		}
	}
	if !before.ReadOnly {
		if err := lockedDisk.Verify(ctx); err != nil {
			return err
		}
		if err := lockedDisk.SetState(ctx, device.State{Offline: true}, device.State{Offline: true, ReadOnly: true}); err != nil {
			return err
		}
		s.options.Logger.Info("disk made read-only", "disk", lockedDisk.Number)
	}
	return s.Disks.GoOnline(ctx, lockedDisk, before, device.State{ReadOnly: true}, hasPartition)
}

func refuse(reason string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: reason}
}

// format formats a volume if it is raw, and returns its file system.
func (s *Staging) format(ctx context.Context, lockedDisk *locks.LockedDisk, volume *locks.LockedVolume,
	extent win.DiskExtent, r csiproxy.StageVolumeRequest) (fileSystem string, formatted bool, err error) {
	info, hasOne, err := s.Volumes.Information(ctx, volume.ID)
	if err != nil {
		return "", false, err
	}
	if !hasOne {
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
		if info, _, err = s.Volumes.Information(ctx, volume.ID); err != nil {
			return "", true, err
		}
	}
	switch {
	case info.FileSystem == "":
		return "", formatted, csiproxy.Errorf(csiproxy.ErrUnavailable, "volume %s is raw after it was formatted; try again",
			volume.ID)
	case otherFileSystem(r.Format, info.FileSystem):
		return "", formatted, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"volume %s has the file system %s, not %s as requested", volume.ID, info.FileSystem, r.Format.FileSystem)
	}
	return info.FileSystem, formatted, nil
}

// mount mounts a volume at a staging path, unless it is staged at another one. If Windows has given
// the volume a drive letter, mount removes that.
func (s *Staging) mount(ctx context.Context, lockedDisk *locks.LockedDisk, volume *locks.LockedVolume, path pathpolicy.Path,
	writers []string) error {
	mounted, err := s.Users.MountedAt(ctx, string(volume.ID))
	if err != nil {
		return err
	}
	elsewhere, err := s.Users.Allowed(ctx, mounted)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(elsewhere, func(mountPath string) bool {
		other, err := s.Volumes.Parse(mountPath)
		return err == nil && other.Equal(path)
	}) {
		elsewhere = nil // MountVolume has mounted it there, too
	}
	if len(elsewhere) > 0 {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"volume %s is staged at another path, %s; unstage it there first", volume.ID, quote.Text(elsewhere[0]))
	}
	if err := s.Volumes.Mount(ctx, lockedDisk, volume, path, writers); err != nil {
		return err
	}
	for _, letter := range mounted {
		if len(users.Directories([]string{letter})) == 0 {
			s.removeLetter(ctx, volume, letter)
		}
	}
	return nil
}

// removeLetter removes a drive letter of a volume, so that the volume has its path only. If that
// fails, the letter does no harm, so the failure is only logged.
func (s *Staging) removeLetter(ctx context.Context, volume *locks.LockedVolume, letter string) {
	if err := s.Sys.DeleteVolumeMountPoint(ctx, letter); err != nil {
		s.options.Logger.Warn("a staged volume keeps the drive letter that Windows gave it", "volume", volume.ID, "drive",
			letter, "err", err)
		return
	}
	s.options.Logger.Info("drive letter taken away", "volume", volume.ID, "drive", letter)
}
