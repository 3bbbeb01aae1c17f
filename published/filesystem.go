// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import "context"

// FilesystemOperations are the operations on files, directories and links below the directories that
// the node allows.
type FilesystemOperations interface {
	// PathExists reports whether there is a file, a directory or a link at path. A link
	// counts even if its target is missing. A missing directory on the way is no error.
	PathExists(ctx context.Context, path string) (bool, error)
	// Mkdir makes a directory, and those above it that are missing. They inherit their
	// access rights. If there is a directory already, a mount point, or a link to a
	// directory inside of the allowed ones, it succeeds. Anything else there is
	// csiproxy.ErrAlreadyExists.
	Mkdir(ctx context.Context, path string) error
	// Rmdir removes a directory, a file, a link or a mount point, also a read-only one. Of a
	// link it removes the link and never what the link leads to. Of a mount point it removes
	// the mount manager's record and the directory; the volume and its data stay.
	//
	// Without force, a directory with entries is csiproxy.ErrFailedPrecondition, and a
	// missing path is csiproxy.ErrNotFound.
	//
	// With force, everything in the directory is removed first, and a missing path is a
	// success. If something can't be removed, the rest is removed all the same, and the
	// first error is returned. One call removes at most 1,000,000 entries, since somebody
	// may make files as fast as they are removed. If there are more, the error is
	// csiproxy.ErrUnavailable: call again.
	//
	// An allowed directory, or one that contains one, is csiproxy.ErrInvalidArgument.
	Rmdir(ctx context.Context, path string, force bool) error
	// RmdirContents removes everything in a directory, as Rmdir does with force, and keeps
	// the directory. A link, a mount point or a file instead of the directory is
	// csiproxy.ErrFailedPrecondition, and nothing is removed. A missing path is
	// csiproxy.ErrNotFound. An allowed directory, or one that contains one, is
	// csiproxy.ErrInvalidArgument.
	RmdirContents(ctx context.Context, path string) error
	// CreateSymlink makes a symlink at targetPath that leads to sourcePath. Nothing need be
	// at sourcePath. If it is a link, it may lead to a share that has a global mapping, and
	// nowhere else outside of the allowed directories. The symlink is one to a directory,
	// unless there is a file at sourcePath.
	//
	// If there is a symlink to the same path already, it succeeds. Anything else there is
	// csiproxy.ErrAlreadyExists. That includes the empty directory or file that is left
	// behind if the process dies half-way: drivers remove what is at the target path first.
	CreateSymlink(ctx context.Context, sourcePath, targetPath string) error
	// IsSymlink reports whether there is a symlink, a junction or a mount point at path
	// whose target exists. If the target is a link too, that link isn't followed. A missing
	// path is csiproxy.ErrNotFound.
	//
	// A link to a share counts if the share has a global mapping. No server is asked. The target of a link to
	// elsewhere outside of the allowed directories isn't looked at: that is
	// csiproxy.ErrPermissionDenied.
	IsSymlink(ctx context.Context, path string) (bool, error)
}
