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
// the directory: the driver may have mounted it, and its disk mustn't go offline while it is used.
func (f *Finder) MountedAt(ctx context.Context, name string) (paths []string, _ error) {
	recorded, err := f.sys.VolumePathNames(ctx, name)
	if err != nil {
		return nil, err
	}
	answers := mountAnswers{hosts: make(map[string]bool)}
	for _, path := range recorded {
		isMounted, err := f.isMountedAt(ctx, path, name, &answers)
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

// mountAnswers are the answers that matter to all mount points of a volume, of which there may be thousands.
type mountAnswers struct {
	owner        string // of the volume
	isOwnerKnown bool
	hosts        map[string]bool // whether other volumes may be asked for their mount points, by their root directories
}

// isMountedAt reports whether a volume is mounted at a path. The node takes the silence of a driver's directory for yes.
func (f *Finder) isMountedAt(ctx context.Context, path, name string, answers *mountAnswers) (isMounted bool, err error) {
	holder, err := f.holderOf(ctx, path, answers.hosts)
	if err != nil || holder == aPod {
		return false, err
	}
	asked := f
	if holder != "" && holder != f.driver {
		if !answers.isOwnerKnown {
			if answers.owner, err = f.ownerOfVolume(ctx, csiproxy.VolumeID(name)); err != nil {
				return false, err
			}
			answers.isOwnerKnown = true
		}
		if answers.owner != holder {
			return answers.owner == "", nil
		}
		asked = f.drivers[holder]
	}
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
	return inTime(ctx, path, true, ask)
}

// silentTimeout is how long the directory or the volume of a driver is waited for.
const silentTimeout = 200 * time.Millisecond

// inTime returns the answer to a question about an object that may hang; silence if it does.
func inTime(ctx context.Context, object string, silence bool, ask func(ctx context.Context, object string) (bool, error)) (
	answer bool, err error) {
	answer = silence
	for _, outcome := range operation.Ask(ctx, []string{object}, silentTimeout, ask) {
		answer, err = outcome.Get()
	}
	return answer, cmp.Or(ctx.Err(), err)
}

// Holders of directories beside the drivers. No driver has such a name.
const (
	aPod    = "a pod?"
	aDriver = "a driver?" // which one doesn't matter
)

// holderOf returns who holds the directory at which a volume is mounted by its record: "" for nobody who may be hostile.
func (f *Finder) holderOf(ctx context.Context, path string, hosts map[string]bool) (holder string, err error) {
	if len(path) <= len(`C:\`) {
		return "", nil
	}
	if holder, isInside := f.holderByText(path); isInside {
		return holder, nil
	}
	if len(f.drivers) > 0 {
		host := path[:max(len(`C:\`), strings.Index(path, `}\`)+len(`}\`))] // or \\?\Volume{guid}\
		mayAsk, isKnown := hosts[host]
		if !isKnown {
			mayAsk, _ = inTime(ctx, host, false, f.ofNode().isOf(f.driver)) // without an answer, it may be another driver's
			hosts[host] = mayAsk
		}
		if !mayAsk {
			return aDriver, ctx.Err()
		}
	}
	inside, err := f.Shared.paths.Inside(ctx, f.sys, []string{path})
	if err != nil || len(inside) == 0 {
		return "", err
	}
	holder, _ = f.holderByText(inside[0])
	return holder, nil
}

// holderByText is holderOf for a path in the allowed directories.
func (f *Finder) holderByText(path string) (holder string, isInside bool) {
	parsed, err := f.Shared.paths.Parse(path, pathpolicy.MaxLongPath)
	if err != nil {
		return "", false
	}
	if f.Shared.paths.IsOfPod(parsed) {
		return aPod, true
	}
	return f.Shared.paths.DriverOf(parsed), true
}

// isOf returns the question whether the volume with a root directory belongs to a driver, or to nobody.
func (f *Finder) isOf(driver string) func(ctx context.Context, root string) (bool, error) {
	return func(ctx context.Context, root string) (_ bool, err error) {
		if len(root) == len(`C:\`) {
			if root, err = f.sys.VolumeNameForMountPoint(ctx, root); err != nil {
				return false, err
			}
		}
		owner, err := f.ownerOfVolume(ctx, csiproxy.VolumeID(root))
		return err == nil && (owner == "" || owner == driver), err
	}
}

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

// isNoMountPoint reports whether err, of the query which volume is mounted at a path, says that none is:
// the path isn't there, or is something else. An error that says that a device has left doesn't.
func isNoMountPoint(err error) bool {
	return errors.Is(err, fs.ErrNotExist) ||
		winerr.IsAny(err, winerr.ErrorNotAReparsePoint, winerr.ErrorInvalidReparseData, winerr.ErrorInvalidParameter,
			winerr.ErrorDirectory, winerr.ErrorInvalidName) // a file, by either of the last two
}
