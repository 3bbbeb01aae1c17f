// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
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

// FilesSystem has the Windows calls that the operations on files make.
type FilesSystem interface {
	usage.System
	FileAttributes(ctx context.Context, path string) (win.FileAttributes, error)
}

// FileOptions change how the operations behave. The zero value is the default.
type FileOptions struct {
	// Logger gets each change of the node, and what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Runner runs and observes the operations. Default: one of its own.
	Runner *operation.Runner
	// Locks locks the objects of changing calls; queries take no locks. All groups of a node share one Locker. Default: a new
	// Locker.
	Locks *usage.Locker
}

// Filesystem has the operations on the node's directories and links. All methods may be
// called concurrently.
//
// All take absolute paths of at most 260 UTF-16 units. For a bad path, or one outside of the
// allowed directories, the error is csiproxy.ErrInvalidArgument. If a link leads outside, it is
// csiproxy.ErrPermissionDenied. If another process keeps a file open that is in the way, the
// operation waits for up to a second, and then the error is csiproxy.ErrUnavailable.
type Filesystem struct {
	sys     FilesSystem
	paths   *pathpolicy.Policy
	shares  *shares.Mappings
	options FileOptions
	limits  limits
}

// NewFiles returns the operations on the files of sys that paths allows. Links may lead to the shares that
// mapped has.
func NewFiles(sys FilesSystem, paths *pathpolicy.Policy, mapped *shares.Mappings, o FileOptions) *Filesystem {
	o.Logger, o.Runner = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Runner, operation.NewRunner(nil))
	if o.Locks == nil {
		o.Locks = usage.NewLocker(sys, paths, usage.NewFinder(usage.NewSharedFinder(sys, paths, nil, o.Logger)),
			usage.LockOptions{Logger: o.Logger})
	}
	return &Filesystem{sys: sys, paths: paths, shares: mapped, options: o, limits: defaultLimits}
}

// parse returns a path of the API.
func (f *Filesystem) parse(path string) (pathpolicy.Path, error) {
	return f.paths.Parse(path, pathpolicy.MaxPath)
}

// PathExists implements [published.FilesystemOperations].
func (f *Filesystem) PathExists(ctx context.Context, path string) (_ bool, err error) {
	defer f.options.Runner.Done("PathExists", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return false, err
	}
	return f.paths.Exists(ctx, f.sys, p)
}

// Mkdir implements [published.FilesystemOperations].
func (f *Filesystem) Mkdir(ctx context.Context, path string) (err error) {
	defer f.options.Runner.Done("Mkdir", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return err
	}
	return f.mkdir(ctx, p)
}

func (f *Filesystem) mkdir(ctx context.Context, p pathpolicy.Path) error {
	isLink := false
	err := f.paths.ReachOrMake(ctx, f.sys, p, func(e pathpolicy.Entry) error {
		dir, err := e.Open(ctx, pathpolicy.Directory(win.FileCreate))
		if err == nil {
			f.options.Logger.Info("directory made", "path", e.Path())
			return nil
		}
		// Windows may refuse to create the root of a drive without saying that it is there.
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
		isLink = info.IsReparsePoint()
		return err
	})
	if err != nil || !isLink {
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
	defer f.options.Runner.Done("IsSymlink", quote.Text(path), time.Now(), &err)
	p, err := f.parse(path)
	if err != nil {
		return false, err
	}
	found, err := f.paths.AskByName(ctx, f.sys, p)
	if found == pathpolicy.NothingByName || found == pathpolicy.PlainByName || err != nil {
		return false, err
	}
	var link pathpolicy.Link
	err = f.paths.Reach(ctx, f.sys, p, func(e pathpolicy.Entry) (err error) {
		link, err = e.Link(ctx)
		return err
	})
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if link.Kind == pathpolicy.LinkInside {
		return f.paths.Exists(ctx, f.sys, link.Path)
	}
	if link.Kind == pathpolicy.LinkToVolume {
		_, err := f.sys.FileAttributes(ctx, link.Volume)
		return exists(err)
	}
	if link.Kind == pathpolicy.LinkToShare {
		// No server is asked: if it refuses the password by now, or is down, a driver could stage nothing
		// anew at the path.
		_, mapped, err := f.mappedShare(ctx, link.Target())
		return mapped, err
	}
	if link.Tag != win.TagSymlink && link.Tag != win.TagMountPoint {
		return false, nil // a reparse point of a file system filter, and no link
	}
	return false, &csiproxy.Error{
		Kind:   csiproxy.ErrPermissionDenied,
		Detail: f.paths.OutsideDetail(link),
	}
}

// mappedShare reads a link's target that is a UNC path, and reports whether its share has
// a global mapping.
func (f *Filesystem) mappedShare(ctx context.Context, target string) (path win.UNCPath, mapped bool, err error) {
	if path, err = win.ParseUNC(target); err != nil {
		return path, false, nil // no such share can be mapped
	}
	mappings, err := f.shares.List(ctx)
	return path, err == nil && path.MappedBy(mappings), err
}

// exists reports whether a volume is there, from the error of the query of its attributes.
func exists(err error) (bool, error) {
	if errno := winerr.Errno(0); errors.As(err, &errno) {
		if errno == winerr.ErrorUnrecognizedVolume { // the volume is there, without a file system
			return true, nil
		}
		if errno.Gone() {
			return false, nil
		}
	}
	return err == nil, err
}
