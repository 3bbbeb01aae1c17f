// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// MountVolume presents a volume at a directory, which is made if it is missing,
// with those above it. It is a success if the volume is mounted there already.
// Anything else there, another volume or entries in the directory, gives
// csiproxy.ErrFailedPrecondition.
func (v *Volumes) MountVolume(ctx context.Context, id ID, targetPath string) error {
	return operation.Do(ctx, v.options.Runner, "MountVolume", id.object(), func(ctx context.Context) error {
		path, err := v.paths.Parse(targetPath, pathpolicy.MaxLongPath)
		if err != nil {
			return err
		}
		h, err := v.open(ctx, id, win.AccessNone) // says whether there is such a volume
		if err != nil {
			return err
		}
		if err := h.Close(); err != nil {
			return err
		}
		return v.paths.ReachMaking(ctx, v.sys, path, func(h *pathpolicy.Held) error {
			return v.mount(ctx, id, h)
		})
	})
}

func (v *Volumes) mount(ctx context.Context, id ID, h *pathpolicy.Held) error {
	if err := h.CheckReplaceable(); err != nil {
		return err
	}
	directory, _, err := h.Hold(ctx, win.FileOpenIf)
	if errors.Is(err, win.ErrorDirectory) || errors.Is(err, fs.ErrExist) {
		return refuse(fmt.Sprintf("%s is a file", h.Path()))
	}
	if err != nil {
		return at(h, err)
	}
	mounted, err := v.mountedAt(ctx, h, directory)
	if err != nil {
		return err
	}
	if mounted == "" {
		err = h.Call(ctx, func(ctx context.Context) error {
			return v.sys.SetVolumeMountPoint(ctx, h.Path()+`\`, string(id))
		})
		if err != nil && !errors.Is(err, win.ErrorDirNotEmpty) {
			return at(h, err)
		}
		// The directory's own handle says what is mounted now: this volume, one
		// that another call has mounted meanwhile, or none since it has entries.
		notEmpty := err != nil
		if mounted, err = v.mountedAt(ctx, h, directory); err != nil {
			return err
		}
		if mounted == "" && notEmpty {
			return refuse(fmt.Sprintf("the directory %s is not empty", h.Path()))
		}
	}
	if !mounted.Equal(id) {
		return refuse(fmt.Sprintf("another volume is mounted at %s: %s", h.Path(), mounted))
	}
	return nil
}

// mountedAt returns the volume that is mounted at the held directory; "" if none
// is. A link there is refused.
func (v *Volumes) mountedAt(ctx context.Context, h *pathpolicy.Held, directory win.File) (ID, error) {
	info, err := directory.Info(ctx)
	if err != nil {
		return "", at(h, err)
	}
	if !info.IsReparsePoint() {
		return "", nil
	}
	link, err := h.ReadLink(ctx, directory)
	if err != nil {
		return "", at(h, err)
	}
	if link.Kind != pathpolicy.LinkToVolume || link.Tag != win.TagMountPoint {
		return "", refuse(fmt.Sprintf("%s is a link and no mount point", h.Path()))
	}
	return ID(link.Volume), nil
}

// at names the path that err came up at.
func at(h *pathpolicy.Held, err error) error {
	return &csiproxy.Error{Object: h.Path(), Err: err}
}

// UnmountVolume writes out what is cached of a volume and removes its mount
// point at a directory; the directory stays. It is a success if nothing is
// mounted there, also if the path doesn't exist. If another volume is mounted
// there it gives csiproxy.ErrFailedPrecondition. A volume whose disk has left the
// node is unmounted all the same.
func (v *Volumes) UnmountVolume(ctx context.Context, id ID, targetPath string) error {
	return operation.Do(ctx, v.options.Runner, "UnmountVolume", id.object(), func(ctx context.Context) error {
		if err := id.check(); err != nil {
			return err
		}
		path, err := v.paths.Parse(targetPath, pathpolicy.MaxLongPath)
		if err != nil {
			return err
		}
		err = v.paths.Reach(ctx, v.sys, path, func(h *pathpolicy.Held) error {
			return v.unmount(ctx, id, h)
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

func (v *Volumes) unmount(ctx context.Context, id ID, h *pathpolicy.Held) error {
	directory, _, err := h.Hold(ctx, win.FileOpen)
	if errors.Is(err, win.ErrorDirectory) {
		return refuse(fmt.Sprintf("%s is a file", h.Path()))
	}
	if err != nil {
		return at(h, err)
	}
	mounted, err := v.mountedAt(ctx, h, directory)
	if err != nil || mounted == "" {
		return err
	}
	if !mounted.Equal(id) {
		return refuse(fmt.Sprintf("another volume is mounted at %s: %s", h.Path(), mounted))
	}
	var errno win.Errno
	if err := v.flush(ctx, id); errors.As(err, &errno) && errno.Gone() {
		// Its pods must be able to end.
		v.options.Logger.Info("a volume that has left the node is unmounted", "volume", id, "err", err)
	} else if err != nil {
		return err
	}
	return h.Call(ctx, func(ctx context.Context) error {
		if err := v.sys.DeleteVolumeMountPoint(ctx, h.Path()+`\`); err != nil {
			return at(h, err)
		}
		return nil
	})
}

// GetVolumeIDFromTargetPath returns the volume that is mounted at a path, or at
// the end of the links there. Otherwise, also if nothing is at the path, it gives
// csiproxy.ErrNotFound with a message that has the words "because it does not
// exist": drivers look for them to tell that a volume isn't mounted yet.
func (v *Volumes) GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (ID, error) {
	return operation.Get(ctx, v.options.Runner, "GetVolumeIDFromTargetPath", strconv.Quote(targetPath), func(ctx context.Context) (ID, error) {
		_, place, err := v.resolve(ctx, targetPath)
		if err != nil {
			return "", err
		}
		switch place.Kind {
		case pathpolicy.MountPoint:
			return ID(place.Volume), nil
		case pathpolicy.Missing:
			return "", notFound("the path can't be found because it does not exist")
		}
		return "", notFound("no volume is mounted there: the mount point can't be found because it does not exist")
	})
}

func (v *Volumes) resolve(ctx context.Context, targetPath string) (pathpolicy.Path, pathpolicy.Place, error) {
	path, err := v.paths.Parse(targetPath, pathpolicy.MaxLongPath)
	if err != nil {
		return pathpolicy.Path{}, pathpolicy.Place{}, err
	}
	place, err := v.paths.Resolve(ctx, v.sys, path)
	return path, place, err
}

func notFound(why string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: why}
}

// GetClosestVolumeIDFromTargetPath returns the volume that holds what is at a
// path, links followed: of the nearest mount point above it or, at last, of the
// drive. A link whose target is missing counts by the directory it would be in.
// A path that doesn't exist gives csiproxy.ErrNotFound, one that leads to a share
// csiproxy.ErrFailedPrecondition.
func (v *Volumes) GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (ID, error) {
	return operation.Get(ctx, v.options.Runner, "GetClosestVolumeIDFromTargetPath", strconv.Quote(targetPath), func(ctx context.Context) (ID, error) {
		path, place, err := v.resolve(ctx, targetPath)
		if err != nil {
			return "", err
		}
		switch place.Kind {
		case pathpolicy.Share:
			return "", refuse("it leads to a share, which is on no volume of this node")
		case pathpolicy.Missing:
			exists, err := v.paths.Exists(ctx, v.sys, path)
			if err != nil {
				return "", err
			}
			if !exists {
				return "", notFound("the path can't be found because it does not exist")
			}
		}
		if place.Volume != "" {
			return ID(place.Volume), nil
		}
		return v.volumeAbove(ctx, place.Allowed)
	})
}

// volumeAbove returns the volume of a directory of the administrator's: mounted
// at it or above it, or that of its drive.
func (v *Volumes) volumeAbove(ctx context.Context, directory string) (ID, error) {
	directory = strings.TrimSuffix(directory, `\`) // a whole drive may be allowed
	for {
		name, err := v.sys.VolumeNameForMountPoint(ctx, directory+`\`)
		if err == nil {
			return ID(name), nil
		}
		parent := strings.LastIndexByte(directory, '\\')
		if parent < 0 || ctx.Err() != nil {
			return "", &csiproxy.Error{Object: directory, Err: err}
		}
		directory = directory[:parent]
	}
}
