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
// The text says little: a pod that can write somewhere below the kubelet directory can
// replace a directory by a link there, also in the middle of a call. So Policy.Reach
// walks: it opens one element after the other from the allowed directory down, each
// relative to the handle of the one before, never following a reparse point by itself,
// and without sharing deletion. All handles stay open until the operation is done, and
// each element is looked at through its own handle. A reparse point is followed only to
//   - another path inside of the allowed directories: the walk starts again there
//   - a volume that isn't protected: the walk goes on in the volume's root directory.
//     Anybody who can create a directory can make it a mount point of any volume;
//     Policy.Protects says which volumes must not be reached like that.
//
// Anything else ends in csiproxy.ErrPermissionDenied.
//
// The operation gets the last element as an Entry: a name in a directory that is held.
// Entry.Open is the one way to open it, and gives a File. If that is a directory,
// File.Entry gives its entries, and so on down.
//
// Where a call only asks whether something exists, nothing needs to be held: one open
// from the allowed directory does, with all reparse points refused. If it meets one, the
// path is walked. With Policy.KeepDirectories, the allowed directory stays open for the
// calls of the next second. What they find in it counts; that they find nothing there, and
// every error, is confirmed from the directory that is then found by its path. An allowed
// directory that the administrator replaces may thus be answered for, by its old files, for
// a second more.
//
// # Why that is safe
//
// While a directory is held, nobody can rename or delete it or a directory on the way to
// it, since that needs an open with deletion access, which the share mode refuses. What no
// share mode prevents is that somebody makes an empty directory a link: the right to write
// attributes is enough, and takes no part in sharing. A held directory with a held entry
// isn't empty, so this concerns the last directory alone. There it does no harm to calls
// through handles: an entry is opened relative to a handle with all reparse points refused
// (OBJ_DONT_REPARSE), and deleting or listing by handle acts on the directory itself.
//
// The calls of the mount manager take a path. File.Mount and File.Unmount make them while
// the handles are held: every element before the last is pinned, and the mount manager
// opens the last one itself, never what it leads to. The caller reads back through its
// handle what became of it. If the mount manager can't open the directory meanwhile, that
// one handle is closed for the call, and a file beside the directory keeps the one above
// from becoming a link.
//
// So an attacker can make a call fail, can choose which of several entries inside of the
// allowed directories it acts on, as far as he can rename and link there, and can waste
// some of its time. He can't make it create, delete, mount, link or reveal anything
// outside.
//
// The directories above an allowed one, and the allowed one itself, belong to the
// administrator: the allowed directory is opened by its path, and links on the way
// are followed. If it is a link, then links below it must be written with the
// allowed directory's own path to count as inside.
//
// # In a HostProcess container
//
// The kubelet directory must not be mounted into the container of the process: Windows'
// bind filter may then answer each relative open as if there were a link, or some of them
// with error 87. HostProcess containers see the node's directories without a mount. If it is
// mounted all the same, entries are opened by their paths and proven by their final paths (see
// Entry.Open's openAt). That is safe but for one thing: whoever can swap an empty directory for
// a link at the right moment can have an empty file or directory appear outside, which is
// deleted at once.
package pathpolicy
