// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package users

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// MountedAt returns where a volume is mounted: drives, as C:\, and directories without a
// backslash at their end. The mount manager's records may be wrong, so each directory is queried,
// too. If it isn't a mount point, it is left out. If the query fails with another error, MountedAt
// returns that, since the volume may be mounted there.
//
// Who holds a directory may have planted the mount point, and may let the query hang. So what a pod holds is left out unasked, and
// so is what another driver holds than the volume's. A volume that is no driver's counts as mounted, unasked, where a driver holds
// the directory: the driver may have mounted it, and its disk must stay online while it is used. For the same reason a volume
// counts as mounted in a directory outside of the allowed ones whose query hangs or fails.
func (f *Finder) MountedAt(ctx context.Context, name string) (paths []string, _ error) {
	recorded, err := f.sys.VolumePathNames(ctx, name)
	if err != nil {
		return nil, err
	}
	isMounted := make(map[string]bool)
	var outside []string
	ofOthers := make(map[string][]string) // by the driver that holds them
	for _, path := range recorded {
		parsed, parseErr := f.Shared.paths.Parse(path, pathpolicy.MaxLongPath)
		holder := f.Shared.paths.DriverOf(parsed)
		switch isDrive := len(path) <= len(`C:\`); {
		case !isDrive && parseErr != nil:
			outside = append(outside, path)
		case !isDrive && f.Shared.paths.IsOfPod(parsed):
		case isDrive || holder == "" || holder == f.driver:
			if isMounted[path], err = f.isMountedAt(ctx, path, name); err != nil {
				return nil, err
			}
		default:
			ofOthers[holder] = append(ofOthers[holder], path)
		}
	}
	if err := f.addOfOthers(ctx, name, ofOthers, isMounted); err != nil {
		return nil, err
	}
	f.addInTime(ctx, name, outside, isMounted)
	for _, path := range recorded {
		if !isMounted[path] {
			continue
		}
		if len(path) > len(`C:\`) {
			path = strings.TrimSuffix(path, `\`)
		}
		paths = append(paths, path)
	}
	return paths, ctx.Err()
}

// addOfOthers adds those directories of other drivers where a volume counts as mounted.
func (f *Finder) addOfOthers(ctx context.Context, name string, ofOthers map[string][]string, isMounted map[string]bool) error {
	if len(ofOthers) == 0 {
		return nil
	}
	owner, err := f.ownerOfVolume(ctx, csiproxy.VolumeID(name))
	if err != nil {
		return err
	}
	for holder, paths := range ofOthers {
		switch owner {
		case "":
			for _, path := range paths {
				isMounted[path] = true
			}
		case holder:
			f.drivers[holder].addInTime(ctx, name, paths, isMounted)
		}
	}
	return nil
}

// silentTimeout is how long directories that may hang are waited for.
const silentTimeout = 200 * time.Millisecond

// addInTime adds the directories where a volume is mounted, and the directories that give no answer in time. It queries one after the
// other, so at most one call to Windows hangs.
func (f *Finder) addInTime(ctx context.Context, name string, paths []string, isMounted map[string]bool) {
	for _, path := range paths {
		isMounted[path] = true
	}
	ask := func(ctx context.Context, path string) (bool, error) { return f.isMountedAt(ctx, path, name) }
	for path, outcome := range operation.AskSome(ctx, paths, nil, 1, silentTimeout, ask) {
		isThere, err := outcome.Get()
		isMounted[path] = isThere || err != nil
	}
}

// isMountedAt reports whether a volume is mounted at a path. What lies in a staged volume doesn't count: pods write there.
func (f *Finder) isMountedAt(ctx context.Context, path, name string) (bool, error) {
	if staging, isBelow := f.Shared.paths.StagingPathAbove(path); isBelow {
		if there, err := f.volumeAt(ctx, staging+`\`); err != nil || there != "" {
			return false, err
		}
	}
	there, err := f.volumeAt(ctx, path)
	return strings.EqualFold(there, name), err
}

// volumeAt returns the volume that is mounted at a path, "" if none is.
func (f *Finder) volumeAt(ctx context.Context, path string) (name string, err error) {
	name, err = f.sys.VolumeNameForMountPoint(ctx, path)
	if err != nil && isNoMountPoint(err) {
		return "", nil
	}
	return name, err
}

// StagedAt returns where a mounted volume is staged. The volume of a driver is staged in that driver's own directories, and any other
// volume in the allowed directories outside of all drivers'. Mount points elsewhere may be planted.
func (f *Finder) StagedAt(ctx context.Context, id csiproxy.VolumeID, mounted []string) ([]string, error) {
	paths, err := f.Allowed(ctx, mounted)
	if err != nil || len(paths) == 0 {
		return paths, err
	}
	owner, err := f.ownerOfVolume(ctx, id)
	return slices.DeleteFunc(paths, func(path string) bool { return f.paths.DriverAt(path) != owner }), err
}

// isNoMountPoint reports whether err, of the query which volume is mounted at a path, says that none is:
// the path isn't there, or is something else. An error that says that a device has left doesn't.
func isNoMountPoint(err error) bool {
	return errors.Is(err, fs.ErrNotExist) ||
		winerr.IsAny(err, winerr.ErrorNotAReparsePoint, winerr.ErrorInvalidReparseData, winerr.ErrorInvalidParameter,
			winerr.ErrorDirectory, winerr.ErrorInvalidName) // a file, by either of the last two
}
