// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeops puts the operations of all groups together on one system, which is
// Windows or the simulated node.
package nodeops

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/disks"
	"github.com/csi-proxy/csi-proxy/internal/ops/files"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/staging"
	"github.com/csi-proxy/csi-proxy/internal/ops/users"
	"github.com/csi-proxy/csi-proxy/internal/ops/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/published"
)

// DefaultKubeletPath is the directory that kubelet uses on Windows.
const DefaultKubeletPath = pathpolicy.DefaultKubeletPath

// DefaultSilentDiskTimeout is how long the calls on all disks wait for one that does not
// answer.
const DefaultSilentDiskTimeout = disks.DefaultSilentDiskTimeout

// Options are node.Options, which documents them.
type Options struct {
	KubeletPath         string
	WorkingDirs         []string
	ProtectedVolumes    []string
	AllowRecognizedData bool
	RefuseClones        bool
	SilentDiskTimeout   time.Duration
	WritableMountPoints bool
	VolumeWriters       []string
	SMBWithoutPrivacy   bool
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
	calls   *operation.Windows
	paths   *pathpolicy.Policy
	locks   *locks.Locker
	users   *users.Finder
	disks   *disks.Disks
	shares  *shares.Mappings
	staging *staging.Staging
	drivers map[string]Operations
	ofOwn   []*operation.Windows // the calls of each driver
}

// Driver returns the operations of one of the drivers, by its name.
func (n *Node) Driver(name string) Operations { return n.drivers[name] }

// Load returns what the calls to Windows have to do.
func (n *Node) Load() operation.Load {
	load := n.calls.Load()
	for _, calls := range n.ofOwn {
		load = load.Plus(calls.Load())
	}
	return load
}

// RefusedLogOns returns how many accounts SMB servers have refused lately, and how many log-ons
// weren't made because of that.
func (n *Node) RefusedLogOns() (refused int, heldBack uint64) {
	return n.shares.RefusedLogOns()
}

// MakeLockFile makes the file that keeps processes of CSI Proxy from each other, if it is missing.
// Without it, the first operation that needs the file makes it.
func (n *Node) MakeLockFile(ctx context.Context) error { return n.locks.MakeLockFile(ctx) }

// New returns the operations on the node that sys is. The drivers have operations of their own. New fails only for
// bad options, and for drivers that can't be told apart.
func New(sys win.System, o Options, drivers ...Driver) (*Node, error) {
	if err := (csiproxy.FormatOptions{Writers: o.VolumeWriters}).Validate(); err != nil {
		return nil, err
	}
	calls := operation.NewWindows(sys, o.OnWindowsCall, o.Logger)
	var owners []scope.Driver
	var directories []pathpolicy.Driver
	for _, driver := range drivers {
		owners = append(owners, driver.Driver)
		directories = append(directories, pathpolicy.Driver{Name: driver.Name, Dirs: driver.Dirs})
	}
	table, err := scope.New(calls, owners, cmp.Or(o.Logger, slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	paths, err := pathpolicy.New(pathpolicy.Options{
		KubeletPath: o.KubeletPath, WorkingDirs: o.WorkingDirs, Drivers: directories,
		ProtectedVolumes: o.ProtectedVolumes, OfTheNode: users.SystemVolumes(calls),
		WritableMountPoints: o.WritableMountPoints, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	log, runner := cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), operation.NewRunner(o.OnOperation)
	finder := users.New(calls, paths, log)
	locker := locks.New(calls, paths, finder, log)
	allDisks := disks.New(calls, disks.Options{
		OwnerOf:             table.OwnerOfDisk,
		AllowRecognizedData: o.AllowRecognizedData, RefuseClones: o.RefuseClones,
		SilentDiskTimeout: o.SilentDiskTimeout, OnSkippedDisks: o.OnSkippedDisks,
		Logger: log, Runner: runner, Locks: locker, Users: finder,
	})
	allVolumes := volumes.New(calls, paths, volumes.Options{
		AllowRecognizedData: o.AllowRecognizedData, Writers: o.VolumeWriters, OwnerOf: table.OwnerOfDisk,
		Logger: log, Runner: runner, Locks: locker, Users: finder,
	})
	mappings := shares.New(calls, paths, shares.Options{
		WithoutPrivacy: o.SMBWithoutPrivacy, Logger: log, Runner: runner, Locks: locker, Users: finder,
	})
	allFiles := files.New(calls, paths, mappings, files.Options{Logger: log, Runner: runner, Locks: locker})
	targets := initiator.New(calls, initiator.Options{
		Logger: log, Runner: runner, ReenumerateAdapters: allDisks.ReenumerateAdapters,
	})
	groups := staging.Groups{
		Sys: calls, Paths: paths, Locks: locker, Users: finder, Disks: allDisks, Volumes: allVolumes, Files: allFiles,
		Mappings: mappings, Initiator: targets,
	}
	tasks := staging.New(groups, staging.Options{Logger: log, Runner: runner, OwnerOfShare: table.OwnerOfShare})
	n := &Node{calls: calls, paths: paths, locks: locker, users: finder,
		disks: allDisks, shares: mappings, staging: tasks, drivers: make(map[string]Operations)}
	for _, driver := range drivers {
		// Calls of its own: those that hang keep no other driver's waiting.
		calls := operation.NewWindows(sys, o.OnWindowsCall, log.With("driver", driver.Name))
		n.ofOwn = append(n.ofOwn, calls)
		n.drivers[driver.Name] = ofDriver(driver, table, calls, o, tasks)
	}
	n.Operations = Operations{
		Disk:       allDisks,
		Volume:     allVolumes,
		Filesystem: allFiles,
		SMB:        mappings,
		ISCSI:      targets,
		System:     machine.New(calls, machine.Options{Logger: log, Runner: runner}),
		Storage:    tasks,
	}
	return n, nil
}

// ofDriver returns the operations of a driver, whose calls are. node are the tasks of the node, of whose
// groups it gets its part.
func ofDriver(driver Driver, table *scope.Table, calls win.System, o Options, node *staging.Staging) Operations {
	sys := table.Of(driver.Driver, calls, func(path string) bool { return node.Paths.IsInDirectoryOf(driver.Name, path) })
	log := cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("driver", driver.Name)
	runner := operation.NewRunner(o.OnOperation)
	within := node.Paths.Within(pathpolicy.Territory{
		Driver: driver.Name, Share: driver.HasShare, Logger: log,
		Volume: func(ctx context.Context, name string) (string, error) {
			err := sys.CheckVolume(ctx, csiproxy.VolumeID(name))
			if errors.Is(err, csiproxy.ErrNotFound) {
				return "it isn't on a disk of the driver", nil
			}
			return "", err
		},
	})
	g := staging.Groups{Sys: sys, Paths: within, Users: node.Users.Of(within)}
	g.Locks = node.Locks.Of(sys, g.Paths, sys.CheckVolume, log)
	g.Disks = node.Disks.Of(driver.Name, sys, g.Locks, g.Users, log)
	g.Volumes = volumes.New(sys, g.Paths, volumes.Options{
		AllowRecognizedData: o.AllowRecognizedData, Writers: o.VolumeWriters,
		// No other driver's disk can be opened.
		OwnerOf: func(context.Context, device.Handle, opendisk.Hardware) (string, error) { return driver.Name, nil },
		Logger:  log, Runner: runner, Locks: g.Locks, Users: g.Users,
	})
	g.Mappings = node.Mappings.Of(sys, g.Paths, g.Locks, g.Users, log)
	g.Files = files.New(sys, g.Paths, g.Mappings, files.Options{Logger: log, Runner: runner, Locks: g.Locks})
	g.Initiator = node.Initiator.Of(sys, log)
	return Operations{
		Disk: g.Disks, Volume: g.Volumes, Filesystem: g.Files, SMB: g.Mappings, ISCSI: g.Initiator,
		System:  machine.New(sys, machine.Options{Logger: log, Runner: runner}),
		Storage: node.Of(driver.Name, g, log),
	}
}
