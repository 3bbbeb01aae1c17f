// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import "context"

// FilesystemOperations are the operations on files, directories and links below the node's allowed
// directories.
type FilesystemOperations interface {
	// PathExists reports whether there is a file, a directory or a link at path. A link counts
	// even if its target is missing. If a directory on the way is missing, PathExists returns
	// false.
	PathExists(ctx context.Context, path string) (bool, error)
	// Mkdir makes a directory and its missing parents, which inherit their access rights. If
	// the path is a directory, a mount point, or a link to a directory in the allowed
	// directories, Mkdir succeeds. Anything else at the path is csiproxy.ErrAlreadyExists.
	Mkdir(ctx context.Context, path string) error
	// Rmdir removes a directory, a file, a link or a mount point, also if it is read-only. The
	// target of a link stays. Of a mount point, Rmdir removes the directory and the mount
	// manager's record; the volume and its data stay.
	//
	// Without force, a directory with entries is csiproxy.ErrFailedPrecondition, and a
	// missing path is csiproxy.ErrNotFound.
	//
	// With force, the directory's contents are removed first, and a missing path is a success.
	// If an entry can't be removed, Rmdir removes the rest, and returns the first error. A
	// call removes at most 1,000,000 entries, because pods may make files as fast as Rmdir
	// removes them. Beyond that, the error is csiproxy.ErrUnavailable: call again. If the trees
	// removed by concurrent calls have more than 20,000 levels in all, the error is
	// csiproxy.ErrResourceExhausted.
	//
	// An allowed directory, or a parent of one, is csiproxy.ErrInvalidArgument.
	Rmdir(ctx context.Context, path string, force bool) error
	// RmdirContents removes the contents of a directory, like Rmdir with force, and keeps the
	// directory. A link, a mount point or a file in place of the directory stays, and is
	// csiproxy.ErrFailedPrecondition. A missing path is csiproxy.ErrNotFound. An allowed
	// directory, or a parent of one, is csiproxy.ErrInvalidArgument.
	RmdirContents(ctx context.Context, path string) error
	// CreateSymlink makes a symlink at targetPath to sourcePath. sourcePath may be missing. If
	// sourcePath is a link, its target must be in the allowed directories, or a share with a
	// global mapping. The symlink is a directory symlink unless sourcePath is a file.
	//
	// If targetPath is a symlink to the same path, CreateSymlink succeeds. Anything else there
	// is csiproxy.ErrAlreadyExists, including the empty directory or file of a process that
	// died half-way. Drivers remove the target path before the call.
	CreateSymlink(ctx context.Context, sourcePath, targetPath string) error
	// IsSymlink reports whether path is a symlink, a junction or a mount point with an existing
	// target. A target that is itself a link counts as existing. A missing path is
	// csiproxy.ErrNotFound.
	//
	// A link to a share counts if the share has a global mapping; IsSymlink asks no server. A
	// link to any other place outside of the allowed directories is
	// csiproxy.ErrPermissionDenied.
	IsSymlink(ctx context.Context, path string) (bool, error)
}
