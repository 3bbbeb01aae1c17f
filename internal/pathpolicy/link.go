// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// LinkKind tells where a link leads.
type LinkKind int

// Kinds of links.
const (
	LinkOutside  LinkKind = iota // to somewhere that isn't allowed, or unknown
	LinkInside                   // a symlink or junction to a Path
	LinkToVolume                 // a mount point of a volume, or a link to its root
	LinkToShare                  // a symlink to a UNC path
)

// Link is a reparse point as it was read. What it leads to may not exist.
type Link struct {
	win.ReparsePoint
	Kind   LinkKind
	Path   Path   // of LinkInside
	Volume string // of LinkToVolume: \\?\Volume{guid}\
}

// IsMountPoint reports whether the mount manager has mounted a volume there. A symlink can
// lead to the root of a volume, too.
func (l Link) IsMountPoint() bool { return l.Kind == LinkToVolume && l.Tag == win.TagMountPoint }

// MakeSymlink makes the entry a symlink to target, as win.NewSymlink takes it: one to a file,
// or to a directory. If a symlink is there already and same is true of it, that is a success,
// and made is false. Anything else there stays, and the error is csiproxy.ErrAlreadyExists.
//
// Windows makes a link in two steps. If the process dies between them, an empty
// directory or file is left. It is not taken for a link half made, since somebody
// may need it as it is.
//
// A link where Links doesn't come by itself is recorded first, so that Links finds it.
func (e Entry) MakeSymlink(ctx context.Context, target string, file bool, same func(Link) bool) (made bool, _ error) {
	if err := e.CheckReplaceable(); err != nil {
		return false, err
	}
	const attempts = 4
	for range attempts {
		err := e.recorded(ctx, target, func() error { return e.makeSymlink(ctx, target, file) })
		if !errors.Is(err, win.ErrorAlreadyExists) {
			return err == nil, err
		}
		link, err := e.Link(ctx)
		if errors.Is(err, win.ErrorNotAReparsePoint) {
			if err = e.awaitMaker(ctx); err == nil {
				link, err = e.Link(ctx)
			}
		}
		switch {
		case Missing(err): // somebody has removed it meanwhile
			continue
		case errors.Is(err, win.ErrorNotAReparsePoint):
			return false, csiproxy.Errorf(csiproxy.ErrAlreadyExists, "a file or directory is there already")
		case err != nil:
			return false, err
		case link.Tag == win.TagSymlink && same(link):
			return false, e.recorded(ctx, link.Target(), func() error { return nil }) // others may have made it
		}
		return false, &csiproxy.Error{Kind: csiproxy.ErrAlreadyExists,
			Detail: "a link is there already, to " + quote.Text(link.Target())}
	}
	return false, errUnsettled()
}

func errUnsettled() error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "other processes keep making and removing it; try again later")
}

// RemoveEmptyDirectory removes an empty directory, such as MakeSymlink leaves if its process
// dies, and reports whether it has. Anything else stays. A directory that has entries gives
// win.ErrorDirNotEmpty, and nothing there an error of which Missing is true.
func (e Entry) RemoveEmptyDirectory(ctx context.Context) (removed bool, _ error) {
	if err := e.CheckReplaceable(); err != nil {
		return false, err
	}
	o := win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen, Options: win.FileDirectoryFile}
	err := e.With(ctx, o, func(dir *File) error {
		info, err := dir.Info(ctx)
		if err == nil && !info.IsReparsePoint() {
			err = dir.Delete(ctx)
			removed = err == nil
		}
		return err
	})
	if errors.Is(err, win.ErrorDirectory) {
		return false, nil // a file
	}
	return removed, err
}

// Link opens the entry and reads it.
func (e Entry) Link(ctx context.Context) (link Link, _ error) {
	err := e.With(ctx, Look, func(f *File) (err error) {
		link, err = f.Link(ctx)
		return err
	})
	return link, err
}

// awaitMaker waits for another call that is about to make the entry a link: that one
// keeps it from being opened for deletion.
func (e Entry) awaitMaker(ctx context.Context) error {
	return e.With(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen}, func(*File) error { return nil })
}

func (e Entry) makeSymlink(ctx context.Context, target string, file bool) error {
	o := win.OpenOptions{
		Access:      win.FileWriteAttributes | win.Delete,
		Disposition: win.FileCreate,
		Options:     win.FileDirectoryFile,
	}
	if file {
		o.Options = win.FileNonDirectoryFile
	}
	link, err := e.Open(ctx, o)
	if err != nil {
		return err
	}
	_, err = link.handle.Control(ctx, win.FsctlSetReparsePoint, win.NewSymlink(target).Encode(), nil)
	if err == nil {
		return nil
	}
	if removeErr := link.handle.Delete(context.WithoutCancel(ctx)); removeErr != nil {
		return &csiproxy.Error{Kind: csiproxy.KindOf(err), Detail: "an empty file or directory is left: " + removeErr.Error(),
			Err: err}
	}
	return err
}

// Link reads the link or mount point f. Of other files it gives
// win.ErrorNotAReparsePoint.
func (f *File) Link(ctx context.Context) (Link, error) {
	buf := make([]byte, win.MaximumReparseDataSize)
	n, err := f.handle.Control(ctx, win.FsctlGetReparsePoint, nil, buf)
	if err != nil {
		return Link{}, err
	}
	r, err := win.DecodeReparsePoint(buf[:n])
	if err != nil {
		return Link{}, err
	}
	link := Link{ReparsePoint: r}
	if target := r.Target(); r.Tag == win.TagMountPoint || r.Tag == win.TagSymlink {
		if volume, ok := volumeRoot(target); ok {
			link.Kind, link.Volume = LinkToVolume, volume
		} else if isUNC(target) && !r.Relative {
			link.Kind = LinkToShare
		} else if path, ok := f.entry.walk.policy.target(f.entry.dirPath(), r); ok {
			link.Kind, link.Path = LinkInside, path
		}
	}
	return link, nil
}

// volumeRoot recognises \\?\Volume{guid}, with or without a backslash at the end,
// and returns it with one. A directory of a volume is something else.
func volumeRoot(target string) (string, bool) {
	const prefix = `\\?\Volume{`
	name := strings.TrimSuffix(target, `\`)
	if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
		return "", false
	}
	guid, ok := strings.CutSuffix(name[len(prefix):], "}")
	if ok {
		_, ok = win.ParseGUID(guid)
	}
	return name + `\`, ok
}

func isUNC(target string) bool {
	return strings.HasPrefix(target, `\\`) && !strings.HasPrefix(target, `\\?\`) && !strings.HasPrefix(target, `\\.\`)
}

// target returns the path that a link in the directory dir leads to, if that is
// inside.
func (p *Policy) target(dir Path, r win.ReparsePoint) (Path, bool) {
	target := r.Target()
	if !r.Relative {
		l, err := split(target, "")
		if err != nil {
			return Path{}, false
		}
		return p.locate(l)
	}
	names := slices.Clone(dir.names)
	if dir.volume == "" {
		names = dir.full().names
	}
	if strings.HasPrefix(target, `\`) {
		names = nil // relative to the drive or volume only
	}
	for name := range strings.SplitSeq(target, `\`) {
		switch {
		case name == "" || name == ".":
		case name == ".." && len(names) > 0:
			names = names[:len(names)-1]
		case checkName(name) != nil:
			return Path{}, false
		default:
			names = append(names, name)
		}
	}
	if dir.volume != "" {
		return Path{volume: dir.volume, names: names}, true
	}
	return p.locate(location{dir.root.drive, names})
}

// dirPath is the path of the directory that has the entry.
func (e Entry) dirPath() Path {
	if e.dir == nil {
		return e.start
	}
	return e.dir.entry.path()
}

// follow returns where the path goes on behind f, which is a link on the way.
func (w *walk) follow(ctx context.Context, f *File, link Link) (Path, error) {
	if err := w.count(f.entry); err != nil {
		return Path{}, err
	}
	switch link.Kind {
	case LinkInside:
		return link.Path, nil
	case LinkToVolume:
		return Path{volume: link.Volume}, w.checkVolume(ctx, link, f.entry)
	}
	return Path{}, f.entry.outside(link)
}

// count refuses to follow links without end.
func (w *walk) count(e Entry) error {
	if w.links++; w.links > maxLinks {
		return e.refused(csiproxy.ErrFailedPrecondition, "the path leads through too many links")
	}
	return nil
}

func (e Entry) outside(link Link) error {
	return e.refused(csiproxy.ErrPermissionDenied,
		"it is a link out of the allowed directories, to "+quote.Text(link.Target()))
}

// checkVolume refuses a link to a volume that is protected.
func (w *walk) checkVolume(ctx context.Context, link Link, e Entry) error {
	reason, err := w.policy.Protects(ctx, w.sys, link.Volume)
	if err == nil && reason != "" {
		err = e.outside(link)
	}
	return err
}
