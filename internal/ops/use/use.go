// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package use locks a node's disks, volumes and shares, and finds out who uses them: pods, and
// Windows itself. A lock on one of these is called the right to it. It excludes other calls in
// this process, and other processes of CSI Proxy. Both APIs take their rights here. The file
// order.go says what excludes what, and in which order rights are taken.
//
// A right is a value, [LockedDisk] for one. A function of packages disks, volumes, shares and staging that
// changes what must be locked takes it as an argument, mostly. The Windows calls below need none.
package use

import (
	"log/slog"
	"sync"

	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// System has the Windows calls that this package makes.
type System interface {
	win.DeviceOpener
	win.Registry
	pathpolicy.System
}

// Owner gives the rights of one node. The groups of one node share it: without that they
// don't exclude each other within the process. All methods may be called concurrently.
type Owner struct {
	sys   System
	paths *pathpolicy.Policy
	log   *slog.Logger

	locks operation.Locks[int64] // by the bytes that stand for objects

	// When a node is drained, many volumes are unstaged at once, and each call needs the links. So
	// concurrent calls share one walk of the allowed directories.
	links operation.Singleflight[struct{}, foundLinks]

	ignored sync.Map // the files of Windows that were logged as on no disk, with the reasons
}

// New returns the owner for the node sys. Volumes and shares are used there by links and mount
// points that paths allows. There is no right to the disks that Windows runs from.
func New(sys System, paths *pathpolicy.Policy, log *slog.Logger) *Owner {
	return &Owner{sys: sys, paths: paths, log: log}
}

// Default returns the owner of a node whose only allowed directory is kubelet's.
func Default(sys System) *Owner {
	paths, err := pathpolicy.New(pathpolicy.DefaultKubeletPath)
	if err != nil {
		panic(err) // of a constant
	}
	return New(sys, paths, slog.New(slog.DiscardHandler))
}
