// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
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

// Listed parses the paths at which Windows lists a volume as mounted. The returned paths have no
// trailing backslash after a directory. Paths below the allowed directories are in the policy's
// spelling.
//
// Windows lists paths without links. An allowed directory may be a link to another drive, or lie on
// or below a mounted volume, and a listed path may therefore lie in a directory of a driver or a
// pod under another spelling. To locate the allowed directories, Listed queries only the allowed
// directories, and leaves the listed paths alone.
func (p *Policy) Listed(ctx context.Context, sys System, mountPaths []string) (paths []Path, err error) {
	var roots []realRoot
	for _, text := range mountPaths {
		l, ok := splitListed(text)
		if !ok {
			continue
		}
		path := p.fromListed(l)
		isKnown := !path.IsOutside() && (len(p.roots) == 1 || l.inside(p.allowed[0]) || p.DriverOf(path) != "")
		if !isKnown && len(l.names) > 0 {
			if roots == nil {
				if roots, err = p.realRoots(ctx, sys, mountPaths); err != nil {
					return nil, err
				}
			}
			path = p.fromListed(p.respell(roots, l))
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// ParseListed parses the text of a path returned by Listed.
func (p *Policy) ParseListed(mountPath string) Path {
	l, _ := splitListed(mountPath)
	return p.fromListed(l)
}

// DriversAt returns the drivers whose own directories hold the listed mount points of a volume.
// Drives are ignored. The result contains "" if the volume is also mounted elsewhere.
func (p *Policy) DriversAt(ctx context.Context, sys System, mountPaths []string) (drivers map[string]bool, _ error) {
	paths, err := p.Listed(ctx, sys, mountPaths)
	drivers = make(map[string]bool)
	for _, path := range paths {
		if !path.IsDrive() {
			drivers[p.DriverOf(path)] = true
		}
	}
	return drivers, err
}

func (p *Policy) fromListed(l location) Path {
	if path, ok := p.locate(l); ok && len(path.names) > 0 {
		return path
	}
	return Path{volume: strings.TrimSuffix(l.drive, `\`) + `\`, names: l.names}
}

// IsOutside reports whether a path of Listed lies outside of the allowed directories.
func (p Path) IsOutside() bool { return p.volume != "" }

// IsListedOutside combines ParseListed and IsOutside.
func (p *Policy) IsListedOutside(mountPath string) bool { return p.ParseListed(mountPath).IsOutside() }

// IsDrive reports whether a path of Listed is a drive, such as C:\.
func (p Path) IsDrive() bool { return len(p.names) == 0 }

// splitListed splits a path listed by Windows. Its names may be invalid for operations.
func splitListed(path string) (l location, ok bool) {
	if l, ok = onVolume(path); ok {
		return l, true
	}
	drive, rest, _ := strings.Cut(path, `\`)
	l.drive, ok = driveLetter(drive)
	l.names = splitNames(rest)
	return l, ok && len(drive) == len("C:")
}

// realRoot is an allowed directory with one of its paths without links.
type realRoot struct {
	path, root location // root is the allowed directory
}

// maxRealRoots limits the paths below mount points: a driver may have planted any number of mount
// points.
const maxRealRoots = 100

// realRoots returns the paths without links of the outermost allowed directories. Listed paths may
// lie in any of them.
func (p *Policy) realRoots(ctx context.Context, sys System, mountPaths []string) (roots []realRoot, _ error) {
	for _, root := range p.roots {
		roots = append(roots, realRoot{root, root})
		resolved, err := withoutLinksAt(ctx, sys, root)
		if err != nil {
			return nil, err
		}
		if resolved.drive == "" {
			continue
		}
		names, err := sys.VolumePathNames(ctx, resolved.drive)
		if errors.Is(err, winerr.ErrorMoreData) {
			names, err = drivesOf(ctx, sys, mountPaths, resolved.drive), nil
		}
		if err != nil && !winerr.IsGone(err) {
			return nil, err
		}
		for _, name := range append(names, resolved.drive) {
			start, ok := splitListed(name)
			if !ok {
				continue
			}
			if len(start.names) == 0 || len(roots) < maxRealRoots {
				roots = append(roots, realRoot{start.below(resolved.names...), root})
			}
		}
	}
	return roots, nil
}

// drivesOf returns the drives of a volume among listed paths. A drive that fails to answer within
// 200 ms counts as another volume's.
func drivesOf(ctx context.Context, sys System, mountPaths []string, volume string) (drives []string) {
	var all []string
	for _, path := range mountPaths {
		if drive, _, _ := strings.Cut(path, `\`); len(drive) == len("C:") && !slices.Contains(all, drive) {
			all = append(all, drive)
		}
	}
	const timeout = 200 * time.Millisecond
	for drive, outcome := range operation.Ask(ctx, all, timeout, func(ctx context.Context, drive string) (bool, error) {
		there, err := volumeOfDrive(ctx, sys, drive)
		return strings.EqualFold(there, volume), err
	}) {
		if isOfVolume, err := outcome.Get(); err == nil && isOfVolume {
			drives = append(drives, drive+`\`)
		}
	}
	return drives
}

// respell returns a location in the spelling of the allowed directory around it. If several allowed
// directories hold the location, the first spelling that belongs to a pod or a driver takes
// precedence.
func (p *Policy) respell(roots []realRoot, l location) location {
	found := l
	for _, dir := range roots {
		if !l.inside(dir.path) {
			continue
		}
		respelt := dir.root.below(l.names[len(dir.path.names):]...)
		if path := p.fromListed(respelt); p.IsOfPod(path) || p.DriverOf(path) != "" {
			return respelt
		}
		if p.fromListed(found).IsOutside() {
			found = respelt
		}
	}
	return found
}

// VolumeAt returns the volume mounted at a listed path, or "" if there is none. Below the path's
// first directory, VolumeAt follows no link: anybody with write access there could have planted a
// link, even to another machine. In the allowed directories, a link or a mounted volume on the way
// means "". On all other paths, the error is then winerr.ErrorReparsePointEncountered.
func (p *Policy) VolumeAt(ctx context.Context, sys System, path string) (volume string, err error) {
	mountPath := p.ParseListed(path)
	if mountPath.IsDrive() {
		return volumeOfDrive(ctx, sys, strings.TrimSuffix(mountPath.volume, `\`))
	}
	volume, err = p.volumeMountedAt(ctx, sys, mountPath)
	if Missing(err) || winerr.IsAny(err, winerr.ErrorNotAReparsePoint, winerr.ErrorInvalidReparseData, winerr.ErrorDeletePending) {
		return "", nil
	}
	if !mountPath.IsOutside() && errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return "", nil
	}
	return volume, err
}

func (p *Policy) volumeMountedAt(ctx context.Context, sys System, path Path) (volume string, err error) {
	w := p.Walk(sys)
	defer w.CloseInto(&err)
	f, err := w.openWhole(ctx, path, ForAttributes)
	if errors.Is(err, winerr.ErrorReparsePointEncountered) && !path.IsOutside() { // a link, or a bind filter
		last := len(path.names) - 1
		dir, openErr := w.at.openEach(ctx, path.names[:last])
		if err = openErr; err == nil {
			f, err = dir.Entry(path.names[last]).Open(ctx, ForAttributes)
		}
	}
	if err != nil {
		return "", err
	}
	link, err := f.Link(ctx)
	if link.IsMountPoint() {
		volume = link.Volume
	}
	return volume, err
}

// onVolume splits \\?\Volume{guid}\directory\name. The location has the volume in place of the
// drive.
func onVolume(path string) (l location, ok bool) {
	end := strings.Index(path, `}\`)
	if end < 0 {
		return l, false
	}
	l.drive, ok = volumeRoot(path[:end+len(`}\`)])
	l.names = splitNames(path[end+len(`}\`):])
	return l, ok
}

// splitNames splits a path below a drive or a volume.
func splitNames(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '\\' })
}

// withoutLinksAt resolves the links in the location of an administrator's directory or file. The
// result has the volume in place of the drive. Missing elements stay as they are. If the drive is
// missing, or belongs to another machine, the result is the zero value.
func withoutLinksAt(ctx context.Context, sys System, l location) (resolved location, _ error) {
	for n := len(l.names); n >= 0; n-- {
		path := location{l.drive, l.names[:n]}.String()
		final, err := finalPath(ctx, sys, path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, winerr.ErrorDirectory) {
			continue
		}
		if err != nil {
			return location{}, &csiproxy.Error{Object: path, Err: err}
		}
		resolved, _ = onVolume(final)
		return resolved.below(l.names[n:]...), nil
	}
	return location{}, nil
}
