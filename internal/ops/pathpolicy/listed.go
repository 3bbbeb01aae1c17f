// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Inside returns those of listed that lie below the allowed directories. listed are paths at which
// Windows lists a volume as mounted. They have no links in them, while an allowed directory may be a
// link to another drive, or have a volume mounted at it or above. The result begins with the allowed
// directory.
func (p *Policy) Inside(ctx context.Context, sys System, listed []string) (inside []string, _ error) {
	var roots []location // without links, in the order of p.roots; nil until they are needed
	for _, listedPath := range listed {
		if path, err := p.Parse(listedPath, MaxLongPath); err == nil {
			if len(path.names) > 0 {
				inside = append(inside, path.String())
			}
			continue
		}
		found, ok, err := withoutLinks(ctx, sys, listedPath)
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

// withoutLinks resolves the links of a path, and returns its location with the volume in the drive's
// place. ok is false for a drive itself, and for a path that isn't there.
func withoutLinks(ctx context.Context, sys System, path string) (l location, ok bool, err error) {
	if l, ok = onVolume(path); !ok {
		if l, err = split(path, ""); err != nil || len(l.names) == 0 {
			return l, false, nil
		}
		l.drive, err = volumeOfDrive(ctx, sys, l.drive)
	}
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

// rootsWithoutLinks returns the locations of the outermost allowed directories without links.
func (p *Policy) rootsWithoutLinks(ctx context.Context, sys System) (roots []location, _ error) {
	for _, root := range p.roots {
		resolved, err := withoutLinksAt(ctx, sys, root)
		if err != nil {
			return nil, err
		}
		roots = append(roots, resolved)
	}
	return roots, nil
}

// withoutLinksAt returns the location of a directory or file of the administrator's without links, with the volume in the drive's
// place. If it isn't there, what is missing is taken as it is. If the drive isn't there, or is another machine's, the location is
// the zero value.
func withoutLinksAt(ctx context.Context, sys System, l location) (resolved location, _ error) {
	for n := len(l.names); n >= 0; n-- {
		path := location{l.drive, l.names[:n]}.String()
		err := withFile(ctx, sys, path, func(f win.File) error {
			final, err := f.FinalPath(ctx)
			resolved, _ = onVolume(final)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, winerr.ErrorDirectory) {
			continue
		}
		if err != nil {
			return location{}, &csiproxy.Error{Object: path, Err: err}
		}
		return resolved.below(l.names[n:]...), nil
	}
	return location{}, nil
}
