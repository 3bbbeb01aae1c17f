// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// MountedAt returns the paths where a volume is mounted: drives, such as C:\, and directories
// without a trailing backslash. Allowed directories are in the policy's spelling. The mount
// manager's records may be wrong, and MountedAt also queries each directory. Plain directories are
// left out. If a query fails with another error, MountedAt returns the error: the volume may be
// mounted there.
//
// The holder of a directory may have planted the mount point, and may let the query hang. MountedAt
// skips directories held by a pod, and directories held by another driver than the volume's. If the
// volume has no driver, but a driver holds the directory, the volume counts as mounted there
// without a query: the driver may have mounted the volume, and the disk must stay online while in
// use. For the same reason the volume counts as mounted in a directory outside the allowed ones if
// the query hangs or fails.
//
// If the volume has too many mount points for Windows to list, MountedAt searches the allowed
// directories instead, and the last path is ManyMore.
func (f *Finder) MountedAt(ctx context.Context, name string) (paths []string, _ error) {
	recorded, err := f.sys.VolumePathNames(ctx, name)
	if errors.Is(err, winerr.ErrorMoreData) {
		return f.mountedByLinks(ctx, csiproxy.VolumeID(name))
	}
	if err != nil {
		return nil, err
	}
	listed, err := f.SharedFinder.paths.Listed(ctx, f.whole, recorded)
	if err != nil {
		return nil, err
	}
	isMounted := make(map[string]bool)
	var outside []string
	ofOthers := make(map[string][]string) // by the driver that holds the directories
	for _, path := range listed {
		holder := f.SharedFinder.paths.DriverOf(path)
		switch {
		case path.IsOutside() && !path.IsDrive():
			outside = append(outside, path.String())
		case f.SharedFinder.paths.IsOfPod(path):
		case holder == "" || holder == f.driver:
			if isMounted[path.String()], err = f.isMountedAt(ctx, path.String(), name); err != nil {
				return nil, err
			}
		default:
			ofOthers[holder] = append(ofOthers[holder], path.String())
		}
	}
	if err := f.addOfOthers(ctx, name, ofOthers, isMounted); err != nil {
		return nil, err
	}
	f.addInTime(ctx, name, outside, isMounted)
	for _, path := range listed {
		if len(isMounted) == 0 {
			break
		}
		if text := path.String(); isMounted[text] {
			paths = append(paths, text)
			delete(isMounted, text) // Windows may list a directory by several paths
		}
	}
	return paths, ctx.Err()
}

// ManyMore stands for further paths of a volume with more mount points than Windows can list. Like
// a path outside the allowed directories, ManyMore keeps the volume's disk online.
const ManyMore = "more directories than can be listed"

// mountedByLinks returns the mount points of a volume in the allowed directories, and ManyMore. The
// own directories of drivers are left out, except those of the volume's driver.
func (f *Finder) mountedByLinks(ctx context.Context, id csiproxy.VolumeID) (paths []string, _ error) {
	owner, err := f.ownerOfVolume(ctx, id)
	if err != nil {
		return nil, err
	}
	links, incomplete, err := f.Links(ctx, owner)
	if err != nil {
		return nil, err
	}
	if incomplete != nil {
		return nil, unknownLinks(incomplete)
	}
	for l := range links.All() {
		if l.Link.IsMountPoint() && id.Equal(csiproxy.VolumeID(l.Link.Volume)) {
			paths = append(paths, l.Path.String())
		}
	}
	return append(paths, ManyMore), nil
}

// addOfOthers adds the directories of other drivers where a volume counts as mounted.
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

// silentTimeout is how long addInTime waits for directories that may hang.
const silentTimeout = 200 * time.Millisecond

// addInTime adds the directories where a volume is mounted, and the directories that fail to answer
// in time. Queries run one after the other, and at most one call to Windows hangs.
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

// isMountedAt reports whether a volume is mounted at a path.
func (f *Finder) isMountedAt(ctx context.Context, path, name string) (bool, error) {
	there, err := f.SharedFinder.paths.VolumeAt(ctx, f.sys, path)
	return strings.EqualFold(there, name), err
}

// StagedAt returns where a mounted volume is staged: a driver's volume in the driver's own
// directories, and any other volume in the allowed directories without a driver. Mount points
// elsewhere may be planted.
func (f *Finder) StagedAt(ctx context.Context, id csiproxy.VolumeID, mounted []string) ([]string, error) {
	paths := f.Allowed(mounted)
	if len(paths) == 0 {
		return nil, nil
	}
	owner, err := f.ownerOfVolume(ctx, id)
	return slices.DeleteFunc(paths, func(path string) bool {
		return f.SharedFinder.paths.DriverOf(f.SharedFinder.paths.ParseListed(path)) != owner
	}), err
}
