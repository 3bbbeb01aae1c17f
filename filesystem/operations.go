// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package filesystem holds the operations on files, directories and links below the
// node's allowed directories.
package filesystem

import "context"

// Operations are the operations of this group, with the same meaning in process
// (package node) and over the pipe (package client). All methods may be called
// concurrently. Errors are of the classes in package csiproxy.
type Operations interface {
	// PathExists reports whether there is a file, directory or link at path; a link
	// may be dangling. That a directory on the way isn't there is no error.
	PathExists(ctx context.Context, path string) (bool, error)
	// Mkdir makes a directory and those above it that aren't there, with the access
	// rights that they inherit. A directory that is there, a mount point, or a link to
	// a directory inside of the allowed ones is a success; anything else that is there
	// is csiproxy.ErrAlreadyExists.
	Mkdir(ctx context.Context, path string) error
	// Rmdir removes what is at path: a directory, a file, a link or a mount point, also
	// a read-only one. A link is removed, never what it leads to. A mount point is taken
	// away through the mount manager, which keeps records of them, and then its empty
	// directory; the volume and its data stay.
	//
	// Without force, a directory with entries is csiproxy.ErrFailedPrecondition, and a
	// path that isn't there csiproxy.ErrNotFound. With force, the directory is removed
	// with everything in it, as far as nothing keeps it: of several errors the first is
	// returned, and what could be removed is gone. One call removes at most 1,000,000
	// entries, since somebody may make files as fast as they are removed; if there are
	// more it gives csiproxy.ErrUnavailable. A path that isn't there is a success. An
	// allowed directory, or one that holds one, is csiproxy.ErrInvalidArgument.
	Rmdir(ctx context.Context, path string, force bool) error
	// RmdirContents removes everything in a directory as Rmdir does with force; the
	// directory itself stays. A link or mount point in its place is
	// csiproxy.ErrFailedPrecondition, and so is a file: nothing is removed from where
	// they lead. A path that isn't there is csiproxy.ErrNotFound, an allowed directory,
	// or one that holds one, csiproxy.ErrInvalidArgument.
	RmdirContents(ctx context.Context, path string) error
	// CreateSymlink makes the symlink targetPath, which leads to sourcePath. What is at
	// sourcePath needn't exist; if it is a link, it may lead to a share that has a global
	// mapping, but not elsewhere outside. The symlink is one of a directory unless there is
	// a file at sourcePath.
	//
	// A symlink to the same path that is there already is a success; anything else is
	// csiproxy.ErrAlreadyExists. That goes for the empty directory or file that a process
	// leaves which dies half-way, too: drivers remove what they find at the target path
	// first.
	CreateSymlink(ctx context.Context, sourcePath, targetPath string) error
	// IsSymlink reports whether path is a symlink, a junction or a mount point of a
	// volume, and what it leads to exists, that itself not followed. A path that isn't
	// there is csiproxy.ErrNotFound. Of a link to a share that has a global mapping the
	// server is asked; to one that has none it leads nowhere, hence false. What a link to
	// elsewhere outside leads to isn't looked at: csiproxy.ErrPermissionDenied.
	IsSymlink(ctx context.Context, path string) (bool, error)
}
