// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// OpenFile is CreateFileW of a whole path. Links on the way are followed, and so
// is the last element unless o asks for the link itself.
func (s *System) OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error) {
	return ask(ctx, s, Call{win.CallOpen, path}, func() (win.File, error) {
		op, err := s.paths.Open(path, o)
		if err != nil {
			return nil, err
		}
		return s.openFile(op, path, o.Access, self), nil
	})
}

func (s *System) openFile(op paths.Opened, path string, access win.Access, process win.ProcessID) *file {
	return &file{handle: s.open(handle{object: objectName{name: path}, root: op.Root, fs: op.FS, file: op.Handle,
		access: access, process: process})}
}

// FileAttributes is GetFileAttributesW: the attributes of the last element itself,
// also of a link.
func (s *System) FileAttributes(ctx context.Context, path string) (win.FileAttributes, error) {
	return ask(ctx, s, Call{win.CallFileAttributes, path}, func() (win.FileAttributes, error) {
		op, err := s.paths.OpenByWin32(path, existing(win.FileReadAttributes, paths.OpenLink))
		if err != nil {
			return 0, err
		}
		defer op.Close()
		return op.Info().Attributes, nil
	})
}

// AttributesWithoutLinks implements [win.Files].
func (s *System) AttributesWithoutLinks(ctx context.Context, path string) (win.FileAttributes, error) {
	return ask(ctx, s, Call{win.CallAttributesWithoutLinks, path}, func() (win.FileAttributes, error) {
		op, err := s.paths.OpenWithoutLinks(path, existing(win.FileReadAttributes, paths.OpenLink))
		if err != nil {
			return 0, err
		}
		defer op.Close()
		return op.Info().Attributes, nil
	})
}

// file is an open file or directory.
type file struct {
	*handle
	opens int // relative to it, while Settings.BindFilterInvalid is set
}

var _ win.File = (*file)(nil)

// OpenAt implements [win.File].
func (f *file) OpenAt(ctx context.Context, name string, o win.OpenOptions) (win.File, error) {
	object := objectName{&f.object, name}
	return ask(ctx, f.sys, Call{win.CallOpenAt, object.wanted(&f.sys.gate)}, func() (win.File, error) {
		if err := f.alive(); err != nil {
			return nil, err
		}
		if f.sys.settings.BindFilter {
			return nil, winerr.ErrorReparsePointEncountered
		}
		if f.sys.settings.BindFilterInvalid {
			f.opens++
			if f.opens == 1 || f.opens == 2 && len(name)%2 == 0 {
				return nil, winerr.ErrorInvalidParameter
			}
		}
		dir, names := f.handle.file.Node(), strings.Split(name, `\`)
		switch {
		case slices.ContainsFunc(names, func(n string) bool { return n == "" || n == "." || n == ".." }):
			return nil, winerr.ErrorInvalidName
		case len(names) > 1 && dir.Info().IsReparsePoint():
			return nil, winerr.ErrorReparsePointEncountered
		}
		opened, err := f.sys.paths.Walk(f.root, f.fs, dir, names, o)
		if err != nil {
			if errors.As(err, new(*paths.Reparse)) {
				return nil, winerr.ErrorReparsePointEncountered
			}
			return nil, err
		}
		h := handle{object: object, root: f.root, fs: f.fs, file: opened, access: o.Access}
		return &file{handle: f.sys.open(h)}, nil
	})
}

// Info implements [win.File].
func (f *file) Info(ctx context.Context) (win.FileInfo, error) {
	return askOf(ctx, f.handle, win.CallFileInfo, func() (win.FileInfo, error) { return f.file.Info(), nil })
}

// FinalPath implements [win.File].
func (f *file) FinalPath(ctx context.Context) (string, error) {
	return askOf(ctx, f.handle, win.CallFinalPath, func() (string, error) {
		v, ok := f.root.(*volumes.Volume)
		if !ok {
			return "", winerr.ErrorPathNotFound
		}
		node := f.file.Node()
		if node.Deleted() {
			return "", winerr.ErrorFileNotFound
		}
		return v.Name() + strings.TrimPrefix(node.Path(), `\`), nil
	})
}

// Volume implements [win.File].
func (f *file) Volume(ctx context.Context) (string, error) {
	return askOf(ctx, f.handle, win.CallFinalPath, func() (string, error) {
		v, ok := f.root.(*volumes.Volume)
		if !ok {
			return "", winerr.ErrorPathNotFound
		}
		return v.Name(), nil
	})
}

// ReadDir implements [win.File].
func (f *file) ReadDir(ctx context.Context, restart bool) ([]win.DirEntry, error) {
	return askOf(ctx, f.handle, win.CallReadDir, func() ([]win.DirEntry, error) { return f.file.ReadDir(restart) })
}

// Read implements [win.File].
func (f *file) Read(ctx context.Context, p []byte) (int, error) {
	return askOf(ctx, f.handle, win.CallRead, func() (int, error) {
		contents, err := f.file.Contents()
		return copy(p, contents), err
	})
}

// Control implements [win.File].
func (f *file) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (n int, err error) {
	err = f.call(ctx, controlName(code), func() error {
		if err := f.Need(code.RequiredAccess()); err != nil {
			return err
		}
		switch code {
		case win.FsctlGetReparsePoint:
			data, err := f.file.GetReparse()
			if err != nil {
				return err
			}
			const header = 8 // of REPARSE_DATA_BUFFER
			switch n = copy(out, data); {
			case n < header:
				n = 0
				return winerr.ErrorInsufficientBuffer
			case n < len(data):
				return winerr.ErrorMoreData
			}
			return nil
		case win.FsctlSetReparsePoint, win.FsctlDeleteReparsePoint:
			if f.sys.paths.DeniesMountPoint(f.handle.file) {
				return winerr.ErrorAccessDenied
			}
			if code == win.FsctlSetReparsePoint {
				return f.change(func() error { return f.file.SetReparse(in) })
			}
			return f.change(func() error { return f.file.DeleteReparse(in) })
		}
		return winerr.ErrorInvalidFunction
	})
	return n, err
}

// Delete implements [win.File].
func (f *file) Delete(ctx context.Context) error {
	return f.call(ctx, win.CallDeleteFile, func() error { return f.change(f.file.Delete) })
}

// CreationDenied implements [win.File].
func (f *file) CreationDenied(ctx context.Context) (bool, error) {
	return askOf(ctx, f.handle, win.CallQuerySecurity, func() (bool, error) { return f.file.CreationDenied() })
}

// DenyCreation implements [win.File].
func (f *file) DenyCreation(ctx context.Context, deny bool) error {
	return f.call(ctx, win.CallSetSecurity, func() error {
		return f.change(func() error { return f.file.DenyCreation(deny) })
	})
}

// AccessList implements [win.File].
func (f *file) AccessList(ctx context.Context) ([]win.ACE, error) {
	return askOf(ctx, f.handle, win.CallQuerySecurity, func() ([]win.ACE, error) { return f.file.AccessList() })
}

// AddAccess implements [win.File].
func (f *file) AddAccess(ctx context.Context, entries []win.ACE) error {
	return f.call(ctx, win.CallSetSecurity, func() error {
		return f.change(func() error { return f.file.AddAccess(entries) })
	})
}

// Private implements [win.File].
func (f *file) Private(ctx context.Context) (bool, error) {
	return askOf(ctx, f.handle, win.CallQuerySecurity, func() (bool, error) { return f.file.Private() })
}

// LockByte implements [win.File].
func (f *file) LockByte(ctx context.Context, offset int64) error {
	return f.call(ctx, win.CallLockFile, func() error { return f.file.LockByte(offset) })
}

// change does what needs a disk that can be written: it may have become read-only
// since the file was opened.
func (f *file) change(do func() error) error {
	if !f.root.Writable() {
		return winerr.ErrorWriteProtect
	}
	return do()
}
