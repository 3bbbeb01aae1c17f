// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// System has the Windows calls of this package.
type System interface {
	win.DeviceOpener
	win.Registry
	pathpolicy.System
}

// SharedFinder is the common part of a node's finder and its drivers' finders. Its system is the
// node's.
type SharedFinder struct {
	sys     System
	paths   *pathpolicy.Policy
	owners  Owners
	log     *slog.Logger
	drivers map[string]*Finder // the drivers' finders, all made before the first call

	// When a node is drained, many volumes are unstaged at once, and each call needs the links.
	// Concurrent calls of a driver share one search of the directories without a driver. All calls
	// share one search of each driver's directories.
	links, linksOfDrivers operation.NextRun[string, linkSearch]

	ignored sync.Map // logged errors of Windows' files outside disks
}

// Owners tells the owning drivers, according to the file of drivers; "" means no driver.
type Owners interface {
	// OwnerOfNumber returns the driver of the disk with the number now.
	OwnerOfNumber(ctx context.Context, n csiproxy.DiskNumber) (driver string, _ error)
	// OwnerOfShare returns the driver of a share, given by a UNC path.
	OwnerOfShare(path string) (driver string)
}

// nobody is the Owners of a node without per-driver endpoints.
type nobody struct{}

func (nobody) OwnerOfNumber(context.Context, csiproxy.DiskNumber) (string, error) { return "", nil }

func (nobody) OwnerOfShare(string) string { return "" }

// NewSharedFinder returns the shared part of the finders for the node sys. Links and mount points
// in the directories of paths count as uses of volumes. owners may be nil.
func NewSharedFinder(sys System, paths *pathpolicy.Policy, owners Owners, log *slog.Logger) *SharedFinder {
	if owners == nil {
		owners = nobody{}
	}
	s := &SharedFinder{sys: sys, paths: paths, owners: owners, log: log, drivers: make(map[string]*Finder)}
	s.linksOfDrivers.Timeout = searchTimeout
	return s
}

// Finder finds the users on one node, or the users relevant to one of its drivers. All methods are
// safe for concurrent use.
type Finder struct {
	*SharedFinder
	driver string             // the finder's driver; "" for the node's finder
	sys    System             // of the node or of the driver
	paths  *pathpolicy.Policy // likewise
	// whole is the system of the whole node. A driver's finder has its own, limited by the driver's
	// own calls: many calls of one driver, such as queries for Windows' disks, delay only that
	// driver.
	whole System

	following chan struct{} // a place for each call that follows links, shared by the driver's calls
}

// maxFollowing is how many calls of a driver follow links at a time.
const maxFollowing = 8

// NewFinder returns the finder for the node.
func NewFinder(shared *SharedFinder) *Finder {
	return &Finder{SharedFinder: shared, sys: shared.sys, paths: shared.paths, whole: shared.sys}
}

// Driver returns the finder's driver; "" for the node's finder.
func (f *Finder) Driver() string { return f.driver }

// ofNode returns the finder for the node with the calls of f.
func (f *Finder) ofNode() *Finder {
	return &Finder{SharedFinder: f.SharedFinder, sys: f.whole, paths: f.SharedFinder.paths, whole: f.whole}
}

// FinderForDriver returns the finder for a driver. It finds the users on the whole node, except in
// the own directories of other drivers. sys and paths belong to the driver. Every search of the
// driver's directories, and every step behind links there, uses sys and paths, whoever asks. The
// contents of the driver's directories can thus neither use up the Windows calls of other drivers
// nor lead those calls elsewhere. Queries about the whole node use whole.
func FinderForDriver(shared *SharedFinder, driver string, sys, whole System, paths *pathpolicy.Policy) *Finder {
	f := &Finder{shared, driver, sys, paths, whole, make(chan struct{}, maxFollowing)}
	shared.drivers[driver] = f
	return f
}

// ownerOfDisk returns the driver of a disk, and "" if the disk is missing.
func (f *Finder) ownerOfDisk(ctx context.Context, n csiproxy.DiskNumber) (string, error) {
	if f.driver != "" || len(f.drivers) == 0 {
		return f.driver, nil
	}
	owner, err := f.owners.OwnerOfNumber(ctx, n)
	if winerr.IsGone(err) {
		return "", nil
	}
	return owner, err
}

// ownerOfVolume returns the driver of a volume's disk, and "" if the volume is missing.
func (f *Finder) ownerOfVolume(ctx context.Context, id csiproxy.VolumeID) (string, error) {
	if f.driver != "" || len(f.drivers) == 0 {
		return f.driver, nil
	}
	extents, err := f.extentsIfThere(ctx, id)
	if err != nil || len(extents) == 0 {
		return "", err
	}
	return f.ownerOfDisk(ctx, extents[0].DiskNumber)
}

// OwnerOfShare returns the driver of a share, given by a UNC path.
func (f *Finder) OwnerOfShare(path string) string {
	return cmp.Or(f.driver, f.owners.OwnerOfShare(path))
}
