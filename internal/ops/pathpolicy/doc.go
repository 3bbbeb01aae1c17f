// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pathpolicy decides which paths storage operations may touch, and opens them safely: links
// planted by a pod cannot redirect an operation. Every call with a path uses this package.
//
// # Allowed paths
//
// A path must lie inside an allowed directory: the kubelet directory or one of the administrator's
// working directories. Policy.Parse checks the text of the path only.
//
// # How a walk reaches a path
//
// The text alone is not enough: a pod with write access somewhere below the kubelet directory can
// replace a directory there by a link, even during a call. Walk.Reach therefore opens the parent
// directory of the last element relative to the handle of the allowed directory. Windows follows no
// reparse point in a relative open. If the open meets a reparse point, Reach walks: it opens one
// element after the other, each relative to the handle before. Reach follows a reparse point only
// to
//   - another path inside the allowed directories: Reach begins again there
//   - a volume, if the volume is unprotected: Reach goes on in the volume's root directory.
//     Anybody with the right to create a directory can make it a mount point of any volume;
//     Policy.Protects names the volumes to keep out of reach.
//
// All other reparse points end in csiproxy.ErrPermissionDenied.
//
// The operation gets the last element as an Entry: a name in a held directory. Entry.Open is the
// only way to open an Entry, and returns a File. If the File is a directory, File.Entry returns its
// entries, and the same applies further down.
//
// Queries for existence or kind need no held directory. Policy.Exists, Policy.Lookup and
// Policy.Resolve open the last element itself in the same way. Exists first asks by name, again
// with all reparse points refused; the query by name takes no handle.
//
// The mount manager takes a path. Policy.Hold therefore walks from the beginning, and holds each
// directory on the way.
//
// # Why the walk is safe
//
// All handles stay open until the end of the operation, without sharing deletion. An open
// directory is "held": renaming or deleting it needs an open with deletion access, and fails. An
// empty directory can still become a link: the change needs only the right to write attributes, and
// share modes do not cover attributes. A held directory with a held entry is never empty, and only
// the last directory is exposed. Calls through handles are unaffected: entries are opened relative
// to a handle with all reparse points refused (OBJ_DONT_REPARSE), and deleting or listing by handle
// acts on the directory itself, wherever the directories above have moved meanwhile.
//
// File.Mount and File.Unmount call the mount manager while each directory on the way is held. All
// elements before the last are fixed, and the mount manager opens the last element itself, never
// the target of a link. The caller reads the result through its handle. If the mount manager fails
// to open the directory while the caller's handle is open, the handle is closed for the call.
// Meanwhile a file beside the directory keeps the parent directory from becoming a link.
//
// An attacker can make a call fail, and can waste some of its time. An attacker who may rename and
// link inside the allowed directories can also choose which entry there the call acts on. Creating,
// deleting, mounting, linking or revealing anything outside stays impossible.
//
// The allowed directory and the directories above it belong to the administrator: the allowed
// directory is opened by its path, and links on the way are followed. If the allowed directory is
// itself a link, links below must be written with its own path to count as inside. System paths are
// also compared with the real location of a working directory (see findAlias).
//
// # In a HostProcess container
//
// Do not mount the kubelet directory into the container of the process: Windows' bind filter may
// then answer each relative open as if there were a link, or some of them with error 87.
// HostProcess containers see the node's directories without a mount. If the directory is mounted
// all the same, entries are opened by their paths and proven by their final paths (see
// bindfilter.go). The proof leaves one gap: whoever swaps an empty directory for a link at the
// right moment makes an empty file or directory appear outside. It is deleted at once.
package pathpolicy
