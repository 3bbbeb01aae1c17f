// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// LinkKind is the kind of a link's target.
type LinkKind int

// Kinds of links.
const (
	LinkOutside  LinkKind = iota // to a place that is forbidden or unknown
	LinkInside                   // a symlink or junction to a Path
	LinkToVolume                 // a mount point of a volume, or a link to its root
	LinkToShare                  // a symlink to a UNC path
)

// Link is a reparse point. Its target may be missing.
type Link struct {
	win.ReparsePoint
	Kind   LinkKind
	Path   Path   // of LinkInside
	Volume string // of LinkToVolume: \\?\Volume{guid}\
}

// IsMountPoint reports whether the mount manager has mounted a volume there. A symlink to the root
// of a volume is no mount point.
func (l Link) IsMountPoint() bool { return l.Kind == LinkToVolume && l.Tag == win.TagMountPoint }

// MakeSymlink makes the entry a symlink to target, in the form for win.NewSymlink. file selects a
// link to a file rather than a directory. If there is already a symlink for which same is true,
// MakeSymlink succeeds, and made is false. Anything else stays in place, and the error is
// csiproxy.ErrAlreadyExists.
//
// Windows makes a link in two steps. If the process dies between them, an empty directory or file
// is left. A later call leaves it alone: somebody may need the empty directory or file.
//
// A link to a share counts as a use of the share's mapping. MakeSymlink refuses to link to a share
// in directories that Links skips: see CheckSearched.
func (e Entry) MakeSymlink(ctx context.Context, target string, file bool, same func(Link) bool) (made bool, _ error) {
	if err := e.CheckReplaceable(); err != nil {
		return false, err
	}
	if err := cmp.Or(e.checkCreation(true), e.checkLinkTarget(target)); err != nil {
		return false, err
	}
	if isUNC(target) {
		if err := e.CheckSearched(); err != nil {
			return false, err
		}
	}
	const attempts = 4
	for range attempts {
		err := e.makeSymlink(ctx, target, file)
		if !errors.Is(err, winerr.ErrorAlreadyExists) {
			return err == nil, err
		}
		link, err := e.settledLink(ctx)
		if Missing(err) { // the entry was removed meanwhile
			continue
		}
		if errors.Is(err, winerr.ErrorNotAReparsePoint) {
			return false, csiproxy.Errorf(csiproxy.ErrAlreadyExists, "a file or directory is there already")
		}
		if err != nil {
			return false, err
		}
		if link.Tag == win.TagSymlink && same(link) {
			return false, nil
		}
		return false, &csiproxy.Error{Kind: csiproxy.ErrAlreadyExists,
			Detail: "a link is there already, to " + quote.Text(link.Target())}
	}
	return false, errUnsettled()
}

func errUnsettled() error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "other processes keep making and removing it; try again later")
}

// RemoveEmptyDirectory removes an empty directory, such as the remains of an interrupted
// MakeSymlink, and reports whether it did. Files and links stay. If the directory has entries, the
// error is winerr.ErrorDirNotEmpty. If nothing is there, Missing is true of the error.
func (e Entry) RemoveEmptyDirectory(ctx context.Context) (removed bool, err error) {
	if err := e.CheckReplaceable(); err != nil {
		return false, err
	}
	dir, err := e.Open(ctx,
		win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen, Options: win.FileDirectoryFile})
	if errors.Is(err, winerr.ErrorDirectory) {
		return false, nil // a file
	}
	if err != nil {
		return false, err
	}
	defer dir.CloseInto(&err)
	info, err := dir.Info(ctx)
	if err != nil || info.IsReparsePoint() {
		return false, err
	}
	if err := dir.Delete(ctx); err != nil {
		return false, err
	}
	return true, nil
}

// Link opens the entry and reads its link.
func (e Entry) Link(ctx context.Context) (link Link, err error) {
	f, err := e.Open(ctx, ForAttributes)
	if err != nil {
		return Link{}, err
	}
	defer f.CloseInto(&err)
	return f.Link(ctx)
}

// settledLink is Link, but first waits for calls that create or remove the entry. Like these calls,
// settledLink opens the entry for deletion, and Windows allows only one such open at a time.
func (e Entry) settledLink(ctx context.Context) (link Link, err error) {
	f, err := e.Open(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
	if err != nil {
		return Link{}, err
	}
	defer f.CloseInto(&err)
	return f.Link(ctx)
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

// usualReparseDataSize fits the target of a mount point, or of a link made by kubelet or a driver.
// Buffers of the maximum size were a third of the memory allocated by unstaging.
const usualReparseDataSize = 1024

// Link reads the link or mount point f. For other files the error is winerr.ErrorNotAReparsePoint.
func (f *File) Link(ctx context.Context) (Link, error) {
	buf := make([]byte, usualReparseDataSize)
	n, err := f.handle.Control(ctx, win.FsctlGetReparsePoint, nil, buf)
	if errors.Is(err, winerr.ErrorMoreData) {
		buf = make([]byte, win.MaximumReparseDataSize)
		n, err = f.handle.Control(ctx, win.FsctlGetReparsePoint, nil, buf)
	}
	if err != nil {
		return Link{}, err
	}
	r, err := win.DecodeReparsePoint(buf[:n])
	if err != nil {
		return Link{}, err
	}
	link := Link{ReparsePoint: r}
	var dir Path
	if r.Relative {
		dir = f.entry.dirPath()
	}
	if target := r.Target(); r.Tag == win.TagMountPoint || r.Tag == win.TagSymlink {
		if volume, ok := volumeRoot(target); ok {
			link.Kind, link.Volume = LinkToVolume, volume
		} else if isUNC(target) && !r.Relative {
			link.Kind = LinkToShare
		} else if path, ok := f.entry.walk.policy.target(dir, r); ok {
			link.Kind, link.Path = LinkInside, path
		}
	}
	return link, nil
}

// volumeRoot parses \\?\Volume{guid}, with or without a backslash at the end, and returns the name
// with a backslash. A directory on a volume is rejected.
func volumeRoot(target string) (string, bool) {
	const prefix = `\\?\Volume{`
	name := strings.TrimSuffix(target, `\`)
	if len(name) < len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
		return "", false
	}
	guid, ok := strings.CutSuffix(name[len(prefix):], "}")
	if ok {
		_, ok = winid.ParseGUID(guid)
	}
	return name + `\`, ok
}

func isUNC(target string) bool {
	return strings.HasPrefix(target, `\\`) && !strings.HasPrefix(target, `\\?\`) && !strings.HasPrefix(target, `\\.\`)
}

// target returns the target path of a link in the directory dir, if the target is inside the
// allowed directories.
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
		names = nil // the target is relative to the drive or volume
	}
	for name := range strings.SplitSeq(target, `\`) {
		if name == "" || name == "." {
			continue
		}
		if name == ".." && len(names) > 0 {
			names = names[:len(names)-1]
			continue
		}
		if checkName(name) != nil {
			return Path{}, false
		}
		names = append(names, name)
	}
	if dir.volume != "" {
		return Path{volume: dir.volume, names: names}, true
	}
	return p.locate(location{dir.root.drive, names})
}

// dirPath is the path of the entry's directory.
func (e Entry) dirPath() Path {
	if e.dir == nil {
		return e.start
	}
	return e.dir.entry.path()
}

// follow returns the path behind f, a link on the way.
func (w *Walk) follow(ctx context.Context, f *File, link Link) (Path, error) {
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

// count counts a followed link, and returns an error if there are too many.
func (w *Walk) count(e Entry) error {
	if w.links++; w.links > maxLinks {
		return e.refused(csiproxy.ErrFailedPrecondition, "the path leads through too many links")
	}
	return nil
}

func (e Entry) outside(link Link) error {
	return e.refused(csiproxy.ErrPermissionDenied, e.walk.policy.OutsideDetail(link))
}

// OutsideDetail says why a link is not followed: it leads out of the policy's directories. A
// driver's error leaves out the target, which may belong to another driver.
func (p *Policy) OutsideDetail(link Link) string {
	if p.driverPaths != nil {
		return "it is a link out of the driver's directories"
	}
	return "it is a link out of the allowed directories, to " + quote.Text(link.Target())
}

// checkVolume returns an error if a link leads to a protected volume.
func (w *Walk) checkVolume(ctx context.Context, link Link, e Entry) error {
	reason, err := w.policy.Protects(ctx, w.sys, link.Volume)
	if err != nil || reason == "" {
		return err
	}
	return e.outside(link)
}
