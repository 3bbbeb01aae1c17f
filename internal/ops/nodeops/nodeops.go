// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeops implements the operations on a node, Windows or simulated, and assembles the
// operations of all groups.
//
// [Disks] finds disks, brings them online and partitions them. [Volumes] finds, formats, mounts and
// grows volumes. [Filesystem] makes and removes directories and links, strictly inside the allowed
// directories: links can't lead outside, even if swapped in during a call. [Staging] has the
// storage group: whole tasks of a CSI node, composed of the operations of all groups.
//
// Each operation first asks Windows for the current state and then does the missing steps.
// Operations can therefore be repeated, even after a process has died half-way. An operation on a
// disk changes only the disk that had the number at the start of the call, and checks right before
// each change that it still is the same disk: see [opendisk.Disk].
package nodeops

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/published"
)

// DefaultKubeletPath is kubelet's default directory on Windows.
const DefaultKubeletPath = pathpolicy.DefaultKubeletPath

// Options are node.Options; see there.
type Options struct {
	KubeletPath         string
	WorkingDirs         []string
	OwnFiles            []string
	ProtectedVolumes    []string
	AllowRecognizedData bool
	RefuseClones        bool
	SilentDiskTimeout   time.Duration
	WritableMountPoints bool
	ReformatDirs        []string
	VolumeWriters       []string
	SMBWithoutPrivacy   bool
	RefuseNodeAccount   bool
	Logger              *slog.Logger
	OnOperation         func(name string, took time.Duration, err error)
	OnWindowsCall       func(call string, took time.Duration, err error)
	OnSkippedDisks      func(count int)
}

// Driver is a driver with operations of its own, limited to the driver's resources.
type Driver struct {
	scope.Driver
	// Dirs are the driver's directories in addition to kubelet's directories for the driver's name.
	Dirs []string
	// Reformat lets the driver's FormatVolume empty volumes of the driver's disks that are mounted
	// directly in one of Dirs.
	Reformat bool
}

// Operations are the operations of a node, by group: the fields of node.Node.
type Operations struct {
	Disk       published.DiskOperations
	Volume     published.VolumeOperations
	Filesystem published.FilesystemOperations
	SMB        published.SMBOperations
	ISCSI      published.ISCSIOperations
	System     published.SystemOperations
	Storage    csiproxy.StorageOperations
}

// Node is the operations of a node, with their state.
type Node struct {
	Operations
	groups  Groups // of the whole node
	calls   *operation.Windows
	drivers map[string]Operations
	all     []*operation.Windows // the calls of the node and of each driver
}

// Driver returns the operations of the driver with a name.
func (n *Node) Driver(name string) Operations { return n.drivers[name] }

// Load returns the load of all calls to Windows.
func (n *Node) Load() (load operation.Load) {
	for _, calls := range n.all {
		load = load.Plus(calls.Load())
	}
	return load
}

// RefusedLogOns returns the number of accounts recently refused by SMB servers, and the number of
// log-ons held back because of the refusals.
func (n *Node) RefusedLogOns() (refused int, heldBack uint64) {
	return n.groups.Mappings.RefusedLogOns()
}

// KeepLockFile opens the lock file, by which processes of CSI Proxy exclude each other: see
// [usage.Locker.KeepLockFile].
func (n *Node) KeepLockFile(ctx context.Context) (io.Closer, error) {
	return n.groups.Locks.KeepLockFile(ctx)
}

// New returns the operations on the node sys. Each driver has operations of its own. New fails only
// for bad options, and for drivers that are indistinguishable.
func New(sys win.System, o Options, drivers ...Driver) (*Node, error) {
	common, err := newShared(sys, o, drivers)
	if err != nil {
		return nil, err
	}
	n := &Node{calls: common.calls, drivers: make(map[string]Operations)}
	whole := common.whole()
	n.all = append(n.all, whole.calls)
	if len(drivers) > 0 {
		// Lists ask the drivers' disks. Where such a call hangs, the node's other calls go on.
		whole.lists = common.listCalls()
		n.all = append(n.all, whole.lists)
	}
	n.Operations, n.groups = common.newGroups(whole)
	for _, driver := range drivers {
		own := common.partOf(driver.Driver)
		n.drivers[driver.Name], _ = common.newGroups(own)
		n.all = append(n.all, own.calls, own.lists)
	}
	return n, nil
}

// shared is the state shared by the operations of a node and of its drivers. Each node has one.
type shared struct {
	sys     win.System
	options Options
	calls   *operation.Windows // the node's own calls of sys
	paths   *pathpolicy.Policy
	owners  *scope.Table

	locks    *usage.SharedLocks
	users    *usage.SharedFinder
	disks    *SharedDisks
	mappings *shares.Shared
	targets  *initiator.TargetLocks
	tasks    *SharedStaging
}

func newShared(sys win.System, o Options, drivers []Driver) (*shared, error) {
	if err := (csiproxy.FormatOptions{Writers: o.VolumeWriters}).Validate(); err != nil {
		return nil, err
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	calls := operation.NewWindows(sys, o.OnWindowsCall, o.Logger)
	var names []string
	var owners []scope.Driver
	var directories []pathpolicy.Driver
	for _, driver := range drivers {
		names, owners = append(names, driver.Name), append(owners, driver.Driver)
		directories = append(directories, pathpolicy.Driver{Name: driver.Name, Dirs: driver.Dirs, Reformat: driver.Reformat})
	}
	table, err := scope.New(calls, owners, o.Logger)
	if err != nil {
		return nil, err
	}
	paths, err := pathpolicy.New(pathpolicy.Options{
		KubeletPath: o.KubeletPath, WorkingDirs: o.WorkingDirs, OwnFiles: o.OwnFiles, Drivers: directories,
		ReformatDirs:     o.ReformatDirs,
		ProtectedVolumes: o.ProtectedVolumes, OfTheNode: usage.SystemVolumes(calls, calls),
		WritableMountPoints: o.WritableMountPoints, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &shared{
		sys: sys, options: o, calls: calls, paths: paths, owners: table,
		locks: usage.NewSharedLocks(names),
		users: usage.NewSharedFinder(calls, paths, table, o.Logger),
		disks: newSharedDisks(sharedDiskOptions{
			SilentDiskTimeout: o.SilentDiskTimeout, OnSkippedDisks: o.OnSkippedDisks, Logger: o.Logger}),
		mappings: shares.NewShared(o.Logger, table.OwnerOfShare),
		targets:  initiator.NewTargetLocks(names),
		tasks:    newSharedStaging(names),
	}, nil
}

// part is the part of a node that operations may touch: the whole node, or a driver's resources.
type part struct {
	driver string             // "" for the whole node
	calls  *operation.Windows // the part's bounded calls to Windows
	lists  *operation.Windows // for lists of all disks and their owners; separate, as hanging disks then delay only lists
	sys    win.System         // uses calls
	paths  *pathpolicy.Policy
	users  *usage.Finder
	log    *slog.Logger
	// hasVolume is usage.LockOptions.HasVolume; nil for the whole node.
	hasVolume   func(ctx context.Context, id csiproxy.VolumeID) (isThere bool, _ error)
	ownerOfDisk func(ctx context.Context, disk *opendisk.Disk) (driver string, err error)
	// lastingOwnerOf is usage.LockOptions.OwnerOf. It knows only owners that can't change while the
	// disk is there.
	lastingOwnerOf func(ctx context.Context, disk *opendisk.Disk) (driver string, isKnown bool)
	// ownerOfPortal is initiator.Options.OwnerOf; nil for a driver, which sees only its own
	// portals.
	ownerOfPortal func(p win.ISCSIPortal) (driver string, isKnown bool)
}

// whole returns the whole node, with the same calls for lists.
func (s *shared) whole() part {
	return part{calls: s.calls, lists: s.calls, sys: s.calls, paths: s.paths, users: usage.NewFinder(s.users), log: s.options.Logger,
		ownerOfDisk: s.ownersBy(s.calls), lastingOwnerOf: s.owners.LastingOwnerOf, ownerOfPortal: s.owners.OwnerOfPortal}
}

// partOf returns a driver's part of the node.
func (s *shared) partOf(driver scope.Driver) part {
	p := part{driver: driver.Name, log: s.options.Logger.With("driver", driver.Name)}
	// Each driver has its own calls: hanging calls delay only this driver.
	p.calls = operation.NewWindows(s.sys, s.options.OnWindowsCall, p.log).ForDriver(driver.Name)
	p.lists = s.listCalls().ForDriver(driver.Name)
	sys := scope.NewSystem(p.calls, s.owners, driver, func(ctx context.Context, listed []string) (map[string]bool, error) {
		return s.paths.DriversAt(ctx, p.calls, listed)
	})
	p.sys, p.hasVolume, p.lastingOwnerOf = sys, sys.HasVolume, sys.OwnerOf
	p.paths = s.paths.Within(pathpolicy.DriverPaths{
		Driver: driver.Name, OfTheNode: usage.SystemVolumes(p.calls, sys), Share: driver.HasShare, Logger: p.log})
	p.users = usage.FinderForDriver(s.users, driver.Name, sys, p.calls, p.paths)
	p.ownerOfDisk = func(context.Context, *opendisk.Disk) (string, error) {
		return driver.Name, nil // only the driver's own disks can be opened
	}
	return p
}

// listCalls returns calls for lists of all disks. Their log has no driver: the disks may be any
// driver's.
func (s *shared) listCalls() *operation.Windows {
	return operation.NewWindows(s.sys, s.options.OnWindowsCall, s.options.Logger)
}

// ownersBy returns the function that finds the owner of an open disk, by the iSCSI sessions from sys.
func (s *shared) ownersBy(sys win.ISCSIInitiator) func(context.Context, *opendisk.Disk) (driver string, err error) {
	return func(ctx context.Context, disk *opendisk.Disk) (string, error) {
		return s.owners.OwnerOfDisk(ctx, sys, disk)
	}
}

// newGroups returns the operations on a part of the node.
func (s *shared) newGroups(p part) (Operations, Groups) {
	o := s.options
	g := Groups{Sys: p.sys, Paths: p.paths, Users: p.users}
	g.Locks = usage.NewLocker(p.sys, p.paths, g.Users, usage.LockOptions{Logger: p.log, Shared: s.locks, Driver: p.driver,
		OwnerOf: p.lastingOwnerOf, HasVolume: p.hasVolume})
	g.Disks = newDisks(p.sys, diskOptions{
		AllowRecognizedData: o.AllowRecognizedData, RefuseClones: o.RefuseClones, Driver: p.driver, Shared: s.disks,
		Lists: p.lists, OwnerOf: s.ownersBy(p.lists), // lists open the disks of all drivers
		Logger: p.log, Observer: o.OnOperation, Locks: g.Locks, Users: g.Users,
	})
	g.Volumes = newVolumes(p.sys, p.paths, volumeOptions{
		AllowRecognizedData: o.AllowRecognizedData, Writers: o.VolumeWriters, OwnerOf: p.ownerOfDisk, Lists: p.lists,
		Logger: p.log, Observer: o.OnOperation, Locks: g.Locks, Users: g.Users,
	})
	g.Mappings = shares.New(p.sys, p.paths, shares.Options{
		WithoutPrivacy: o.SMBWithoutPrivacy, RefuseNodeAccount: o.RefuseNodeAccount, Shared: s.mappings,
		Logger: p.log, Observer: o.OnOperation, Locks: g.Locks, Users: g.Users,
	})
	g.Files = newFilesystem(p.sys, p.paths, g.Mappings, filesystemOptions{Logger: p.log, Observer: o.OnOperation, Locks: g.Locks})
	g.Initiator = initiator.New(p.sys, initiator.Options{Driver: p.driver, OwnerOf: p.ownerOfPortal, Targets: s.targets,
		Logger: p.log, Observer: o.OnOperation, ReenumerateAdapters: g.Disks.ReenumerateAdapters})
	return Operations{
		Disk: g.Disks, Volume: g.Volumes, Filesystem: g.Files, SMB: g.Mappings, ISCSI: g.Initiator,
		System:  machine.New(p.sys, machine.Options{Logger: p.log, Observer: o.OnOperation}),
		Storage: newStaging(g, stagingOptions{Driver: p.driver, Shared: s.tasks, Logger: p.log, Observer: o.OnOperation}),
	}, g
}
