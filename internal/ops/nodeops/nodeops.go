// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeops does the operations on a node, Windows or the simulated one, and puts those of all
// groups together.
//
// [Disks] finds disks, brings them online and partitions them. [Volumes] finds, formats, mounts and
// grows volumes. [Files] makes and removes directories and links, inside of the allowed directories
// only: no link leads out of these, even one swapped in during a call. [Staging] has the storage
// group: whole tasks of a CSI node, made of the operations of the other groups.
//
// Each operation first asks Windows for the current state and then does the missing steps. Therefore
// it may be repeated, also after a process that died half-way through. An operation on a disk changes
// only the disk that had the number at the start of the call, and checks the disk's contents right
// before each change: see [opendisk.Disk].
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

// DefaultKubeletPath is the directory that kubelet uses on Windows.
const DefaultKubeletPath = pathpolicy.DefaultKubeletPath

// Options are node.Options, which documents them.
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

// Driver is a driver that has operations of its own, which touch nothing else than what is the driver's.
type Driver struct {
	scope.Driver
	// Dirs are the driver's directories beside those that kubelet has for it by its name.
	Dirs []string
	// Reformat lets the driver's FormatVolume empty volumes of its disks that are mounted right in one of Dirs.
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

// Node is the operations with what bears them.
type Node struct {
	Operations
	groups  Groups // of the whole node
	calls   *operation.Windows
	drivers map[string]Operations
	all     []*operation.Windows // the node's calls, those of lists of disks, and those of each driver
}

// Driver returns the operations of one of the drivers, by its name.
func (n *Node) Driver(name string) Operations { return n.drivers[name] }

// Load returns what the calls to Windows have to do.
func (n *Node) Load() (load operation.Load) {
	for _, calls := range n.all {
		load = load.Plus(calls.Load())
	}
	return load
}

// RefusedLogOns returns how many accounts SMB servers have refused lately, and how many log-ons
// weren't made because of that.
func (n *Node) RefusedLogOns() (refused int, heldBack uint64) {
	return n.groups.Mappings.RefusedLogOns()
}

// KeepLockFile opens the file by which processes of CSI Proxy exclude each other: see [usage.Locker.KeepLockFile].
func (n *Node) KeepLockFile(ctx context.Context) (io.Closer, error) {
	return n.groups.Locks.KeepLockFile(ctx)
}

// New returns the operations on the node that sys is. The drivers have operations of their own. New fails only for
// bad options, and for drivers that can't be told apart.
func New(sys win.System, o Options, drivers ...Driver) (*Node, error) {
	common, err := newShared(sys, o, drivers)
	if err != nil {
		return nil, err
	}
	n := &Node{calls: common.calls, drivers: make(map[string]Operations), all: []*operation.Windows{common.calls}}
	if common.lists != common.calls {
		n.all = append(n.all, common.lists)
	}
	n.Operations, n.groups = common.newGroups(common.whole())
	for _, driver := range drivers {
		own := common.partOf(driver.Driver)
		n.drivers[driver.Name], _ = common.newGroups(own)
		n.all = append(n.all, own.calls)
	}
	return n, nil
}

// shared is what the operations of the node and of its drivers have in common. It is made once for each node.
type shared struct {
	sys     win.System
	options Options
	calls   *operation.Windows // the node's own calls of sys
	lists   *operation.Windows // those that ask all disks. On a node with drivers they are apart: disks that hang delay lists alone
	paths   *pathpolicy.Policy
	owners  *scope.Table
	runner  *operation.Runner

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
	lists := calls
	if len(drivers) > 0 {
		lists = operation.NewWindows(sys, o.OnWindowsCall, o.Logger)
	}
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
		sys: sys, options: o, calls: calls, lists: lists, paths: paths, owners: table, runner: operation.NewRunner(o.OnOperation),
		locks: usage.NewSharedLocks(names),
		users: usage.NewSharedFinder(calls, paths, table, o.Logger),
		disks: NewSharedDisks(lists, SharedDiskOptions{OwnerOf: table.OwnerOfDisk,
			SilentDiskTimeout: o.SilentDiskTimeout, OnSkippedDisks: o.OnSkippedDisks, Logger: o.Logger}),
		mappings: shares.NewShared(o.Logger, table.OwnerOfShare),
		targets:  initiator.NewTargetLocks(names),
		tasks:    NewSharedStaging(names),
	}, nil
}

// part is what of a node its operations touch: all, or what is one driver's.
type part struct {
	driver string // "" for the whole node
	calls  *operation.Windows
	sys    win.System // made of calls
	paths  *pathpolicy.Policy
	users  *usage.Finder
	log    *slog.Logger
	// hasVolume is usage.LockOptions.HasVolume; nil for the whole node.
	hasVolume   func(ctx context.Context, id csiproxy.VolumeID) (isThere bool, _ error)
	ownerOfDisk func(ctx context.Context, disk *opendisk.Disk) (driver string, err error)
	// lastingOwnerOf is usage.LockOptions.OwnerOf.
	lastingOwnerOf func(ctx context.Context, disk *opendisk.Disk) (driver string, isKnown bool)
	// ownerOfPortal is initiator.Options.OwnerOf; nil for a driver, whose portals are its own.
	ownerOfPortal func(p win.ISCSIPortal) (driver string, isKnown bool)
}

// whole is the whole node.
func (s *shared) whole() part {
	return part{calls: s.calls, sys: s.calls, paths: s.paths, users: usage.NewFinder(s.users), log: s.options.Logger,
		ownerOfDisk: s.owners.OwnerOfDisk, lastingOwnerOf: s.owners.LastingOwnerOf, ownerOfPortal: s.owners.OwnerOfPortal}
}

// partOf is what is one driver's.
func (s *shared) partOf(driver scope.Driver) part {
	p := part{driver: driver.Name, log: s.options.Logger.With("driver", driver.Name)}
	// Calls of its own: those that hang keep no other driver's waiting.
	p.calls = operation.NewWindows(s.sys, s.options.OnWindowsCall, p.log)
	sys := scope.NewSystem(p.calls, s.owners, driver, func(ctx context.Context, listed []string) (map[string]bool, error) {
		return s.paths.DriversAt(ctx, p.calls, listed)
	})
	p.sys, p.hasVolume, p.lastingOwnerOf = sys, sys.HasVolume, sys.OwnerOf
	p.paths = s.paths.Within(pathpolicy.Territory{
		Driver: driver.Name, OfTheNode: usage.SystemVolumes(p.calls, sys), Share: driver.HasShare, Logger: p.log})
	p.users = usage.FinderForDriver(s.users, driver.Name, sys, p.calls, p.paths)
	p.ownerOfDisk = func(context.Context, *opendisk.Disk) (string, error) {
		return driver.Name, nil // no other driver's disk can be opened
	}
	return p
}

// newGroups returns the operations on a part of the node.
func (s *shared) newGroups(p part) (Operations, Groups) {
	o, runner := s.options, s.runner
	g := Groups{Sys: p.sys, Paths: p.paths, Users: p.users}
	g.Locks = usage.NewLocker(p.sys, p.paths, g.Users, usage.LockOptions{Logger: p.log, Shared: s.locks, Driver: p.driver,
		OwnerOf: p.lastingOwnerOf, HasVolume: p.hasVolume})
	g.Disks = NewDisks(p.sys, DiskOptions{
		AllowRecognizedData: o.AllowRecognizedData, RefuseClones: o.RefuseClones, Driver: p.driver, Shared: s.disks,
		Logger: p.log, Runner: runner, Locks: g.Locks, Users: g.Users,
	})
	g.Volumes = NewVolumes(p.sys, p.paths, VolumeOptions{
		AllowRecognizedData: o.AllowRecognizedData, Writers: o.VolumeWriters, OwnerOf: p.ownerOfDisk,
		Logger: p.log, Runner: runner, Locks: g.Locks, Users: g.Users,
	})
	g.Mappings = shares.New(p.sys, p.paths, shares.Options{
		WithoutPrivacy: o.SMBWithoutPrivacy, RefuseNodeAccount: o.RefuseNodeAccount, Shared: s.mappings,
		Logger: p.log, Runner: runner, Locks: g.Locks, Users: g.Users,
	})
	g.Files = NewFiles(p.sys, p.paths, g.Mappings, FileOptions{Logger: p.log, Runner: runner, Locks: g.Locks})
	g.Initiator = initiator.New(p.sys, initiator.Options{Driver: p.driver, OwnerOf: p.ownerOfPortal, Targets: s.targets,
		Logger: p.log, Runner: runner, ReenumerateAdapters: func(ctx context.Context) error {
			return s.disks.ReenumerateAdapters(ctx, p.driver)
		}})
	return Operations{
		Disk: g.Disks, Volume: g.Volumes, Filesystem: g.Files, SMB: g.Mappings, ISCSI: g.Initiator,
		System:  machine.New(p.sys, machine.Options{Logger: p.log, Runner: runner}),
		Storage: NewStaging(g, StagingOptions{Driver: p.driver, Shared: s.tasks, Logger: p.log, Runner: runner}),
	}, g
}
