// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Parse parses and checks a path. In this group, as in the published daemon, a slash counts as a
// backslash: drivers append /target to kubelet's path.
func (v *Volumes) Parse(path string) (pathpolicy.Path, error) {
	return v.paths.Parse(strings.ReplaceAll(path, `/`, `\`), pathpolicy.MaxLongPath)
}

// ParseToMount is Parse for the future mount point of a volume.
func (v *Volumes) ParseToMount(path string) (pathpolicy.Path, error) {
	parsed, err := v.Parse(path)
	if err == nil {
		err = v.paths.CheckMountPath(parsed)
	}
	return parsed, err
}

// MountVolume implements [published.VolumeOperations].
func (v *Volumes) MountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) (err error) {
	defer v.options.Observer.End("MountVolume", volumeObject(id), time.Now(), &err)
	path, err := v.ParseToMount(targetPath)
	if err != nil {
		return errorAt(targetPath, err)
	}
	lockedDisk, _, err := v.options.Locks.LockDiskOf(ctx, id) // an error for a missing volume
	if err != nil {
		return err
	}
	defer lockedDisk.Release()
	lockedVolume, err := lockedDisk.LockVolume(ctx, id)
	if err != nil {
		return err
	}
	defer lockedVolume.Release()
	return errorAt(targetPath, v.Mount(ctx, lockedDisk, lockedVolume, path, nil))
}

// Mount mounts a volume of a disk at a path, and makes the path if missing. The caller's lock on
// the disk keeps the disk online meanwhile. LockDisk has refused system disks, and the volume lies
// on the locked disk only. Mount therefore need not check for system disks.
//
// If the call that formatted the volume ended before giving write access to the writers, Mount
// gives them access: the driver won't repeat the format call, because the volume is formatted.
func (v *Volumes) Mount(ctx context.Context, _ *usage.LockedDisk, lockedVolume *usage.LockedVolume, path pathpolicy.Path,
	writers []string) (err error) {
	reason, err := v.paths.ProtectsOffSystemDisks(ctx, v.sys, string(lockedVolume.ID))
	if err != nil {
		return err
	}
	if reason != "" {
		return refuse(reason)
	}
	if err := v.allowWriters(ctx, lockedVolume, writers, false); err != nil {
		return err
	}
	walk := v.paths.Walk(v.sys)
	defer walk.CloseInto(&err)
	e, err := walk.HoldOrMake(ctx, path)
	if err != nil {
		return err
	}
	if err := e.CheckReplaceable(); err != nil {
		return err
	}
	directory, err := e.Open(ctx, pathpolicy.Directory(win.FileOpenIf))
	if errors.Is(err, winerr.ErrorDirectory) || errors.Is(err, fs.ErrExist) {
		return refuse(notADirectory)
	}
	if err != nil {
		return err
	}
	mounted, err := mountedAt(ctx, directory)
	if err != nil {
		return err
	}
	if mounted == "" {
		mountErr := v.retryMount(ctx, directory, lockedVolume.ID)
		if mountErr != nil && !errors.Is(mountErr, winerr.ErrorDirNotEmpty) {
			return v.explain(ctx, directory, mountErr)
		}
		// The query on the directory's handle tells what is mounted now: this volume, a volume
		// mounted meanwhile by another call, or nothing because the directory has entries.
		if mounted, err = mountedAt(ctx, directory); err != nil {
			return err
		}
		if mounted == "" && mountErr != nil {
			return notEmpty(ctx, directory)
		}
		if mountErr == nil && mounted.Equal(lockedVolume.ID) {
			v.options.Logger.Info("volume mounted", "volume", lockedVolume.ID, "path", directory.Path())
		}
	}
	if !mounted.Equal(lockedVolume.ID) {
		return v.refuseOtherVolume(mounted)
	}
	return nil
}

// retryMount has Windows mount a volume at a directory, and retries while Windows refuses and the
// directory has no volume.
func (v *Volumes) retryMount(ctx context.Context, directory *pathpolicy.File, id csiproxy.VolumeID) error {
	var final error
	err := operation.UntilReady(ctx, func() error { return nil }, func() error {
		err := directory.Mount(ctx, string(id))
		if err == nil {
			return nil
		}
		if errors.Is(err, winerr.ErrorDirNotEmpty) || !pathpolicy.MountMayBeRepeated(err) {
			final = err
			return nil // ends the wait
		}
		if mounted, queryErr := mountedAt(ctx, directory); queryErr == nil && mounted != "" {
			return nil // the caller checks which volume is mounted
		}
		return err
	})
	return cmp.Or(final, err)
}

// notEmpty returns the error of a directory with entries.
func notEmpty(ctx context.Context, directory *pathpolicy.File) error {
	entries, err := directory.ReadDir(ctx, true)
	if err != nil {
		return &csiproxy.Error{
			Kind: csiproxy.ErrFailedPrecondition, Err: err,
			Detail: "the directory is not empty, and can't be listed",
		}
	}
	return hasEntries(directory, entries)
}

// checkEmpty returns an error if a directory has entries.
func checkEmpty(ctx context.Context, directory *pathpolicy.File) error {
	entries, err := directory.ReadDir(ctx, true)
	if errors.Is(err, winerr.ErrorNoMoreFiles) {
		err = nil
	}
	if err == nil && len(entries) > 0 {
		err = hasEntries(directory, entries)
	}
	return err
}

// hasEntries returns the error of a directory with entries. It names some entries, with their
// creation times.
func hasEntries(directory *pathpolicy.File, entries []win.DirEntry) error {
	var names []string
	for _, e := range entries {
		name := e.Name
		if e.Created != 0 {
			name += " (since " + e.Created.Time().Format(time.RFC3339) + ")"
		}
		names = append(names, name)
	}
	return refuse("the directory is not empty: it has " + quote.List(names) +
		"; somebody wrote there while nothing was mounted; on the node, Move-Item -LiteralPath '" +
		strings.ReplaceAll(directory.Path(), "'", "''") +
		"' -Destination DIRECTORY moves all of it to another directory on the same drive")
}

// explain adds the reason to a mount error if the directory isn't on NTFS: Windows supports mount
// points on NTFS only.
//
// Source: https://learn.microsoft.com/windows/win32/api/winbase/nf-winbase-setvolumemountpointw
func (v *Volumes) explain(ctx context.Context, directory *pathpolicy.File, mountErr error) error {
	host, err := directory.Volume(ctx)
	if err != nil {
		return mountErr
	}
	info, err := v.sys.VolumeInformation(ctx, host)
	if err != nil || strings.EqualFold(info.FileSystem, "NTFS") {
		return mountErr
	}
	return &csiproxy.Error{
		Kind: csiproxy.ErrFailedPrecondition,
		Detail: fmt.Sprintf("the directory is on %s, where Windows mounts no volumes; the kubelet directory must be on NTFS",
			info.FileSystem),
		Err: mountErr,
	}
}

// mountedAt returns the volume mounted at an open directory; "" if no volume is. A link there is
// refused.
func mountedAt(ctx context.Context, directory *pathpolicy.File) (csiproxy.VolumeID, error) {
	link, err := directory.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return "", nil
	}
	if err == nil && !link.IsMountPoint() {
		return "", refuse(isLink)
	}
	return csiproxy.VolumeID(link.Volume), err
}

// refuseOtherVolume returns the error of a path with another volume mounted.
func (v *Volumes) refuseOtherVolume(mounted csiproxy.VolumeID) error {
	const reason = "another volume is mounted there"
	if mounted == "" || v.paths.IsOfDriver() { // "" if the other volume has gone again meanwhile
		return refuse(reason)
	}
	return refuse(fmt.Sprintf("%s: %s", reason, mounted))
}

// MountedAtPath returns the volume mounted at a path itself; "" if no volume is.
func (v *Volumes) MountedAtPath(ctx context.Context, path pathpolicy.Path) (id csiproxy.VolumeID, err error) {
	walk := v.paths.Walk(v.sys)
	defer walk.CloseInto(&err)
	directory, err := v.examineDirectory(ctx, walk, path)
	if directory == nil {
		return "", err
	}
	return mountedAt(ctx, directory)
}

// examineDirectory opens the directory at a path to read it, or returns nil for a missing path.
func (v *Volumes) examineDirectory(ctx context.Context, walk *pathpolicy.Walk, path pathpolicy.Path) (*pathpolicy.File, error) {
	directory, err := walk.Examine(ctx, path, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, winerr.ErrorDirectory) {
		return nil, refuse(notADirectory)
	}
	if pathpolicy.Missing(err) {
		return nil, nil
	}
	return directory, err
}

// CheckMountable returns an error if a path is a file, a link or a directory with entries: nothing can
// be mounted there. mounted is the volume mounted at the path, "" if no volume is. CheckMountable tries
// a single open, and succeeds for a missing path, even if a file is in place of a parent directory. Mount
// repeats all checks, and finds such a file.
func (v *Volumes) CheckMountable(ctx context.Context, path pathpolicy.Path) (mounted csiproxy.VolumeID, err error) {
	walk := v.paths.Walk(v.sys)
	defer walk.CloseInto(&err)
	directory, err := v.examineDirectory(ctx, walk, path)
	if directory == nil {
		return "", err
	}
	mounted, err = mountedAt(ctx, directory)
	if mounted == "" && err == nil {
		err = checkEmpty(ctx, directory)
	}
	return mounted, err
}

// errorAt adds a path to err.
func errorAt(path string, err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "at " + quote.Text(path), Err: err}
}

// UnmountVolume implements [published.VolumeOperations].
func (v *Volumes) UnmountVolume(ctx context.Context, id csiproxy.VolumeID, targetPath string) (err error) {
	defer v.options.Observer.End("UnmountVolume", volumeObject(id), time.Now(), &err)
	path, err := v.Parse(targetPath)
	if err != nil {
		return errorAt(targetPath, err)
	}
	lockedVolume, err := v.options.Locks.LockVolumeOnly(ctx, id)
	if err != nil {
		return err
	}
	defer lockedVolume.Release()
	return errorAt(targetPath, v.Unmount(ctx, lockedVolume, path, func(*pathpolicy.File) error { return v.flushUnlessMissing(ctx, id) }))
}

// flushUnlessMissing flushes a volume. If the volume's disk is offline or has left the node,
// flushUnlessMissing succeeds without a flush: the volume's pods must be able to end.
func (v *Volumes) flushUnlessMissing(ctx context.Context, id csiproxy.VolumeID) error {
	err := v.flush(ctx, id)
	if !winerr.IsGone(err) {
		return err
	}
	missing, missingErr := v.options.Users.IsMissing(ctx, id)
	if missingErr != nil {
		return missingErr
	}
	if !missing {
		return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
			Detail: "the volume can't be written out now; try again"}
	}
	v.options.Logger.Warn("unmounting a missing volume without a flush", "volume", id, "err", err)
	return nil
}

// Unmount unmounts a volume at a path, if the volume is mounted there. It first calls flush with the
// volume's directory, which it holds open; an error from flush ends the call.
func (v *Volumes) Unmount(ctx context.Context, lockedVolume *usage.LockedVolume, path pathpolicy.Path,
	flush func(directory *pathpolicy.File) error) (err error) {
	walk := v.paths.Walk(v.sys)
	defer walk.CloseInto(&err)
	directory, err := v.holdMountPoint(ctx, walk, lockedVolume.ID, path)
	if directory == nil {
		return err
	}
	if err := flush(directory); err != nil {
		return err
	}
	return v.unmount(ctx, lockedVolume.ID, directory)
}

// holdMountPoint opens the directory at a path, and returns it if the volume is mounted there. It
// returns nil for a path without a volume, and an error for another volume.
func (v *Volumes) holdMountPoint(ctx context.Context, walk *pathpolicy.Walk, id csiproxy.VolumeID,
	path pathpolicy.Path) (directory *pathpolicy.File, _ error) {
	e, err := walk.Hold(ctx, path)
	if err == nil {
		directory, err = e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	}
	if pathpolicy.Missing(err) {
		return nil, nil
	}
	if errors.Is(err, winerr.ErrorDirectory) {
		return nil, refuse(notADirectory)
	}
	if err != nil {
		return nil, err
	}
	mounted, err := mountedAt(ctx, directory)
	if err != nil || mounted == "" {
		return nil, err
	}
	if !mounted.Equal(id) {
		return nil, v.refuseOtherVolume(mounted)
	}
	return directory, nil
}

// unmount unmounts a volume at its directory, unless the directory has been removed meanwhile.
func (v *Volumes) unmount(ctx context.Context, id csiproxy.VolumeID, directory *pathpolicy.File) error {
	err := directory.Unmount(ctx)
	if err == nil {
		v.options.Logger.Info("volume unmounted", "volume", id, "path", directory.Path())
	}
	if pathpolicy.Missing(err) {
		return nil
	}
	return err
}

// GetVolumeIDFromTargetPath implements [published.VolumeOperations].
func (v *Volumes) GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (_ csiproxy.VolumeID, err error) {
	defer v.options.Observer.End("GetVolumeIDFromTargetPath", strconv.Quote(targetPath), time.Now(), &err)
	path, err := v.Parse(targetPath)
	if err != nil {
		return "", err
	}
	// AskByName answers for most paths with one call; a link or a mount point needs Resolve.
	found, err := v.paths.AskByName(ctx, v.sys, path)
	switch found {
	case pathpolicy.NothingByName: // err is Windows' error for a missing path
		return "", notFound(noPath)
	case pathpolicy.PlainByName:
		return "", notFound(noMountPoint)
	}
	if err != nil {
		return "", err
	}
	to, err := v.paths.Resolve(ctx, v.sys, path)
	if err != nil {
		return "", err
	}
	switch to.Kind {
	case pathpolicy.MountedVolume:
		return csiproxy.VolumeID(to.Volume), nil
	case pathpolicy.Nothing:
		return "", notFound(noPath)
	}
	return "", notFound(noMountPoint)
}

// Errors of GetVolumeIDFromTargetPath. Drivers look for the words "because it does not exist".
const (
	noPath       = "the path can't be found because it does not exist"
	noMountPoint = "no volume is mounted there: the mount point can't be found because it does not exist"
)

// Reasons why a path can't have a mounted volume.
const (
	notADirectory = "the path is a file, and volumes are mounted only at directories"
	isLink        = "the path is a link, and volumes are mounted only at directories"
)

func notFound(reason string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: reason}
}

// GetClosestVolumeIDFromTargetPath implements [published.VolumeOperations].
func (v *Volumes) GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (_ csiproxy.VolumeID, err error) {
	defer v.options.Observer.End("GetClosestVolumeIDFromTargetPath", strconv.Quote(targetPath), time.Now(), &err)
	path, err := v.Parse(targetPath)
	if err != nil {
		return "", err
	}
	to, on, err := v.paths.ResolveVolume(ctx, v.sys, path)
	if err != nil {
		return "", err
	}
	switch to.Kind {
	case pathpolicy.SharedDirectory:
		return "", refuse("it leads to a share, and not to a volume of this node")
	case pathpolicy.Nothing: // nothing is at the path, or a link that leads nowhere; the link lies on a volume
		exists, err := v.paths.Exists(ctx, v.sys, path)
		if err != nil {
			return "", err
		}
		if !exists || on == "" {
			return "", notFound(noPath)
		}
	}
	if on == "" {
		return "", notFound("the path is on no volume")
	}
	return csiproxy.VolumeID(on), nil
}
