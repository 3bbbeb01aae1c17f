// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package users

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// MountedAt returns where a volume is mounted: drives, as C:\, and directories without a
// backslash at their end. The mount manager's records may be wrong, so each directory is queried,
// too. If it isn't a mount point, it is left out. If the query fails with another error, MountedAt
// returns that, since the volume may be mounted there.
func MountedAt(ctx context.Context, sys win.VolumeNames, name string) (paths []string, _ error) {
	recorded, err := sys.VolumePathNames(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, path := range recorded {
		there, err := sys.VolumeNameForMountPoint(ctx, path)
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

// isNoMountPoint reports whether err, of the query which volume is mounted at a path, says that none is:
// the path isn't there, or is something else. An error that says that a device has left doesn't.
func isNoMountPoint(err error) bool {
	return errors.Is(err, fs.ErrNotExist) ||
		winerr.IsAny(err, winerr.ErrorNotAReparsePoint, winerr.ErrorInvalidReparseData, winerr.ErrorInvalidParameter,
			winerr.ErrorDirectory, winerr.ErrorInvalidName) // a file, by either of the last two
}
