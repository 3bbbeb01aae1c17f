// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package users finds out who uses a node's disks and volumes: pods, by links and mount points in the
// allowed directories, and Windows itself. It also finds the disks that the administrator protects.
package users

import (
	"log/slog"
	"sync"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// System has the Windows calls that this package and package locks make.
type System interface {
	win.DeviceOpener
	win.Registry
	pathpolicy.System
}

// Shared is what the finders of a node and of its drivers have in common: where they search, and the search itself.
type Shared struct {
	sys   System
	paths *pathpolicy.Policy
	log   *slog.Logger

	// When a node is drained, many volumes are unstaged at once, and each call needs the links. So
	// concurrent calls, of all drivers, share one walk of the allowed directories.
	links operation.NextRun[struct{}, linkSearch]

	ignored sync.Map // the files of Windows that were logged as on no disk, with the reasons
}

// NewShared returns what the finders for the node sys share. Its volumes are used by links and mount points that paths
// allows.
func NewShared(sys System, paths *pathpolicy.Policy, log *slog.Logger) *Shared {
	return &Shared{sys: sys, paths: paths, log: log}
}

// Finder finds the users on one node. The groups of one node share it. All methods may be called
// concurrently.
type Finder struct {
	*Shared
	own *pathpolicy.Policy // of the driver that asks, or that of the node
}

// New returns the finder for the node, or for a driver, whose paths own is. It finds the users on all of the node. But what
// a driver can't find out in other drivers' own directories is no error, since these drivers may cause that at will.
func New(shared *Shared, own *pathpolicy.Policy) *Finder { return &Finder{shared, own} }

// Default returns the finder for a node whose only allowed directory is kubelet's.
func Default(sys System) *Finder {
	paths := pathpolicy.Default()
	return New(NewShared(sys, paths, slog.New(slog.DiscardHandler)), paths)
}
