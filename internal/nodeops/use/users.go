// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use

import (
	"cmp"
	"context"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
	"github.com/csi-proxy/csi-proxy/volume"
)

// Away reports whether a volume isn't there now: its disk has left the node, or is offline.
// It asks the volume itself. If Windows lists the volume, and yet it can't be opened, the
// error is csiproxy.ErrUnavailable.
func (o *Owner) Away(ctx context.Context, id volume.ID) (bool, error) {
	_, err := Extent(ctx, o.sys, id)
	if !win.IsGone(err) {
		return false, err
	}
	names, listErr := o.sys.FindVolumes(ctx)
	if listErr != nil {
		return false, listErr
	}
	if slices.ContainsFunc(names, func(name string) bool { return id.Equal(volume.ID(name)) }) {
		return false, &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
			Detail: "Windows lists the volume, but it can't be opened; try again later", Err: err}
	}
	return true, nil
}

// Directories returns those of paths that aren't drive letters. Windows gives letters by
// itself, so they say nothing of whether a volume is used.
func Directories(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return len(path) <= len(`C:\`) })
}

// Allowed returns those of the paths at which a volume is mounted that are below the allowed directories.
func (o *Owner) Allowed(ctx context.Context, paths []string) ([]string, error) {
	return o.paths.Inside(ctx, o.sys, paths)
}

// MountsAway reports whether a volume that isn't there is mounted in the allowed
// directories, as far as these can be looked at; if they can't, one may be.
func (o *Owner) MountsAway(ctx context.Context) (bool, error) {
	links, incomplete, err := o.paths.Links(ctx, o.sys)
	if err != nil || incomplete != nil {
		return true, err
	}
	for _, l := range links {
		if !l.Link.IsMountPoint() {
			continue
		}
		if _, err := Extent(ctx, o.sys, volume.ID(l.Link.Volume)); err != nil {
			return true, ctx.Err()
		}
	}
	return false, nil
}

// MountsOf returns where in the allowed directories volumes of a disk are mounted. It goes by what is
// found there, and not by what Windows says of the disk. It has an error unless all is known.
func (o *Owner) MountsOf(ctx context.Context, n disk.Number) (paths []string, _ error) {
	links, incomplete, err := o.paths.Links(ctx, o.sys)
	if err = cmp.Or(err, incomplete); err != nil {
		return nil, err
	}
	for _, l := range links {
		if !l.Link.IsMountPoint() {
			continue
		}
		extents, err := o.extentsIfThere(ctx, volume.ID(l.Link.Volume))
		if err != nil {
			return nil, &csiproxy.Error{Object: l.Path.String(), Err: err}
		}
		if slices.ContainsFunc(extents, func(e win.DiskExtent) bool { return e.DiskNumber == n }) {
			paths = append(paths, l.Path.String())
		}
	}
	return paths, nil
}

// extentsIfThere returns where a volume lies: nowhere if it is away.
func (o *Owner) extentsIfThere(ctx context.Context, id volume.ID) ([]win.DiskExtent, error) {
	extents, err := device.ExtentsOf(ctx, o.sys, device.VolumePath(string(id)))
	if win.IsGone(err) {
		away, awayErr := o.Away(ctx, id)
		if away {
			return nil, nil
		}
		err = cmp.Or(awayErr, err)
	}
	return extents, err
}

// LinksTo returns the links in the allowed directories that lead to a volume, also by way of
// other links. It has an error unless all are known.
func (o *Owner) LinksTo(ctx context.Context, id volume.ID) (links []string, _ error) {
	all, incomplete, err := o.paths.Links(ctx, o.sys)
	if err != nil {
		return nil, err
	}
	if incomplete != nil {
		return nil, unknownLinks(incomplete)
	}
	return o.LinksAmong(ctx, all, id)
}

// LinksAmong returns those of all links in the allowed directories that lead to a volume.
func (o *Owner) LinksAmong(ctx context.Context, all []pathpolicy.FoundLink, id volume.ID) (links []string, _ error) {
	byPath := make(map[string]pathpolicy.FoundLink, len(all))
	for _, l := range all {
		byPath[winname.Lower(l.Path.String())] = l
	}
	for _, l := range all {
		if l.Link.IsMountPoint() {
			continue
		}
		leads, err := o.leadsTo(ctx, l, id, byPath)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, unknownLinks(err)
		}
		if leads {
			links = append(links, l.Path.String())
		}
	}
	return links, nil
}

func unknownLinks(err error) error {
	return &csiproxy.Error{
		Kind: csiproxy.ErrUnavailable, Err: err,
		Detail: "whether pods use the volume can't be found out, since not all links to it are known; try again later",
	}
}

// leadsTo reports whether a link leads to a volume. The links and mount points that were
// found needn't be looked at again.
func (o *Owner) leadsTo(ctx context.Context, l pathpolicy.FoundLink, id volume.ID,
	found map[string]pathpolicy.FoundLink) (bool, error) {
	for range len(found) + 1 {
		switch l.Link.Kind {
		case pathpolicy.LinkToVolume:
			return id.Equal(volume.ID(l.Link.Volume)), nil
		case pathpolicy.LinkInside:
		default:
			return false, nil
		}
		next, ok := found[winname.Lower(l.Link.Path.String())]
		if !ok {
			return o.resolvesTo(ctx, l.Link.Path, id)
		}
		l = next
	}
	return false, nil // a circle
}

// resolvesTo reports whether a path leads to a volume or into it.
func (o *Owner) resolvesTo(ctx context.Context, path pathpolicy.Path, id volume.ID) (bool, error) {
	_, on, err := o.paths.ResolveVolume(ctx, o.sys, path)
	if win.IsGone(err) { // by way of a volume that isn't there, it seems
		_, on, err = o.paths.ResolveVolume(ctx, o.sys, path)
		if win.IsGone(err) {
			return false, nil
		}
	}
	if pathpolicy.LeadsOutside(err) {
		return false, nil
	}
	return err == nil && id.Equal(volume.ID(on)), err
}

// MostListed is how many paths Listed names.
const MostListed = 5

// Listed names at most five paths in an error.
func Listed(paths []string) string {
	text := strings.Join(paths[:min(len(paths), MostListed)], ", ")
	if len(paths) > MostListed {
		text += ", …"
	}
	return quote.Text(text)
}

// ProtectedDisks returns the disks of the volumes that the administrator protects.
func (o *Owner) ProtectedDisks(ctx context.Context) (map[disk.Number]bool, error) {
	volumes, err := o.paths.Protected(ctx, o.sys)
	if err != nil {
		return nil, err
	}
	protected := make(map[disk.Number]bool)
	for _, name := range volumes {
		extents, err := o.extentsIfThere(ctx, volume.ID(name))
		if err != nil {
			return nil, &csiproxy.Error{Object: "protected volume " + quote.Text(name), Err: err}
		}
		for _, e := range extents {
			protected[e.DiskNumber] = true
		}
	}
	return protected, nil
}
