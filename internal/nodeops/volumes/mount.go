// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/volume"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Parse checks the text of a path. In this group a slash separates like a backslash, as
// published: drivers append /target to what kubelet gives them.
func (v *Volumes) Parse(path string) (pathpolicy.Path, error) {
	return v.paths.Parse(strings.ReplaceAll(path, `/`, `\`), pathpolicy.MaxLongPath)
}

// MountVolume implements [volume.Operations].
func (v *Volumes) MountVolume(ctx context.Context, id volume.ID, targetPath string) error {
	return operation.Do(ctx, v.options.Runner, "MountVolume", object(id), func(ctx context.Context) error {
		path, err := v.Parse(targetPath)
		if err != nil {
			return at(targetPath, err)
		}
		ctx, d, _, err := v.options.Owner.DiskOf(ctx, id) // says whether there is such a volume
		if err != nil {
			return err
		}
		defer d.Release()
		ctx, right, err := v.options.Owner.Volume(ctx, id)
		if err != nil {
			return err
		}
		defer right.Release()
		return at(targetPath, v.Mount(ctx, d, right, path))
	})
}

// Mount mounts a volume of a disk at a path, which is made if it is missing. The right to the
// disk keeps that from going offline meanwhile. It is given for no disk that Windows runs from, and the
// volume lies on no other disk, so that isn't asked again.
func (v *Volumes) Mount(ctx context.Context, _ *use.Disk, right *use.Volume, path pathpolicy.Path) error {
	reason, err := v.paths.ProtectsBesideWindows(ctx, v.sys, string(right.ID))
	if err != nil {
		return err
	}
	if reason != "" {
		return refuse(reason)
	}
	return v.paths.ReachMaking(ctx, v.sys, path, func(e pathpolicy.Entry) error {
		if err := e.CheckReplaceable(); err != nil {
			return err
		}
		directory, err := e.Open(ctx, pathpolicy.Directory(win.FileOpenIf))
		if errors.Is(err, win.ErrorDirectory) || errors.Is(err, fs.ErrExist) {
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
			mountErr := directory.Mount(ctx, string(right.ID))
			if mountErr != nil && !errors.Is(mountErr, win.ErrorDirNotEmpty) {
				return v.explain(ctx, directory, mountErr)
			}
			// The directory's own handle says what is mounted now: this volume, one
			// that another call has mounted meanwhile, or none since it has entries.
			if mounted, err = mountedAt(ctx, directory); err != nil {
				return err
			}
			if mounted == "" && mountErr != nil {
				return notEmpty(ctx, directory)
			}
			if mountErr == nil && mounted.Equal(right.ID) {
				v.options.Logger.Info("volume mounted", "volume", right.ID, "path", directory.Path())
			}
		}
		if !mounted.Equal(right.ID) {
			return refuse(fmt.Sprintf("another volume is mounted there: %s", mounted))
		}
		return nil
	})
}

// notEmpty refuses a directory that has entries, and names some of them, with the time since
// when they are there.
func notEmpty(ctx context.Context, directory *pathpolicy.File) error {
	entries, err := directory.ReadDir(ctx, true)
	if err != nil {
		return &csiproxy.Error{
			Kind: csiproxy.ErrFailedPrecondition, Err: err,
			Detail: "the directory is not empty, and can't be listed",
		}
	}
	var names []string
	for _, e := range entries {
		name := e.Name
		if e.Created != 0 {
			name += " (since " + e.Created.Time().Format(time.RFC3339) + ")"
		}
		names = append(names, name)
	}
	return refuse("the directory is not empty: it has " + use.Listed(names) +
		"; somebody wrote there while nothing was mounted; csi-proxyctl storage move-aside PATH moves all of it to " +
		"another directory")
}

// explain says why a volume couldn't be mounted at a directory that is on another file
// system than NTFS: Windows has mount points there only.
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

// mountedAt returns the volume that is mounted at an open directory; "" if none is. A
// link there is refused.
func mountedAt(ctx context.Context, directory *pathpolicy.File) (volume.ID, error) {
	_, link, err := directory.Examine(ctx)
	if err != nil || link == nil {
		return "", err
	}
	if !link.IsMountPoint() {
		return "", refuse("there is a link at the path, and a volume is mounted at a directory only")
	}
	return volume.ID(link.Volume), nil
}

// MountedAtPath returns the volume that is mounted at a path itself; "" if none is.
func (v *Volumes) MountedAtPath(ctx context.Context, path pathpolicy.Path) (id volume.ID, _ error) {
	err := v.paths.Reach(ctx, v.sys, path, func(e pathpolicy.Entry) error {
		directory, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
		if errors.Is(err, win.ErrorDirectory) {
			return refuse(notADirectory)
		}
		if err == nil {
			id, err = mountedAt(ctx, directory)
		}
		return err
	})
	if pathpolicy.Missing(err) {
		return "", nil
	}
	return id, err
}

// at names the path that err came up at.
func at(path string, err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "at " + quote.Text(path), Err: err}
}

// UnmountVolume implements [volume.Operations].
func (v *Volumes) UnmountVolume(ctx context.Context, id volume.ID, targetPath string) error {
	return operation.Do(ctx, v.options.Runner, "UnmountVolume", object(id), func(ctx context.Context) error {
		path, err := v.Parse(targetPath)
		if err != nil {
			return at(targetPath, err)
		}
		ctx, right, err := v.options.Owner.Volume(ctx, id)
		if err != nil {
			return err
		}
		defer right.Release()
		flush := func(ctx context.Context) error {
			err := v.flush(ctx, id)
			if !win.IsGone(err) {
				return err
			}
			away, awayErr := v.options.Owner.Away(ctx, id)
			if awayErr == nil && !away {
				awayErr = &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Err: err,
					Detail: "the volume can't be written out now; try again"}
			}
			if awayErr == nil { // its pods must be able to end
				v.options.Logger.Warn("a volume that is away is unmounted without a flush", "volume", id, "err", err)
			}
			return awayErr
		}
		return at(targetPath, v.Unmount(ctx, right, path, flush))
	})
}

// Unmount unmounts a volume at a path, if it is mounted there. flush is called before, and
// its error ends the call.
func (v *Volumes) Unmount(ctx context.Context, right *use.Volume, path pathpolicy.Path,
	flush func(context.Context) error) error {
	return v.unmount(ctx, right, path, flush,
		func(ctx context.Context, at *pathpolicy.File) error { return at.Unmount(ctx) })
}

// remover takes away the mount point that a directory is.
type remover func(ctx context.Context, at *pathpolicy.File) error

// unmount is Unmount, by remove.
func (v *Volumes) unmount(
	ctx context.Context, right *use.Volume, path pathpolicy.Path, flush func(context.Context) error, remove remover,
) error {
	err := v.paths.Reach(ctx, v.sys, path,
		func(e pathpolicy.Entry) error { return v.unmountAt(ctx, right.ID, e, flush, remove) })
	if pathpolicy.Missing(err) {
		return nil
	}
	return err
}

func (v *Volumes) unmountAt(ctx context.Context, id volume.ID, e pathpolicy.Entry, flush func(context.Context) error,
	remove remover) error {
	directory, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, win.ErrorDirectory) {
		return refuse(notADirectory)
	}
	if err != nil {
		return err
	}
	mounted, err := mountedAt(ctx, directory)
	if err != nil || mounted == "" {
		return err
	}
	if !mounted.Equal(id) {
		return refuse(fmt.Sprintf("another volume is mounted there: %s", mounted))
	}
	if err := flush(ctx); err != nil {
		return err
	}
	if err := remove(ctx, directory); err != nil {
		return err
	}
	v.options.Logger.Info("volume unmounted", "volume", id, "path", directory.Path())
	return nil
}

// GetVolumeIDFromTargetPath implements [volume.Operations].
func (v *Volumes) GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "GetVolumeIDFromTargetPath", strconv.Quote(targetPath),
		func(ctx context.Context) (volume.ID, error) {
			path, err := v.Parse(targetPath)
			if err != nil {
				return "", err
			}
			to, err := v.paths.Resolve(ctx, v.sys, path)
			if err != nil {
				return "", err
			}
			switch to.Kind {
			case pathpolicy.MountedVolume:
				return volume.ID(to.Volume), nil
			case pathpolicy.Nothing:
				return "", notFound("the path can't be found because it does not exist")
			}
			return "", notFound("no volume is mounted there: the mount point can't be found because it does not exist")
		})
}

// notADirectory says why nothing is mounted at a path.
const notADirectory = "there is a file at the path, and a volume is mounted at a directory only"

func notFound(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: why}
}

// GetClosestVolumeIDFromTargetPath implements [volume.Operations].
func (v *Volumes) GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "GetClosestVolumeIDFromTargetPath", strconv.Quote(targetPath),
		func(ctx context.Context) (volume.ID, error) {
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
				return "", refuse("it leads to a share, which is on no volume of this node")
			case pathpolicy.Nothing:
				exists, err := v.paths.Exists(ctx, v.sys, path)
				if err != nil {
					return "", err
				}
				if !exists {
					return "", notFound("the path can't be found because it does not exist")
				}
			}
			if on == "" {
				return "", notFound("the path is on no volume")
			}
			return volume.ID(on), nil
		})
}
