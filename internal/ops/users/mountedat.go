// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package users

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// MountedAt returns where a volume is mounted: drives, as C:\, and directories without a
// backslash at their end. The mount manager's records may be wrong, so each directory is queried,
// too. If it isn't a mount point, it is left out. If the query fails with another error, MountedAt
// returns that, since the volume may be mounted there.
//
// A directory of another driver than the volume's is left out unasked: that driver may have planted the mount point, and may
// let the query hang. A volume that is no driver's counts as mounted in all directories, and in a driver's own ones also if
// the query hangs: its disk mustn't go offline while it is used.
func (f *Finder) MountedAt(ctx context.Context, name string) (paths []string, _ error) {
	recorded, err := f.sys.VolumePathNames(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, path := range recorded {
		asked, err := f.finderAt(ctx, path, name)
		if err != nil {
			return nil, err
		}
		if asked == nil {
			continue
		}
		isMounted, err := f.isMountedAt(ctx, asked, path, name)
		if err != nil {
			return nil, err
		}
		if !isMounted {
			continue
		}
		if len(path) > len(`C:\`) {
			path = strings.TrimSuffix(path, `\`)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// isMountedAt reports whether a volume is mounted at a path, by the system of the finder asked. The node takes the silence of a
// driver's own directory for yes.
func (f *Finder) isMountedAt(ctx context.Context, asked *Finder, path, name string) (isMounted bool, err error) {
	ask := func(ctx context.Context, path string) (bool, error) {
		there, err := asked.sys.VolumeNameForMountPoint(ctx, path)
		if err != nil && isNoMountPoint(err) {
			return false, nil
		}
		return strings.EqualFold(there, name), err
	}
	if asked == f {
		return ask(ctx, path)
	}
	isMounted = true
	for _, outcome := range operation.Ask(ctx, []string{path}, silentTimeout, ask) {
		isMounted, err = outcome.Get()
	}
	return isMounted, cmp.Or(ctx.Err(), err)
}

// silentTimeout is how long the node waits for a driver's own directory.
const silentTimeout = 200 * time.Millisecond

// StagedAt returns those of the paths at which a volume is mounted where it is staged: the allowed ones, but for mount points of a
// volume that is no driver's in a driver's own directories. The driver may have planted these.
func (f *Finder) StagedAt(ctx context.Context, id csiproxy.VolumeID, mounted []string) ([]string, error) {
	paths, err := f.Allowed(ctx, mounted)
	if err != nil || len(paths) == 0 {
		return paths, err
	}
	owner, err := f.ownerOfVolume(ctx, id)
	return slices.DeleteFunc(paths, func(path string) bool {
		driver := f.paths.DriverAt(path)
		return owner == "" && driver != ""
	}), err
}

// finderAt returns the finder that asks which volume is mounted at a path where one is, by its record; nil if that path is
// in the own directories of another driver than the volume's.
func (f *Finder) finderAt(ctx context.Context, path, volume string) (*Finder, error) {
	inside, err := f.Shared.paths.Inside(ctx, f.sys, []string{path})
	if err != nil || len(inside) == 0 {
		return f, err
	}
	driver := f.drivers[f.paths.DriverAt(inside[0])]
	if driver == nil {
		return f, nil
	}
	if owner, err := f.ownerOfVolume(ctx, csiproxy.VolumeID(volume)); err != nil || owner != "" && owner != driver.driver {
		return nil, err
	}
	return driver, nil
}

// isNoMountPoint reports whether err, of the query which volume is mounted at a path, says that none is:
// the path isn't there, or is something else. An error that says that a device has left doesn't.
func isNoMountPoint(err error) bool {
	return errors.Is(err, fs.ErrNotExist) ||
		winerr.IsAny(err, winerr.ErrorNotAReparsePoint, winerr.ErrorInvalidReparseData, winerr.ErrorInvalidParameter,
			winerr.ErrorDirectory, winerr.ErrorInvalidName) // a file, by either of the last two
}
