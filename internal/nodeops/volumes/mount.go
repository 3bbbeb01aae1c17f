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

	"github.com/csi-proxy/csi-proxy/volume"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// MountVolume implements [volume.Operations].
func (v *Volumes) MountVolume(ctx context.Context, id volume.ID, targetPath string) error {
	return operation.Do(ctx, v.options.Runner, "MountVolume", object(id), func(ctx context.Context) error {
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

func (v *Volumes) mount(ctx context.Context, id volume.ID, h *pathpolicy.Held) error {
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
func (v *Volumes) mountedAt(ctx context.Context, h *pathpolicy.Held, directory win.File) (volume.ID, error) {
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
	return volume.ID(link.Volume), nil
}

// at names the path that err came up at.
func at(h *pathpolicy.Held, err error) error {
	return &csiproxy.Error{Object: h.Path(), Err: err}
}

// UnmountVolume implements [volume.Operations].
func (v *Volumes) UnmountVolume(ctx context.Context, id volume.ID, targetPath string) error {
	return operation.Do(ctx, v.options.Runner, "UnmountVolume", object(id), func(ctx context.Context) error {
		if err := id.Validate(); err != nil {
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

func (v *Volumes) unmount(ctx context.Context, id volume.ID, h *pathpolicy.Held) error {
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

// GetVolumeIDFromTargetPath implements [volume.Operations].
func (v *Volumes) GetVolumeIDFromTargetPath(ctx context.Context, targetPath string) (volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "GetVolumeIDFromTargetPath", strconv.Quote(targetPath), func(ctx context.Context) (volume.ID, error) {
		_, place, err := v.resolve(ctx, targetPath)
		if err != nil {
			return "", err
		}
		switch place.Kind {
		case pathpolicy.MountPoint:
			return volume.ID(place.Volume), nil
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

// GetClosestVolumeIDFromTargetPath implements [volume.Operations].
func (v *Volumes) GetClosestVolumeIDFromTargetPath(ctx context.Context, targetPath string) (volume.ID, error) {
	return operation.Get(ctx, v.options.Runner, "GetClosestVolumeIDFromTargetPath", strconv.Quote(targetPath), func(ctx context.Context) (volume.ID, error) {
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
			return volume.ID(place.Volume), nil
		}
		return v.volumeAbove(ctx, place.Allowed)
	})
}

// volumeAbove returns the volume of a directory of the administrator's: mounted
// at it or above it, or that of its drive.
func (v *Volumes) volumeAbove(ctx context.Context, directory string) (volume.ID, error) {
	directory = strings.TrimSuffix(directory, `\`) // a whole drive may be allowed
	for {
		name, err := v.sys.VolumeNameForMountPoint(ctx, directory+`\`)
		if err == nil {
			return volume.ID(name), nil
		}
		parent := strings.LastIndexByte(directory, '\\')
		if parent < 0 || ctx.Err() != nil {
			return "", &csiproxy.Error{Object: directory, Err: err}
		}
		directory = directory[:parent]
	}
}
