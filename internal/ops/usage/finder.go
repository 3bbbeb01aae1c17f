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

// System has the Windows calls that this package makes.
type System interface {
	win.DeviceOpener
	win.Registry
	pathpolicy.System
}

// SharedFinder is what the finders of a node and of its drivers have in common. Its system is the node's.
type SharedFinder struct {
	sys     System
	paths   *pathpolicy.Policy
	owners  Owners
	log     *slog.Logger
	drivers map[string]*Finder // those of drivers, all made before the first call

	// When a node is drained, many volumes are unstaged at once, and each call needs the links. So concurrent calls of a driver share
	// one search of the directories that are no driver's. All calls share one of those of each driver.
	links, linksOfDrivers operation.NextRun[string, linkSearch]

	ignored sync.Map // the files of Windows that were logged as on no disk, with the reasons
}

// Owners say which driver owns what, as the file of drivers has it; "" stands for none.
type Owners interface {
	// OwnerOfNumber returns the driver of the disk that has a number now.
	OwnerOfNumber(ctx context.Context, n csiproxy.DiskNumber) (driver string, err error)
	// OwnerOfShare returns the driver of a share, given by a UNC path.
	OwnerOfShare(path string) (driver string)
}

// nobody are the owners on a node without drivers that have endpoints of their own.
type nobody struct{}

func (nobody) OwnerOfNumber(context.Context, csiproxy.DiskNumber) (string, error) { return "", nil }
func (nobody) OwnerOfShare(string) string                                         { return "" }

// NewSharedFinder returns what the finders for the node sys share. Its volumes are used by links and mount points that paths
// allows. owners may be nil.
func NewSharedFinder(sys System, paths *pathpolicy.Policy, owners Owners, log *slog.Logger) *SharedFinder {
	if owners == nil {
		owners = nobody{}
	}
	s := &SharedFinder{sys: sys, paths: paths, owners: owners, log: log, drivers: make(map[string]*Finder)}
	s.linksOfDrivers.Timeout = searchTimeout
	return s
}

// Finder finds the users on one node, or those that matter to one of its drivers. All methods may be called concurrently.
type Finder struct {
	*SharedFinder
	driver string             // whose finder it is; "" for the node's
	sys    System             // of the node or of the driver
	paths  *pathpolicy.Policy // likewise
	// whole is the system of the whole node. A driver's finder has one with the driver's own calls: many of these, such as those that
	// ask which disks Windows runs from, keep nobody else waiting.
	whole System
}

// NewFinder returns the finder for the node.
func NewFinder(shared *SharedFinder) *Finder {
	return &Finder{SharedFinder: shared, sys: shared.sys, paths: shared.paths, whole: shared.sys}
}

// ofNode returns the finder for the node with the calls of f.
func (f *Finder) ofNode() *Finder {
	return &Finder{SharedFinder: f.SharedFinder, sys: f.whole, paths: f.SharedFinder.paths, whole: f.whole}
}

// FinderForDriver returns the finder for a driver. It finds the users on all of the node, except in the own directories of other
// drivers. The driver's directories are searched, and the links there are followed, by sys and paths, which are the
// driver's, whoever asks. So what a driver has there can't take the calls to Windows of others, nor lead these anywhere. What
// concerns the whole node is asked by whole.
func FinderForDriver(shared *SharedFinder, driver string, sys, whole System, paths *pathpolicy.Policy) *Finder {
	f := &Finder{shared, driver, sys, paths, whole}
	shared.drivers[driver] = f
	return f
}

// ownerOfDisk returns the driver of a disk, and "" if the disk isn't there.
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

// ownerOfVolume returns the driver of the disk on which a volume lies, and "" if the volume is missing.
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

// DefaultFinder returns the finder for a node whose only allowed directory is kubelet's.
func DefaultFinder(sys System) *Finder {
	return NewFinder(NewSharedFinder(sys, pathpolicy.Default(), nil, slog.New(slog.DiscardHandler)))
}
