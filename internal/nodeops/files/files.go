// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package files does the operations on the node's directories and links:
// inside of the allowed directories only, and never led out of them by a link,
// also one that is swapped in during a call.
//
// Each operation may be repeated, also after a process that died half-way through
// it.
package files

import (
	"context"
	"errors"
	"io/fs"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/shared"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/smblogon"
	"github.com/csi-proxy/csi-proxy/internal/smbprobe"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the operations on files use of Windows.
type System interface {
	use.System
	smbprobe.System
}

// Options change how the operations behave.
type Options = shared.Options

// Filesystem is the node's file systems as far as paths lead into them. All
// methods may be called concurrently.
//
// All take absolute paths of at most 260 UTF-16 units. A bad path, or one outside of the
// allowed directories, is csiproxy.ErrInvalidArgument. One that a link leads outside is
// csiproxy.ErrPermissionDenied. If another process has a file open that is in the way, the
// operation waits for up to a second, and then it is csiproxy.ErrUnavailable.
type Filesystem struct {
	sys     System
	paths   *pathpolicy.Policy
	options Options
	limits  limits
}

// New returns the operations on the files of sys that paths allows.
func New(sys System, paths *pathpolicy.Policy, o Options) *Filesystem {
	o = o.On(sys, paths)
	if o.Shares == nil {
		o.Shares = smbprobe.New(sys, smblogon.New(o.Logger))
	}
	return &Filesystem{sys: sys, paths: paths, options: o, limits: defaultLimits}
}

// get runs the operation name on a path.
func get[T any](ctx context.Context, f *Filesystem, name, path string,
	run func(context.Context, pathpolicy.Path) (T, error)) (T, error) {
	return operation.Get(ctx, f.options.Runner, name, quote.Text(path), func(ctx context.Context) (T, error) {
		p, err := f.paths.Parse(path, pathpolicy.MaxPath)
		if err != nil {
			var none T
			return none, err
		}
		return run(ctx, p)
	})
}

// do is get for an operation without a result.
func (f *Filesystem) do(ctx context.Context, name, path string,
	run func(context.Context, pathpolicy.Path) error) error {
	_, err := get(ctx, f, name, path, func(ctx context.Context, p pathpolicy.Path) (struct{}, error) {
		return struct{}{}, run(ctx, p)
	})
	return err
}

// PathExists implements [filesystem.Operations].
func (f *Filesystem) PathExists(ctx context.Context, path string) (bool, error) {
	return get(ctx, f, "PathExists", path, func(ctx context.Context, p pathpolicy.Path) (bool, error) {
		return f.paths.Exists(ctx, f.sys, p)
	})
}

// Mkdir implements [filesystem.Operations].
func (f *Filesystem) Mkdir(ctx context.Context, path string) error {
	return f.do(ctx, "Mkdir", path, f.mkdir)
}

func (f *Filesystem) mkdir(ctx context.Context, p pathpolicy.Path) error {
	isLink := false
	err := f.paths.ReachMaking(ctx, f.sys, p, func(e pathpolicy.Entry) error {
		dir, err := e.Open(ctx, pathpolicy.Directory(win.FileCreate))
		if err == nil {
			f.options.Logger.Info("directory made", "path", e.Path())
			return nil
		}
		// Windows may refuse to create the root of a drive without saying that it is there.
		if errors.Is(err, fs.ErrExist) || errors.Is(err, win.ErrorAccessDenied) {
			dir, err = e.Open(ctx, pathpolicy.Directory(win.FileOpenIf))
		}
		if errors.Is(err, win.ErrorDirectory) {
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

// IsSymlink implements [filesystem.Operations].
func (f *Filesystem) IsSymlink(ctx context.Context, path string) (bool, error) {
	return get(ctx, f, "IsSymlink", path, f.isSymlink)
}

func (f *Filesystem) isSymlink(ctx context.Context, p pathpolicy.Path) (bool, error) {
	var link pathpolicy.Link
	err := f.paths.Reach(ctx, f.sys, p, func(e pathpolicy.Entry) (err error) {
		link, err = e.Link(ctx)
		return err
	})
	if errors.Is(err, win.ErrorNotAReparsePoint) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case link.Kind == pathpolicy.LinkInside:
		return f.paths.Exists(ctx, f.sys, link.Path)
	case link.Kind == pathpolicy.LinkToVolume:
		_, err := f.sys.FileAttributes(ctx, link.Volume)
		return exists(err)
	case link.Kind == pathpolicy.LinkToShare:
		return f.shareExists(ctx, link.Target())
	case link.Tag != win.TagSymlink && link.Tag != win.TagMountPoint:
		return false, nil // a file of some file system filter
	}
	return false, &csiproxy.Error{
		Kind:   csiproxy.ErrPermissionDenied,
		Detail: "it is a link out of the allowed directories, to " + quote.Text(link.Target()),
	}
}

// shareExists reports whether what a link to a UNC path leads to is there. Only
// servers that somebody has mapped a share of are asked, and for that share only:
// whoever can make a link in a pod's directory could else have the node log in to a
// server of his own.
func (f *Filesystem) shareExists(ctx context.Context, target string) (bool, error) {
	path, mapped, err := f.mappedShare(ctx, target)
	if err != nil || !mapped {
		return false, err
	}
	return exists(f.options.Shares.Probe(ctx, path))
}

// mappedShare reads a link's target that is a UNC path, and reports whether its share has
// a global mapping.
func (f *Filesystem) mappedShare(ctx context.Context, target string) (path unc.Path, mapped bool, err error) {
	if path, err = unc.Parse(target); err != nil {
		return path, false, nil // no such share can be mapped
	}
	mappings, err := f.options.Shares.Mappings(ctx)
	return path, err == nil && path.MappedBy(mappings), err
}

// exists tells from the error of asking for the attributes of a volume or UNC path
// whether it is there.
func exists(err error) (bool, error) {
	if errno := win.Errno(0); errors.As(err, &errno) {
		switch {
		case errno == win.ErrorUnrecognizedVolume: // it has no file system yet
			return true, nil
		case errno.Gone(), errno == win.ErrorBadNetPath, errno == win.ErrorBadNetName:
			return false, nil
		}
	}
	return err == nil, err
}
