// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"errors"
	"fmt"
	"io"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The calls of this file are what other processes of the node do, such as those of
// a pod, on paths of the node and on \\server\share. They follow links, and share
// modes and access lists apply to them: they never open for backup. Rules and hooks don't
// apply.

// Account is whose process uses files.
type Account = ntfs.Account

// Accounts of containers.
var (
	ContainerUser          = ntfs.ContainerUser
	ContainerAdministrator = ntfs.ContainerAdministrator
)

// Files are the files of the node for the processes of an account. Those of SYSTEM are the node's own
// methods.
type Files struct {
	sys     *System
	account *Account
}

// As returns the files as processes of an account use them, which access lists on volumes decide
// about. Shares are used with the user of their mapping, whoever uses them.
func (s *System) As(a *Account) Files { return Files{s, a} }

// podOpen opens a path as another process does and closes it after f.
func (s *System) podOpen(what, path string, o win.OpenOptions, f func(paths.Opened) error) error {
	return s.As(nil).open(what, path, o, f)
}

func (u Files) open(what, path string, o win.OpenOptions, f func(paths.Opened) error) error {
	return u.sys.control(func() error {
		op, err := u.sys.paths.As(u.account).Open(path, o)
		if err == nil {
			defer op.Close()
			err = f(op)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", what, path, err)
		}
		return nil
	})
}

// existing opens what is there, and lets others do with it what they want.
func existing(access win.Access, options win.CreateOptions) win.OpenOptions {
	return win.OpenOptions{Access: access, Share: paths.ShareAll, Disposition: win.FileOpen, Options: options}
}

// Hold opens a file or directory and keeps it open until the handle is closed, as
// a process with an open file does.
func (s *System) Hold(path string, o win.OpenOptions) (io.Closer, error) {
	var f *file
	o.Options &^= win.FileOpenForBackup
	err := s.control(func() error {
		op, err := s.paths.Open(path, o)
		if err != nil {
			return fmt.Errorf("hold %s: %w", path, err)
		}
		f = s.openFile(op, path, o.Access, someProcess)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// WriteFile replaces the contents of a file, which it creates if need be, while nobody else writes
// to it.
func (s *System) WriteFile(path string, data []byte) error { return s.As(nil).WriteFile(path, data) }

// WriteFile is that of the node.
func (u Files) WriteFile(path string, data []byte) error {
	o := win.OpenOptions{
		Access: win.GenericWrite, Share: win.ShareRead, Disposition: win.FileOpenIf, Options: win.FileNonDirectoryFile,
	}
	return u.open("write file", path, o, func(op paths.Opened) error { return op.SetContents(data) })
}

// FlushFile makes the contents of a file outlast a loss of power.
func (s *System) FlushFile(path string) error {
	return s.podOpen("flush file", path, existing(win.GenericWrite, win.FileNonDirectoryFile),
		func(op paths.Opened) error { return op.Flush() })
}

// ReadFile returns the contents of a file.
func (s *System) ReadFile(path string) ([]byte, error) { return s.As(nil).ReadFile(path) }

// ReadFile is that of the node.
func (u Files) ReadFile(path string) ([]byte, error) {
	var data []byte
	err := u.open("read file", path, existing(win.GenericRead, win.FileNonDirectoryFile), func(op paths.Opened) error {
		contents, err := op.Contents()
		data = append([]byte{}, contents...)
		return err
	})
	return data, err
}

// ReadDir returns the entries of a directory in the order of their names.
func (s *System) ReadDir(path string) ([]win.DirEntry, error) { return s.As(nil).ReadDir(path) }

// ReadDir is that of the node.
func (u Files) ReadDir(path string) ([]win.DirEntry, error) {
	var all []win.DirEntry
	o := existing(win.FileListDirectory, win.FileDirectoryFile)
	err := u.open("read directory", path, o, func(op paths.Opened) error {
		for {
			entries, err := op.ReadDir(false)
			if err == winerr.ErrorNoMoreFiles {
				return nil
			}
			if err != nil {
				return err
			}
			all = append(all, entries...)
		}
	})
	return all, err
}

// LockedBytes returns the offsets of a file's bytes that are locked, sorted; none if there is no
// such file.
func (s *System) LockedBytes(path string) []int64 {
	return look(s, func() []int64 {
		op, err := s.paths.Open(path, existing(win.FileReadAttributes, paths.OpenLink))
		if err != nil {
			return nil
		}
		defer op.Close()
		return op.Node().Locked()
	})
}

// MkdirAll creates a directory and those above it; what exists is left.
func (s *System) MkdirAll(path string) error { return s.As(nil).MkdirAll(path) }

// MkdirAll is that of the node.
func (u Files) MkdirAll(path string) error {
	return u.sys.control(func() error {
		p, err := u.sys.paths.As(u.account).Locate(path)
		for n := 1; err == nil && n <= len(p.Names); n++ {
			var op paths.Opened
			op, err = u.sys.paths.As(u.account).OpenAt(paths.Location{Root: p.Root, Names: p.Names[:n]}, win.OpenOptions{
				Access: win.FileReadAttributes, Share: paths.ShareAll, Disposition: win.FileOpenIf, Options: win.FileDirectoryFile,
			})
			if err == nil {
				op.Close()
			}
		}
		if err != nil {
			return fmt.Errorf("make directory %s: %w", path, err)
		}
		return nil
	})
}

// Symlink creates the symbolic link path to target, as a link to a directory or to
// a file: Windows tells them apart.
func (s *System) Symlink(path, target string, directory bool) error {
	return s.createLink("create symbolic link", path, win.NewSymlink(target), directory)
}

// Junction creates the junction path to the directory target, an absolute path
// with a drive letter.
func (s *System) Junction(path, target string) error {
	return s.createLink("create junction", path, win.NewJunction(target), true)
}

// SetReparsePoint makes an existing file or empty directory a link, in place: this
// is how a link gets under a handle that keeps the directory from being renamed.
func (s *System) SetReparsePoint(path string, r win.ReparsePoint) error {
	return s.podOpen("set reparse point", path, existing(win.FileWriteAttributes, win.FileOpenReparsePoint),
		func(op paths.Opened) error { return op.SetReparse(r.Encode()) })
}

func (s *System) createLink(what, path string, r win.ReparsePoint, directory bool) error {
	o := win.OpenOptions{
		Access: win.FileWriteAttributes | win.Delete, Share: paths.ShareAll, Disposition: win.FileCreate,
		Options: win.FileOpenReparsePoint | win.FileNonDirectoryFile,
	}
	if directory {
		o.Options = win.FileOpenReparsePoint | win.FileDirectoryFile
	}
	return s.podOpen(what, path, o, func(op paths.Opened) error {
		err := op.SetReparse(r.Encode())
		if err != nil { // the empty file would be a stranger
			return errors.Join(err, op.Delete())
		}
		return nil
	})
}

// ReadLink returns where a link or mount point leads, as win.ReparsePoint.Target has
// it. What isn't one gives ErrorNotAReparsePoint.
func (s *System) ReadLink(path string) (string, error) {
	var target string
	o := existing(win.FileReadAttributes, win.FileOpenReparsePoint)
	err := s.podOpen("read link", path, o, func(op paths.Opened) error {
		data, err := op.GetReparse()
		if err != nil {
			return err
		}
		r, err := win.DecodeReparsePoint(data)
		target = r.Target()
		return err
	})
	return target, err
}

// Rename gives a file, directory or link another path on the same volume or share; with
// replace, a file that is there goes.
func (s *System) Rename(oldPath, newPath string, replace bool) error {
	return s.podOpen("rename", oldPath, existing(win.Delete, win.FileOpenReparsePoint), func(op paths.Opened) error {
		l, err := s.paths.Locate(newPath)
		if err != nil {
			return err
		}
		if len(l.Names) == 0 {
			return winerr.ErrorAccessDenied
		}
		parent, name := l.Names[:len(l.Names)-1], l.Names[len(l.Names)-1]
		dir, err := s.paths.OpenAt(paths.Location{Root: l.Root, Names: parent},
			existing(win.AccessNone, win.FileDirectoryFile))
		if err == winerr.ErrorFileNotFound {
			return winerr.ErrorPathNotFound
		}
		if err != nil {
			return err
		}
		defer dir.Close()
		return op.Rename(dir.Node(), name, replace)
	})
}

// Remove deletes a file, an empty directory, or a link itself.
func (s *System) Remove(path string) error { return s.As(nil).Remove(path) }

// Remove is that of the node.
func (u Files) Remove(path string) error {
	return u.open("remove", path, existing(win.Delete, win.FileOpenReparsePoint),
		func(op paths.Opened) error { return op.Delete() })
}

// SetFileAttributes sets or clears the read-only attribute of a file.
func (s *System) SetFileAttributes(path string, a win.FileAttributes) error {
	return s.podOpen("set attributes of", path, existing(win.FileWriteAttributes, win.FileOpenReparsePoint),
		func(op paths.Opened) error { return op.SetAttributes(a) })
}
