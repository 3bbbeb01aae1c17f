// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pathpolicy says which paths storage operations may touch, and opens
// them so that nobody can lead an operation elsewhere. Every call that takes a
// path goes through it.
//
// # Which paths
//
// A path must lie inside of the allowed directories: the kubelet directory and the
// working directories that the administrator gave. Policy.Parse checks that by the
// path's text alone.
//
// # How they are reached
//
// The text isn't enough: a pod that can write somewhere below the kubelet directory can
// replace a directory by a link there, also in the middle of a call. So Policy.Reach opens
// the directory that has the last element relative to the handle of the allowed directory.
// Windows follows no reparse point in such an open. If it meets one, Reach walks: it opens
// one element after the other, each relative to the handle of the one before. It follows a
// reparse point only to
//   - another path inside of the allowed directories: Reach begins again there
//   - a volume that isn't protected: Reach goes on in the volume's root directory.
//     Anybody who can create a directory can make it a mount point of any volume;
//     Policy.Protects says which volumes must not be reached like that.
//
// Anything else ends in csiproxy.ErrPermissionDenied.
//
// The operation gets the last element as an Entry: a name in a directory that is held.
// Entry.Open is the one way to open it, and gives a File. If that is a directory,
// File.Entry gives its entries, and so on down.
//
// A call that only asks whether something exists, or what it is, doesn't need the directory.
// So Policy.Exists, Policy.Lookup and Policy.Resolve open the last element itself in the same
// way. Exists first asks by name, again with all reparse points refused, which takes no handle.
//
// The mount manager takes a path. So Policy.Hold walks from the beginning, and holds each
// directory on the way.
//
// # Why that is safe
//
// All handles stay open until the operation is done, and deletion isn't shared. While a
// directory is open like that, it is held: nobody can rename or delete it, since that needs an
// open with deletion access. But somebody can make an empty directory a link: that needs only the
// right to write attributes, which no share mode refuses. A held directory with a held entry isn't
// empty, so this concerns only the last directory. It does no harm to calls through handles:
// entries are opened relative to a handle with all reparse points refused (OBJ_DONT_REPARSE), and
// deleting or listing by handle acts on the directory itself, wherever the directories above it
// are by then.
//
// File.Mount and File.Unmount call the mount manager while each directory on the way is held. So
// no element before the last can change, and the mount manager opens the last one itself, never
// what it leads to. The caller reads the result through its handle. If the mount manager can't
// open the directory while that handle is open, the handle is closed for the call. Meanwhile a
// file beside the directory keeps the directory above from becoming a link.
//
// So an attacker can make a call fail, and can waste some of its time. As far as he can
// rename and link inside of the allowed directories, he can choose on which entry there it
// acts. He can't make it create, delete, mount, link or reveal anything outside.
//
// The directories above an allowed one, and the allowed one itself, belong to the
// administrator: the allowed directory is opened by its path, and links on the way
// are followed. If it is a link, then links below it must be written with the
// allowed directory's own path to count as inside. System paths are compared with where
// a working directory really is, too (see findAlias).
//
// # In a HostProcess container
//
// The kubelet directory must not be mounted into the container of the process: Windows'
// bind filter may then answer each relative open as if there were a link, or some of them
// with error 87. HostProcess containers see the node's directories without a mount. If it is
// mounted all the same, entries are opened by their paths and proven by their final paths (see
// bindfilter.go). That is safe but for one thing: whoever can swap an empty directory for
// a link at the right moment can have an empty file or directory appear outside, which is
// deleted at once.
package pathpolicy
