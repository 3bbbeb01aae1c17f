// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Inside returns those of the paths at which Windows lists a volume as mounted that lie below the
// allowed directories. An allowed directory may be a link to another drive, or have a volume mounted
// at it or above. Windows lists a path without links then; the result begins with the allowed directory.
func (p *Policy) Inside(ctx context.Context, sys System, listed []string) (inside []string, _ error) {
	var roots []location // without links, in the order of p.roots; they are looked at once, if need be
	for _, at := range listed {
		if path, err := p.Parse(at, MaxLongPath); err == nil {
			if len(path.names) > 0 {
				inside = append(inside, path.String())
			}
			continue
		}
		found, ok, err := withoutLinks(ctx, sys, at)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if roots == nil {
			if roots, err = p.rootsWithoutLinks(ctx, sys); err != nil {
				return nil, err
			}
		}
		for i, root := range roots {
			if found.inside(root) && len(found.names) > len(root.names) {
				inside = append(inside, Path{root: p.roots[i], names: found.names[len(root.names):]}.String())
				break
			}
		}
	}
	return inside, nil
}

// withoutLinks returns the location of a path that has no links, with the volume in the drive's place.
// It is not ok for a drive itself, and for what isn't there.
func withoutLinks(ctx context.Context, sys System, path string) (l location, ok bool, err error) {
	if l, ok = onVolume(path); !ok {
		if l, err = split(path, ""); err != nil || len(l.names) == 0 {
			return l, false, nil
		}
		l.drive, err = volumeOfDrive(ctx, sys, l.drive)
	}
	l.drive = strings.ToLower(l.drive)
	return l, err == nil && l.drive != "" && len(l.names) > 0, err
}

// onVolume splits \\?\Volume{guid}\directory\name, with the volume in the drive's place.
func onVolume(path string) (l location, ok bool) {
	end := strings.Index(path, `}\`)
	if end < 0 {
		return l, false
	}
	l.drive, ok = volumeRoot(path[:end+len(`}\`)])
	if rest := strings.Trim(path[end+len(`}\`):], `\`); rest != "" {
		l.names = strings.Split(rest, `\`)
	}
	return l, ok
}

// rootsWithoutLinks returns where the outermost allowed directories are. One that isn't there has nothing
// below it, and is the zero value.
func (p *Policy) rootsWithoutLinks(ctx context.Context, sys System) (roots []location, _ error) {
	for _, root := range p.roots {
		var at location
		err := withFile(ctx, sys, root.String(), func(f win.File) error {
			path, err := f.FinalPath(ctx)
			at, _ = onVolume(path)
			at.drive = strings.ToLower(at.drive)
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, &csiproxy.Error{Object: root.String(), Err: err}
		}
		roots = append(roots, at)
	}
	return roots, nil
}
