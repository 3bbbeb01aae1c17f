// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package use owns the use of a node's disks, volumes and shares: it gives the right to
// change one, in this process and against other processes of CSI Proxy. Both APIs go
// through it. The file order.go says what excludes what, and in which order rights are
// taken.
//
// A right is a value: a function that changes a disk, a volume or a share takes the right
// to that as its argument. So whoever forgets the lock has a program that doesn't compile.
package use

import (
	"sync/atomic"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what the rights take of Windows.
type System interface {
	win.DeviceOpener
	win.Registry
	pathpolicy.System
}

// Owner gives the rights of one node. The groups of one node share it: without that they
// don't exclude each other within the process. All methods may be called concurrently.
type Owner struct {
	sys         System
	paths       *pathpolicy.Policy
	systemDisks *systemdisk.Disks

	disks   operation.Locks[disk.Number]
	volumes operation.Locks[string] // by guid
	servers operation.Locks[string]
	shares  operation.Locks[string] // by root
	links   operation.Locks[string] // by path

	windows atomic.Value // Windows' directory, a string; nil before it was asked for
	changes atomic.Uint64
}

// Changes counts what this process may have changed: each right that was given back, and each
// call of Changed.
func (o *Owner) Changes() uint64 { return o.changes.Load() }

// Changed counts a change that takes no right.
func (o *Owner) Changed() { o.changes.Add(1) }

// New returns the owner of what is used on the node sys by way of paths. systemDisks knows
// the disks that Windows runs from, to which there is no right.
func New(sys System, paths *pathpolicy.Policy, systemDisks *systemdisk.Disks) *Owner {
	return &Owner{sys: sys, paths: paths, systemDisks: systemDisks}
}

// Default returns the owner of a node whose only allowed directory is kubelet's.
func Default(sys System) *Owner {
	paths, err := pathpolicy.New(pathpolicy.DefaultKubeletPath)
	if err != nil {
		panic(err) // of a constant
	}
	return New(sys, paths, systemdisk.New(sys))
}
