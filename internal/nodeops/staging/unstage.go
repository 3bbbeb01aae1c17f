// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/volumes"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// UnstageVolume implements [storage.Operations].
func (s *Staging) UnstageVolume(ctx context.Context, r storage.UnstageVolumeRequest) (storage.UnstagedVolume, error) {
	return operation.Get(ctx, s.options.Runner, "UnstageVolume", "at "+quote.Text(r.StagingPath),
		func(ctx context.Context) (storage.UnstagedVolume, error) {
			path, err := s.Volumes.Parse(r.StagingPath)
			if err == nil {
				err = r.Disk.Validate()
			}
			if err != nil {
				return storage.UnstagedVolume{}, err
			}
			done, err := s.unstage(systemdisk.Once(operation.Inline(ctx)), r, path)
			s.noteUnstaged(path, err)
			return done, err
		})
}

// refusedFor is how long a refusal to unstage counts. Kubelet asks again within two minutes.
const refusedFor = 10 * time.Minute

// noteUnstaged remembers whether a path was refused to be unstaged.
func (s *Staging) noteUnstaged(path pathpolicy.Path, err error) {
	key := winname.Lower(path.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetRefusedLocked()
	delete(s.refused, key)
	if csiproxy.KindOf(err) == csiproxy.ErrFailedPrecondition {
		s.refused[key] = time.Now()
	}
}

func (s *Staging) forgetRefusedLocked() {
	maps.DeleteFunc(s.refused, func(_ string, at time.Time) bool { return time.Since(at) > refusedFor })
}

// RefusedUnstages returns at how many paths UnstageVolume was refused lately, mostly since
// something uses the volume, and hasn't succeeded since.
func (s *Staging) RefusedUnstages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetRefusedLocked()
	return len(s.refused)
}

// unstage unstages the volume or share that is staged at a path, or only the disk that the
// request names.
func (s *Staging) unstage(ctx context.Context, r storage.UnstageVolumeRequest,
	path pathpolicy.Path) (done storage.UnstagedVolume, _ error) {
	at, err := s.Paths.Glance(ctx, s.Sys, path) // looked at again with the right to the volume
	mounted := volume.ID(at.Volume)
	var remote unc.Path
	isShare := false
	if err == nil && mounted == "" {
		remote, isShare, err = s.stagedAt(ctx, path, acceptOther)
	}
	switch {
	case err != nil:
		return done, err
	case isShare && r.Disk.IsZero():
		one, err := s.unstageShare(ctx, unstaging{local: path, remote: remote, force: r.Force})
		return storage.UnstagedVolume{Unmounted: one.Unlinked, Unmapped: one.Unmapped}, err
	}
	var target iscsi.IQN // that provides the disk; "" if none does
	if !isShare && mounted == "" {
		mounted, err = s.Volumes.MountedAtPath(ctx, path) // it may be something that is no mount point
	}
	if err == nil && mounted != "" {
		target, err = s.unstageUnused(ctx, r, path, mounted, &done)
	}
	if err != nil {
		return done, err
	}
	if !done.Unmounted && !r.Disk.IsZero() {
		if err := s.retireNamed(ctx, r.Disk, &done); err != nil {
			return done, err
		}
		if err := s.checkNotStaged(ctx, path, mounted, isShare); err != nil {
			return done, err
		}
	}
	if !done.Unmounted && !isShare { // who has unmounted the volume may have died before this
		if err := s.removeStagingDirectory(ctx, path); err != nil {
			return done, err
		}
	}
	if r.Disk.ISCSI != nil {
		target = cmp.Or(target, r.Disk.ISCSI.IQN)
	}
	if target != "" {
		done.LoggedOut, err = s.logOut(ctx, target)
	}
	return done, err
}

// checkNotStaged refuses to say that nothing is staged at a path if a volume was mounted there
// since the call began, when mounted was.
func (s *Staging) checkNotStaged(ctx context.Context, path pathpolicy.Path, mounted volume.ID, isShare bool) error {
	if isShare {
		return nil
	}
	now, err := s.Volumes.MountedAtPath(ctx, path)
	if err == nil && now != "" && !now.Equal(mounted) {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable, "volume %s was mounted there by another call meanwhile; try again",
			now)
	}
	return err
}

// How long to wait for those who use a volume for a moment, as virus scanners do, and how
// often to look: rarely in the end, since each look writes the volume out and locks it.
const (
	usePatience = 15 * time.Second
	useInterval = 200 * time.Millisecond
	useLongest  = 5 * time.Second
)

// unstageUnused is unstageVolume, again and again while somebody uses the volume, but for half
// the time that the caller has. No right is held between two attempts, so other calls on the
// disk and the volume go on.
func (s *Staging) unstageUnused(
	ctx context.Context, r storage.UnstageVolumeRequest, path pathpolicy.Path, id volume.ID, done *storage.UnstagedVolume,
) (target iscsi.IQN, err error) {
	polling := operation.Polling{Patience: usePatience, First: useInterval, Longest: useLongest}
	if deadline, ok := ctx.Deadline(); ok {
		polling.Patience = min(polling.Patience, time.Until(deadline)/2)
	}
	_, ended := operation.Poll(ctx, polling, func() (bool, error) {
		target, err = s.unstageVolume(ctx, r, path, id, done)
		return !volumes.IsInUse(err), nil
	})
	switch {
	case !volumes.IsInUse(err):
		return target, err
	case ended != nil:
		return "", fmt.Errorf("%w: %w", ended, err)
	}
	return "", s.Volumes.InUse(ctx, id, err)
}

// unstageVolume unmounts the volume id, which is mounted at a path, takes its disk offline,
// and returns the target that provides the disk. A volume of another disk than the one that
// the request names stays.
func (s *Staging) unstageVolume(
	ctx context.Context, r storage.UnstageVolumeRequest, path pathpolicy.Path, id volume.ID, done *storage.UnstagedVolume,
) (target iscsi.IQN, _ error) {
	ctx, d, _, err := s.Owner.DiskOf(ctx, id)
	if win.IsGone(err) {
		return "", s.unstageAway(ctx, r, id, path, err, done)
	}
	if err != nil {
		return "", err
	}
	defer d.Release()
	if meant, err := s.mayBeMeant(ctx, r.Disk, d); err != nil || !meant {
		return "", meanwhileGone(err)
	}
	ctx, right, err := s.Owner.Volume(ctx, id)
	if err != nil {
		return "", err
	}
	defer right.Release()
	if still, err := s.isStillMounted(ctx, right, path); err != nil || !still {
		return "", err
	}
	if !r.Force {
		if err := s.checkUnpublished(ctx, right, ""); err != nil {
			return "", err
		}
	}
	if err := s.Volumes.UnmountUnused(ctx, right, path, r.Force); err != nil {
		return "", meanwhileGone(err)
	}
	done.Unmounted = true
	// A repeated call can't know the disk any more, so that comes first if both fail.
	removeErr := s.removeStagingDirectory(ctx, path)
	if target, err = s.targetOf(ctx, d.Disk); err == nil {
		done.DiskOffline, err = s.retire(ctx, d)
	}
	return target, meanwhileGone(cmp.Or(err, removeErr))
}

// isStillMounted reports whether a volume is mounted at a path once the right to it is there:
// who had the right before may have unmounted it.
func (s *Staging) isStillMounted(ctx context.Context, right *use.Volume, path pathpolicy.Path) (bool, error) {
	now, err := s.Paths.Glance(ctx, s.Sys, path) // Unmount looks at it again, with the directories held
	return right.ID.Equal(volume.ID(now.Volume)), err
}

// removeStagingDirectory removes the directory that was the mount point, if it is empty. What
// a pod still writes through its link fails then, and doesn't land on the node's disk.
func (s *Staging) removeStagingDirectory(ctx context.Context, path pathpolicy.Path) error {
	err := s.Paths.Reach(ctx, s.Sys, path, func(e pathpolicy.Entry) error {
		_, err := s.Files.RemoveEmpty(ctx, e)
		return err
	})
	if pathpolicy.Missing(err) || errors.Is(err, win.ErrorDirNotEmpty) {
		return nil
	}
	return err
}

// meanwhileGone gives a class to an error that says that a disk isn't there, which comes in
// the midst of a call: a repeated call finds out whether that is so.
func meanwhileGone(err error) error {
	if !win.IsGone(err) {
		return err
	}
	return &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
		Detail: "the disk does not answer, or has left the node during the call; try again", Err: err}
}

// unstageAway unmounts a volume that isn't there, without writing anything out: its pods must
// be able to end. why is the error that says so, which alone proves nothing. A disk that the
// request names and that is online doesn't have the volume.
func (s *Staging) unstageAway(ctx context.Context, r storage.UnstageVolumeRequest, id volume.ID, path pathpolicy.Path,
	why error, done *storage.UnstagedVolume) error {
	if !r.Disk.IsZero() {
		inside, d, err := s.named(ctx, r.Disk)
		if err != nil {
			return meanwhileGone(err)
		}
		if d != nil {
			defer d.Release()
			if isOther, err := s.isOnlineWithout(inside, d, id); err != nil || isOther {
				return meanwhileGone(err)
			}
		}
		ctx = inside
	}
	ctx, right, err := s.Owner.Volume(ctx, id)
	if err != nil {
		return err
	}
	defer right.Release()
	if still, err := s.isStillMounted(ctx, right, path); err != nil || !still {
		return err
	}
	away, err := s.Owner.Away(ctx, id)
	if err == nil && !away {
		err = why
	}
	if err != nil {
		return meanwhileGone(err)
	}
	err = s.Volumes.Unmount(ctx, right, path, func(context.Context) error {
		s.options.Logger.Warn("a volume that is away is unmounted without a flush", "volume", id, "err", why)
		return nil
	})
	done.Unmounted = err == nil
	if err == nil {
		err = s.removeStagingDirectory(ctx, path)
	}
	return err
}

// isOnlineWithout reports whether a disk is online and doesn't have a volume. One that has just
// come online, and has its volumes not yet, is waited for.
func (s *Staging) isOnlineWithout(ctx context.Context, d *use.Disk, id volume.ID) (bool, error) {
	attributes, err := d.Attributes(ctx)
	if err != nil || attributes&win.DiskOffline != 0 {
		return false, err
	}
	volumes, err := s.Disks.AwaitVolumes(ctx, d, 0, false)
	if err != nil {
		return false, err
	}
	for _, name := range volumes {
		if id.Equal(volume.ID(name)) {
			return false, nil
		}
	}
	return true, nil
}

// mayBeMeant reports whether an open disk may be the one that a request names. One that
// doesn't tell what the request asks for, since it is sick, may be, unless another disk is: it
// mustn't keep its volume mounted for ever.
func (s *Staging) mayBeMeant(ctx context.Context, wanted storage.Selector, d *use.Disk) (bool, error) {
	if wanted.IsZero() {
		return true, nil
	}
	said, meant, err := s.isMeant(ctx, wanted, d.Disk)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case meant:
		return true, nil
	case err == nil && isAnother(wanted, said):
		return false, nil
	}
	n, err := s.find(ctx, wanted, 0)
	if isMissing(err) {
		return true, nil
	}
	return n == d.Number, err
}

// retireNamed takes the disk that a request names offline, if it is in the node.
func (s *Staging) retireNamed(ctx context.Context, wanted storage.Selector, done *storage.UnstagedVolume) error {
	ctx, d, err := s.named(ctx, wanted)
	if err != nil || d == nil {
		return meanwhileGone(err)
	}
	defer d.Release()
	done.DiskOffline, err = s.retire(ctx, d)
	return meanwhileGone(err)
}

// named gives the right to the disk that a request names; nil if it isn't in the node.
func (s *Staging) named(ctx context.Context, wanted storage.Selector) (context.Context, *use.Disk, error) {
	inside, d, err := s.take(ctx, wanted, 0)
	if isMissing(err) {
		return ctx, nil, nil
	}
	return inside, d, err
}

// retire takes a disk offline unless one of its volumes is mounted, and reports whether it
// has. A disk that was staged read-only is writable from then on.
func (s *Staging) retire(ctx context.Context, d *use.Disk) (offline bool, _ error) {
	attributes, err := d.Attributes(ctx)
	if err != nil || attributes&disks.Blocking == win.DiskOffline {
		return false, err
	}
	var volumes opendisk.Volumes
	if offline = attributes&win.DiskOffline == 0; offline {
		var paths []string
		if volumes, paths, err = s.Disks.Mounted(ctx, d); err != nil || len(paths) > 0 {
			return false, err
		}
	}
	if err := s.Disks.TakeOffline(ctx, d, volumes, attributes); err != nil {
		return false, err
	}
	return offline, nil
}
