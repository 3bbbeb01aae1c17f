// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage knows who uses a node's disks, volumes and shares, and locks them for changes.
//
// A [Finder] finds the users: pods, by links and mount points in the allowed directories, and Windows itself. It also
// finds the disks that the administrator protects.
//
// A [Locker] locks disks, volumes and shares against other calls in this process and against other processes of CSI
// Proxy. All groups take their locks here. The file order.go says what excludes what, and in which order locks are
// taken. A locked object is a value, such as [LockedDisk]. A function above this package that changes the object
// mostly takes that value as an argument.
package usage
