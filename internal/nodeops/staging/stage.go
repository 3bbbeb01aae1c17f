// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// StageVolume implements [storage.Operations].
func (s *Staging) StageVolume(ctx context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	return operation.Get(ctx, s.options.Runner, "StageVolume", "at "+quote.Text(r.StagingPath), func(ctx context.Context) (storage.StagedVolume, error) {
		if err := s.checkStage(r); err != nil {
			return storage.StagedVolume{}, err
		}
		// The operations that it is made of run on this goroutine.
		return s.stage(systemdisk.Once(operation.Inline(ctx)), r)
	})
}

// checkStage finds out what is wrong with a request in any state of the node, before
// anything is done.
func (s *Staging) checkStage(r storage.StageVolumeRequest) error {
	if err := s.Volumes.CheckPath(r.StagingPath); err != nil {
		return err
	}
	if r.Disk.IsZero() {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "no disk is named")
	}
	if err := r.Disk.Validate(); err != nil {
		return err
	}
	if r.Disk.ISCSI != nil {
		if err := s.Initiator.CheckLogin(r.Disk.ISCSI.Portal, r.Disk.ISCSI.IQN, r.Login); err != nil {
			return err
		}
	}
	return r.Format.Validate()
}

// alreadyStaged reports whether a volume is staged just as a request asks for, which is so
// whenever kubelet repeats it. Whatever else it finds, also an error, is for the whole way to
// see to.
func (s *Staging) alreadyStaged(ctx context.Context, r storage.StageVolumeRequest) (staged storage.StagedVolume, _ bool) {
	if r.Disk.ISCSI != nil || r.Partition != 0 {
		return staged, false
	}
	id, err := s.Volumes.Staged(ctx, r.StagingPath)
	if err != nil || id == "" {
		return staged, false
	}
	err = s.Volumes.OnDisk(ctx, id, func(h *device.Disk) error {
		staged.Disk = h.Number
		if err := s.meant(r.Disk)(ctx, h); err != nil {
			return err
		}
		attributes, err := h.Attributes(ctx)
		if err == nil && (attributes&win.DiskReadOnly != 0) != r.ReadOnly {
			err = device.ErrChanged("it is writable, or isn't")
		}
		return err
	})
	if err != nil {
		return staged, false
	}
	staged.VolumeID = id
	staged.FileSystem, err = s.Volumes.FileSystem(ctx, id)
	same := r.Format.FileSystem == "" || strings.EqualFold(staged.FileSystem, string(r.Format.FileSystem))
	return staged, err == nil && staged.FileSystem != "" && same
}

func (s *Staging) stage(ctx context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	staged, done := s.alreadyStaged(ctx, r)
	if !done {
		var err error
		if staged, err = s.stageAnew(ctx, r); err != nil {
			return staged, err
		}
	}
	before, err := s.Volumes.GetVolumeStats(ctx, staged.VolumeID)
	if err != nil {
		return staged, err
	}
	staged.SizeBytes = before.SizeBytes
	if r.Grow && !r.ReadOnly && !staged.Partitioned {
		staged.SizeBytes, err = s.grow(ctx, staged.VolumeID)
		staged.Grown = staged.SizeBytes > before.SizeBytes
	}
	return staged, err
}

// stageAnew is stage without the growth, for a volume that isn't staged.
func (s *Staging) stageAnew(ctx context.Context, r storage.StageVolumeRequest) (storage.StagedVolume, error) {
	var staged storage.StagedVolume
	if t := r.Disk.ISCSI; t != nil {
		done, err := s.keepConnected(ctx, t.IQN)
		if err != nil {
			return staged, err
		}
		defer done()
		if err := s.Initiator.AddTargetPortal(ctx, t.Portal); err != nil {
			return staged, err
		}
		if err := s.Initiator.Connect(ctx, t.Portal, t.IQN, r.Login); err != nil {
			return staged, err
		}
	}
	n, err := s.find(ctx, r.Disk, waiting(r.Wait))
	if err != nil {
		return staged, err
	}
	staged.Disk = n
	staged.VolumeID, staged.Partitioned, err = s.Disks.Prepare(ctx, n, disks.Preparation{
		Meant: s.meant(r.Disk), Partition: r.Partition, ReadOnly: r.ReadOnly,
		NewIDsForClones: r.NewIDsForClones || s.options.NewIDsForClones,
	})
	if err != nil {
		return staged, &csiproxy.Error{Object: "disk " + n.String(), Err: err}
	}
	// From here on, the volume's id says which one is meant: no other disk has it.
	if staged.FileSystem, staged.Formatted, err = s.format(ctx, staged.VolumeID, r); err != nil {
		return staged, err
	}
	return staged, s.mount(ctx, staged.VolumeID, r.StagingPath)
}

// waiting returns how long to wait, from a request that says so.
func waiting(wait time.Duration) time.Duration {
	if wait == 0 {
		return storage.DefaultWait
	}
	return wait
}

// format formats a volume if it is raw, and returns its file system.
func (s *Staging) format(ctx context.Context, id volume.ID, r storage.StageVolumeRequest) (fileSystem string, formatted bool, _ error) {
	for {
		fileSystem, err := s.Volumes.FileSystem(ctx, id)
		switch {
		case err != nil:
			return "", false, err
		case fileSystem != "" && r.Format.FileSystem != "" && !strings.EqualFold(fileSystem, string(r.Format.FileSystem)):
			return "", false, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "volume %s has the file system %s, and %s is asked for", id, fileSystem, r.Format.FileSystem)
		case fileSystem != "":
			return fileSystem, formatted, nil
		case formatted:
			return "", false, csiproxy.Errorf(csiproxy.ErrUnavailable, "volume %s is raw after it was formatted; try again", id)
		case r.ReadOnly:
			return "", false, csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "volume %s has no file system, and read-only is asked for", id)
		}
		err = s.Volumes.FormatRaw(ctx, id, formatOptions(r.Format))
		if csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
			// Another call may have formatted it meanwhile.
			if now, lookErr := s.Volumes.FileSystem(ctx, id); lookErr == nil && now != "" {
				continue
			}
		}
		if err != nil {
			return "", false, err
		}
		formatted = true
	}
}

func formatOptions(o storage.FormatOptions) win.FormatOptions {
	if o.FileSystem = o.FileSystem.Canonical(); o.FileSystem == "" {
		o.FileSystem = storage.NTFS
	}
	return win.FormatOptions{
		FileSystem: string(o.FileSystem), Label: o.Label, ClusterSize: o.AllocationUnitBytes,
		NoShortNames: o.NoShortNames, IntegrityStreams: o.IntegrityStreams,
	}
}

// mount mounts a volume at a staging path, unless it is staged at another one.
func (s *Staging) mount(ctx context.Context, id volume.ID, path string) error {
	mounted, err := s.Volumes.MountedAt(ctx, id)
	if err != nil {
		return err
	}
	for _, at := range mounted {
		if other := s.Volumes.CheckPath(at) == nil && !s.Volumes.SamePath(at, path); other {
			return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "volume %s is staged at another path, %s", id, quote.Text(at))
		}
	}
	return s.Volumes.MountVolume(ctx, id, path)
}

// grow grows a volume as far as its disk allows, and returns its size.
func (s *Staging) grow(ctx context.Context, id volume.ID) (int64, error) {
	if err := s.Volumes.ResizeVolume(ctx, id, 0); err != nil {
		return 0, err
	}
	now, err := s.Volumes.GetVolumeStats(ctx, id)
	return now.SizeBytes, err
}

// UnstageVolume implements [storage.Operations].
func (s *Staging) UnstageVolume(ctx context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	return operation.Get(ctx, s.options.Runner, "UnstageVolume", "at "+quote.Text(r.StagingPath), func(ctx context.Context) (storage.UnstagedVolume, error) {
		if err := s.Volumes.CheckPath(r.StagingPath); err != nil {
			return storage.UnstagedVolume{}, err
		}
		if err := r.Disk.Validate(); err != nil {
			return storage.UnstagedVolume{}, err
		}
		return s.unstage(systemdisk.Once(operation.Inline(ctx)), r)
	})
}

// unstage unstages the volume or share that is staged at a path, or only the disk that the
// request names.
func (s *Staging) unstage(ctx context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	remote, isShare, err := s.Mappings.StagedAt(ctx, r.StagingPath)
	switch {
	case err != nil:
		return storage.UnstagedVolume{}, err
	case isShare && r.Disk.IsZero():
		done, err := s.Mappings.Unstage(ctx, r.StagingPath, remote)
		return storage.UnstagedVolume{Unmounted: done.Unlinked, Unmapped: done.Unmapped}, err
	}
	return s.unstageDisk(ctx, r, isShare)
}

// errOtherDisk says that the volume at a path is on another disk than the one that is to be
// unstaged, which isn't staged there.
var errOtherDisk = errors.New("the volume that is mounted there is on another disk")

// unstageDisk unstages the volume of a disk. If something else is at the path, as elsewhere
// says, that stays, and no volume is mounted there.
func (s *Staging) unstageDisk(ctx context.Context, r storage.UnstageVolumeRequest, elsewhere bool) (done storage.UnstagedVolume, err error) {
	var target iscsi.IQN // that provides the disk; "" if none does
	if r.Disk.ISCSI != nil {
		target = r.Disk.ISCSI.IQN
	}
	retire := func(ctx context.Context, h *use.Disk) error {
		one, err := s.targetOf(ctx, h.Disk)
		if err != nil {
			return err
		}
		target = cmp.Or(one, target)
		done.DiskOffline, err = s.Disks.Retire(ctx, h)
		return err
	}
	// A sick disk that doesn't tell what it is must not keep its volume mounted for ever.
	check := func(ctx context.Context, h *device.Disk) error {
		if r.Disk.IsZero() {
			return nil
		}
		if d, err := s.ask(ctx, r.Disk, h); err == nil && isAnother(r.Disk, d) {
			return errOtherDisk
		}
		return ctx.Err()
	}
	if !elsewhere {
		done.Unmounted, err = s.Volumes.Unstage(ctx, r.StagingPath, r.Force, check, retire)
	}
	if errors.Is(err, errOtherDisk) {
		err = nil
	}
	if err != nil {
		return done, err
	}
	if !done.Unmounted && !r.Disk.IsZero() {
		n, err := s.find(ctx, r.Disk, 0)
		switch {
		case err == nil:
			done.DiskOffline, err = s.Disks.RetireDisk(ctx, n, s.meant(r.Disk))
			if err != nil && !isNotFound(err) {
				return done, err
			}
		case !isNotFound(err):
			return done, err
		}
	}
	if target != "" {
		done.LoggedOut, err = s.logOut(ctx, target)
	}
	return done, err
}

// targetOf returns the target that provides an open disk; "" if none does. A disk that
// doesn't tell its bus may be one of a target.
func (s *Staging) targetOf(ctx context.Context, h *device.Disk) (iscsi.IQN, error) {
	d, err := s.Disks.HardwareOf(ctx, h, storage.Selector{})
	if err != nil || d.Bus != storage.BusISCSI && d.Bus != "" {
		return "", err
	}
	luns, err := s.Initiator.LUNs(ctx)
	return luns[h.Number].IQN, err
}

// keepConnected keeps logOut from a target until done is called: nobody must log out while
// the target's disk is being staged, which isn't online yet. It waits for a logout that is
// under way.
func (s *Staging) keepConnected(ctx context.Context, target iscsi.IQN) (done func(), _ error) {
	key := strings.ToLower(string(target))
	unlock, err := s.targets.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.count(key, 1)
	return func() { s.count(key, -1) }, nil
}

// count adds to the number of disks of a target that are being staged, and returns it.
func (s *Staging) count(key string, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.connecting[key] + n
	if s.connecting[key] = now; now == 0 {
		delete(s.connecting, key)
	}
	return now
}

// logOut logs out of a target if none of its disks is online or being staged, and reports
// whether it has.
func (s *Staging) logOut(ctx context.Context, target iscsi.IQN) (bool, error) {
	key := strings.ToLower(string(target))
	unlock, err := s.targets.Lock(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	if s.count(key, 0) > 0 {
		return false, nil
	}
	luns, err := s.Initiator.LUNs(ctx)
	if err != nil {
		return false, err
	}
	for n, lun := range luns {
		if !lun.IQN.Equal(target) {
			continue
		}
		online, err := s.Disks.GetDiskState(ctx, n)
		if isNotFound(err) {
			continue
		}
		if err != nil || online {
			return false, err
		}
	}
	return s.Initiator.LogOut(ctx, target)
}

// ExpandVolume implements [storage.Operations].
func (s *Staging) ExpandVolume(ctx context.Context, r storage.ExpandVolumeRequest) (storage.ExpandedVolume, error) {
	return operation.Get(ctx, s.options.Runner, "ExpandVolume", "at "+quote.Text(r.Path), func(ctx context.Context) (storage.ExpandedVolume, error) {
		if r.DiskSizeBytes < 0 {
			return storage.ExpandedVolume{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the size %d is negative", r.DiskSizeBytes)
		}
		return s.expand(systemdisk.Once(operation.Inline(ctx)), r)
	})
}

func (s *Staging) expand(ctx context.Context, r storage.ExpandVolumeRequest) (done storage.ExpandedVolume, _ error) {
	id, err := s.Volumes.GetVolumeIDFromTargetPath(ctx, r.Path)
	if err != nil {
		return done, err
	}
	before, err := s.Volumes.GetVolumeStats(ctx, id)
	if err != nil {
		return done, err
	}
	var rescan time.Time
	interval := firstRescan
	patience := waiting(r.Wait)
	grown, err := operation.Poll(ctx, operation.Polling{Patience: max(patience, 0), First: 50 * time.Millisecond}, func() (bool, error) {
		if done.SizeBytes, err = s.grow(ctx, id); err != nil {
			return false, err
		}
		// That Windows has read the disk's size anew is part of growing.
		if done.DiskSizeBytes, err = s.Volumes.DiskBytes(ctx, id); err != nil || done.DiskSizeBytes >= r.DiskSizeBytes || patience < 0 {
			return done.DiskSizeBytes >= r.DiskSizeBytes, err
		}
		if now := time.Now(); !now.Before(rescan) {
			rescan, interval = now.Add(interval), 2*interval
			err = s.Disks.Rescan(ctx)
		}
		return false, err
	})
	done.Grown = done.SizeBytes > before.SizeBytes
	switch {
	case ctx.Err() != nil:
		return done, fmt.Errorf("while waiting for the disk to have %d bytes; it has %d: %w", r.DiskSizeBytes, done.DiskSizeBytes, ctx.Err())
	case err == nil && !grown:
		err = csiproxy.Errorf(csiproxy.ErrUnavailable, "the disk has %d bytes after %v, and not the %d that are asked for; try again later",
			done.DiskSizeBytes, max(patience, 0), r.DiskSizeBytes)
	}
	return done, err
}
