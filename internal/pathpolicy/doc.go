// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pathpolicy says which paths storage operations may touch, and reaches
// them so that nobody can lead an operation elsewhere. Every call that takes a
// path goes through it.
//
// # Which paths
//
// Those inside of the allowed directories: the kubelet directory and the working
// directories that the administrator gave. Policy.Parse judges a path by its text
// alone.
//
// # How they are reached
//
// The text says little: a pod that can write somewhere below the kubelet
// directory can replace a directory by a link there, also in the middle of a
// call. So Policy.Reach opens one element after the other from the allowed
// directory down, each relative to the handle of the one before, never following
// a reparse point by itself, and without sharing deletion. It holds all handles
// until the operation is done, and looks at each through its own handle. A reparse
// point that it meets is followed only to
//   - another place inside of the allowed directories: the way starts anew there
//   - a volume: the way goes on in the volume's root directory, unless it is a
//     volume of the node itself: that of C: or of an allowed directory. Anybody
//     who can create a directory can make it a mount point of any volume.
//
// Anything else ends in csiproxy.ErrPermissionDenied.
//
// Where nothing needs to be held, since a call only asks whether something exists,
// one open from the allowed directory does, with all reparse points refused; if it
// meets one, the way is walked.
//
// While a directory is held, nobody can rename or delete it or a directory on the
// way to it, since that needs an open with deletion access, which the share mode
// refuses. What no share mode prevents is that somebody makes an empty directory
// a link: the right to write attributes is enough, and takes no part in sharing.
// A held directory with a held entry isn't empty, so this concerns the last
// directory alone. There it does no harm to calls through handles: an entry is
// opened relative to a handle with all reparse points refused
// (OBJ_DONT_REPARSE), and deleting or listing by handle acts on the directory
// itself. Calls that take a path, those of the mount manager, may be made with
// Held.Path while the handles are held: every element before the last is pinned,
// and the mount manager opens the last one itself, never what it leads to. The
// caller reads back through its handle what became of it.
//
// So an attacker can make a call fail, can choose which of several places inside
// of the allowed directories it acts on, as far as he can rename and link there,
// and can waste some of its time. He can't make it create, delete, mount, link or
// reveal anything outside.
//
// The directories above an allowed one, and the allowed one itself, belong to the
// administrator: the allowed directory is opened by its path, and links on the way
// are followed. If it is a link, then links below it must be written with the
// allowed directory's own path to count as inside.
package pathpolicy
