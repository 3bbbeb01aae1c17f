// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// filesystemOptions configure the operations.
type filesystemOptions struct {
	// Logger gets each change of the node, and problems that an operation tolerates.
	Logger *slog.Logger
	// Observer is called after each operation. Default: none.
	Observer operation.Observer
	// Locks locks the objects of changing calls; queries take no locks. All groups of a node,
	// or of a driver, share one Locker.
	Locks *usage.Locker
}

// Filesystem has the operations on the node's directories and links. All methods may be called
// concurrently.
//
// All methods take absolute paths of at most 260 UTF-16 units. A bad path, or a path outside the
// allowed directories, is csiproxy.ErrInvalidArgument. A link leading outside is
// csiproxy.ErrPermissionDenied. If another process keeps a file open that is in the way, the
// operation waits for up to a second, and then fails with csiproxy.ErrUnavailable.
type Filesystem struct {
	sys     win.System
	paths   *pathpolicy.Policy
	shares  *shares.Mappings
	options filesystemOptions
	limits  limits
	trees   openTrees
}

// newFilesystem returns the operations on the files of sys within paths. Links may lead to the shares in
// mapped.
func newFilesystem(sys win.System, paths *pathpolicy.Policy, mapped *shares.Mappings, o filesystemOptions) *Filesystem {
	return &Filesystem{sys: sys, paths: paths, shares: mapped, options: o, limits: defaultLimits}
}

// parse parses a path of the API.
func (f *Filesystem) parse(path string) (pathpolicy.Path, error) {
	return f.paths.Parse(path, pathpolicy.MaxPath)
}

// PathExists implements [published.FilesystemOperations].
func (f *Filesystem) PathExists(ctx context.Context, path string) (_ bool, err error) {
	defer f.options.Observer.End("PathExists", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return false, err
	}
	return f.paths.Exists(ctx, f.sys, p)
}

// Mkdir implements [published.FilesystemOperations].
func (f *Filesystem) Mkdir(ctx context.Context, path string) (err error) {
	defer f.options.Observer.End("Mkdir", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return err
	}
	return f.mkdir(ctx, p)
}

func (f *Filesystem) mkdir(ctx context.Context, p pathpolicy.Path) (err error) {
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	e, err := walk.ReachOrMake(ctx, p)
	if err != nil {
		return err
	}
	dir, err := e.Open(ctx, pathpolicy.Directory(win.FileCreate))
	if err == nil {
		f.options.Logger.Info("directory made", "path", e.Path())
		return nil
	}
	// Windows may refuse to create the root of a drive instead of reporting its existence.
	if errors.Is(err, fs.ErrExist) || errors.Is(err, winerr.ErrorAccessDenied) {
		dir, err = e.Open(ctx, pathpolicy.Directory(win.FileOpenIf))
	}
	if errors.Is(err, winerr.ErrorDirectory) {
		return &csiproxy.Error{Kind: csiproxy.ErrAlreadyExists, Detail: "it is a file", Err: err}
	}
	if err != nil {
		return err
	}
	info, err := dir.Info(ctx)
	if err != nil || !info.IsReparsePoint() {
		return err
	}
	if err := walk.Close(); err != nil {
		return err
	}
	to, err := f.paths.Resolve(ctx, f.sys, p)
	if err != nil {
		return err
	}
	if to.Kind != pathpolicy.PlainDirectory && to.Kind != pathpolicy.MountedVolume {
		return csiproxy.Errorf(csiproxy.ErrAlreadyExists, "it is a link that doesn't lead to a directory")
	}
	return nil
}

// IsSymlink implements [published.FilesystemOperations].
func (f *Filesystem) IsSymlink(ctx context.Context, path string) (_ bool, err error) {
	defer f.options.Observer.End("IsSymlink", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return false, err
	}
	found, err := f.paths.AskByName(ctx, f.sys, p)
	if found == pathpolicy.NothingByName || found == pathpolicy.PlainByName || err != nil {
		return false, err
	}
	link, err := f.linkAt(ctx, p)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The published daemon answers true only if the target exists.
	if link.Kind == pathpolicy.LinkInside {
		return f.paths.Exists(ctx, f.sys, link.Path)
	}
	if link.Kind == pathpolicy.LinkToVolume {
		_, err := f.sys.FileAttributes(ctx, link.Volume)
		return exists(err)
	}
	if link.Kind == pathpolicy.LinkToShare {
		// IsSymlink doesn't ask the server. With a server that is down, or refuses the password by
		// now, the resulting error would keep a driver from staging anything new at the path.
		_, mapped, err := f.mappedShare(ctx, link.Target())
		return mapped, err
	}
	if link.Tag != win.TagSymlink && link.Tag != win.TagMountPoint {
		return false, nil // a reparse point of a file system filter
	}
	return false, &csiproxy.Error{
		Kind:   csiproxy.ErrPermissionDenied,
		Detail: f.paths.OutsideDetail(link),
	}
}

// linkAt reads the link at a path.
func (f *Filesystem) linkAt(ctx context.Context, p pathpolicy.Path) (link pathpolicy.Link, err error) {
	walk := f.paths.Walk(f.sys)
	defer walk.CloseInto(&err)
	e, err := walk.Reach(ctx, p)
	if err != nil {
		return link, err
	}
	return e.Link(ctx)
}

// mappedShare parses a link's target as a UNC path, and reports whether its share has a global
// mapping.
func (f *Filesystem) mappedShare(ctx context.Context, target string) (path win.UNCPath, mapped bool, err error) {
	if path, err = win.ParseUNC(target); err != nil {
		return path, false, nil // an invalid UNC path has no mapping
	}
	mappings, err := f.shares.List(ctx)
	return path, err == nil && path.MappedBy(mappings), err
}

// exists reports whether a volume exists, given the error of the query of its attributes.
func exists(err error) (bool, error) {
	if errno := winerr.Errno(0); errors.As(err, &errno) {
		if errno == winerr.ErrorUnrecognizedVolume { // the volume exists, but has no file system
			return true, nil
		}
		if errno.Gone() {
			return false, nil
		}
	}
	return err == nil, err
}
