// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage finds the users of a node's disks, volumes and shares, and locks disks, volumes and
// shares for changes.
//
// A [Finder] finds the users: pods, by links and mount points in the allowed directories, and
// Windows itself. The finder also finds the disks protected by the administrator.
//
// A [Locker] locks disks, volumes and shares against other calls in this process and against
// further processes of CSI Proxy. All groups take their locks here. The file order.go lists the
// locks of each operation and the order of locks. A locked object is a value, such as [LockedDisk].
// Most functions above this package take the value of a locked object as an argument before they
// change the object.
package usage
