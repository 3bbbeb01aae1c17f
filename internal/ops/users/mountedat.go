// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package users

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// MountedAt returns where a volume is mounted: drives, as C:\, and directories without a
// backslash at their end. The mount manager's records may be wrong, so each directory is queried,
// too. If it isn't a mount point, it is left out. If the query fails with another error, MountedAt
// returns that, since the volume may be mounted there.
//
// A directory of another driver than the volume's is left out unasked: that driver may have planted the mount point, and may
// let the query hang. A volume that is no driver's counts as mounted in all directories.
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
		there, err := asked.sys.VolumeNameForMountPoint(ctx, path)
		if err != nil && !isNoMountPoint(err) {
			return nil, err
		}
		if err != nil || !strings.EqualFold(there, name) {
			continue
		}
		if len(path) > len(`C:\`) {
			path = strings.TrimSuffix(path, `\`)
		}
		paths = append(paths, path)
	}
	return paths, nil
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
