// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// PlaceKind tells what a path comes to.
type PlaceKind int

// Kinds of places.
const (
	Missing    PlaceKind = iota // nothing is there, or one of the directories to it isn't
	Directory                   // a plain directory
	File                        // a file
	MountPoint                  // a directory at which a volume is mounted
	Share                       // a UNC path
)

// Place is what a path comes to when all links are followed, the last element's
// too.
type Place struct {
	Kind PlaceKind
	// Volume is \\?\Volume{guid}\: of a MountPoint the volume mounted there, which
	// may have left the node; else the volume on which the place is, or the nearest
	// existing directory above a missing one, if the way led through a mount point.
	Volume string
	// Allowed is the path of the allowed directory that the place is in, where
	// Volume is empty. Its volume is that of the place.
	Allowed string
	// Target is the path behind the last link: of a Share \\server\share….
	Target string
}

// Resolve follows path to its end. Links in the middle and at the end are followed
// by the rules of Reach, but a path may end at a share. A missing place, a dangling
// link too, is no error.
func (p *Policy) Resolve(ctx context.Context, sys System, path Path) (place Place, err error) {
	err = p.hold(sys, func(h *Held) error {
		for linked := true; linked; {
			err := h.walk(ctx, path, win.FileOpen)
			if err == nil {
				path, linked, err = h.look(ctx, &place)
			}
			if gone(err) {
				place.Kind, linked = Missing, false
			} else if err != nil {
				return err
			}
		}
		if place.Volume == "" {
			if place.Volume = h.at.volume; place.Volume == "" {
				place.Allowed = h.at.root.String()
			}
		}
		return nil
	})
	return place, err
}

// gone reports whether err says that a path, or the volume that it leads into,
// isn't there.
func gone(err error) bool {
	var errno win.Errno
	return errors.As(err, &errno) && (errno.Gone() || errno == win.ErrorDirectory)
}

// look sees what the last element is. If it is a link to another path inside, it
// returns that.
func (h *Held) look(ctx context.Context, place *Place) (next Path, linked bool, err error) {
	f, err := h.Open(ctx, win.OpenOptions{Disposition: win.FileOpen})
	if err != nil {
		return Path{}, false, h.unreached(err)
	}
	info, err := f.Info(ctx)
	if err != nil {
		return Path{}, false, h.unreached(err)
	}
	switch {
	case h.name == "": // links at an allowed directory are the administrator's
		place.Kind = Directory
		return Path{}, false, nil
	case !info.IsReparsePoint() && info.IsDir():
		place.Kind = Directory
		return Path{}, false, nil
	case !info.IsReparsePoint():
		place.Kind = File
		return Path{}, false, nil
	}
	link, err := h.ReadLink(ctx, f)
	if err != nil {
		return Path{}, false, h.unreached(err)
	}
	if err := h.count(); err != nil {
		return Path{}, false, err
	}
	place.Target = link.Target()
	switch link.Kind {
	case LinkInside:
		return link.Path, true, nil
	case LinkToVolume:
		place.Kind, place.Volume = MountPoint, link.Volume
		return Path{}, false, h.checkVolume(ctx, link)
	case LinkToShare:
		place.Kind = Share
		return Path{}, false, nil
	}
	return Path{}, false, h.outside(link)
}

// Exists reports whether there is a file, directory or link at path. The last
// element isn't followed: a dangling link exists.
func (p *Policy) Exists(ctx context.Context, sys System, path Path) (bool, error) {
	// Without a link on the way, one open does.
	err := p.hold(sys, func(h *Held) error {
		if err := h.enter(ctx, path, win.FileOpen); err != nil {
			return err
		}
		h.name = strings.Join(path.names, `\`)
		_, err := h.Open(ctx, win.OpenOptions{Disposition: win.FileOpen})
		return err
	})
	if errors.Is(err, win.ErrorReparsePointEncountered) {
		err = p.existsBehindLinks(ctx, sys, path)
	}
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

func (p *Policy) existsBehindLinks(ctx context.Context, sys System, path Path) error {
	return p.Reach(ctx, sys, path, func(h *Held) error {
		_, err := h.Open(ctx, win.OpenOptions{Disposition: win.FileOpen})
		return err
	})
}
