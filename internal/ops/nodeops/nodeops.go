// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeops puts the operations of all groups together on one system, which is
// Windows or the simulated node.
package nodeops

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/filesystem"
	"github.com/csi-proxy/csi-proxy/internal/ops/disks"
	"github.com/csi-proxy/csi-proxy/internal/ops/files"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/staging"
	"github.com/csi-proxy/csi-proxy/internal/ops/users"
	"github.com/csi-proxy/csi-proxy/internal/ops/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/system"
	"github.com/csi-proxy/csi-proxy/volume"
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

// Operations are the operations of a node, by group: the fields of node.Node.
type Operations struct {
	Disk       disk.Operations
	Volume     volume.Operations
	Filesystem filesystem.Operations
	SMB        smb.Operations
	ISCSI      iscsi.Operations
	System     system.Operations
	Storage    storage.Operations
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
}

// Load returns what the calls to Windows have to do.
func (n *Node) Load() operation.Load { return n.calls.Load() }

// RefusedLogOns returns how many accounts SMB servers have refused lately, and how many log-ons
// weren't made because of that.
func (n *Node) RefusedLogOns() (refused int, heldBack uint64) {
	return n.shares.RefusedLogOns()
}

// MakeLockFile makes the file that keeps processes of CSI Proxy from each other, if it is missing.
// Without it, the first operation that needs the file makes it.
func (n *Node) MakeLockFile(ctx context.Context) error { return n.locks.MakeLockFile(ctx) }

// New returns the operations on the node that sys is. It fails only for bad options.
func New(sys win.System, o Options) (*Node, error) {
	if err := (storage.FormatOptions{Writers: o.VolumeWriters}).Validate(); err != nil {
		return nil, err
	}
	if o.KubeletPath == "" {
		o.KubeletPath = DefaultKubeletPath
	}
	calls := operation.NewWindows(sys, o.OnWindowsCall, o.Logger)
	paths, err := pathpolicy.New(o.KubeletPath, o.WorkingDirs...)
	if err != nil {
		return nil, err
	}
	if o.WritableMountPoints {
		paths = paths.AllowCreation()
	}
	if o.Logger != nil {
		paths = paths.Log(o.Logger)
	}
	if paths, err = paths.Protect(o.ProtectedVolumes, users.SystemVolumes(calls)); err != nil {
		return nil, err
	}
	log, runner := cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), operation.NewRunner(o.OnOperation)
	finder := users.New(calls, paths, log)
	locker := locks.New(calls, paths, finder, log)
	allDisks := disks.New(calls, disks.Options{
		AllowRecognizedData: o.AllowRecognizedData, RefuseClones: o.RefuseClones,
		SilentDiskTimeout: o.SilentDiskTimeout, OnSkippedDisks: o.OnSkippedDisks,
		Logger: log, Runner: runner, Locks: locker, Users: finder,
	})
	allVolumes := volumes.New(calls, paths, volumes.Options{
		AllowRecognizedData: o.AllowRecognizedData, Writers: o.VolumeWriters,
		Logger: log, Runner: runner, Locks: locker, Users: finder,
	})
	mappings := shares.New(calls, paths, shares.Options{
		WithoutPrivacy: o.SMBWithoutPrivacy, Logger: log, Runner: runner, Locks: locker, Users: finder,
	})
	allFiles := files.New(calls, paths, mappings, files.Options{Logger: log, Runner: runner, Locks: locker})
	targets := initiator.New(calls, initiator.Options{
		Logger: log, Runner: runner, ReenumerateAdapters: allDisks.ReenumerateAdapters,
	})
	tasks := staging.New(staging.Groups{
		Sys: calls, Paths: paths, Locks: locker, Users: finder, Disks: allDisks, Volumes: allVolumes, Files: allFiles,
		Mappings: mappings, Initiator: targets,
	}, staging.Options{Logger: log, Runner: runner})
	n := &Node{calls: calls, paths: paths, locks: locker, users: finder,
		disks: allDisks, shares: mappings, staging: tasks}
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
