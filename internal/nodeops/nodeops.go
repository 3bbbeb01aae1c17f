// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeops puts the operations of all groups together on one system, which is
// Windows or the simulated node.
package nodeops

import (
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/filesystem"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/files"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/machine"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/mappings"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/shared"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/staging"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/volumes"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/smblogon"
	"github.com/csi-proxy/csi-proxy/internal/smbprobe"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
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
	NewIDsForClones     bool
	SilentDiskTimeout   time.Duration
	WritableMountPoints bool
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
	calls   *wincalls.System
	paths   *pathpolicy.Policy
	disks   *disks.Disks
	shares  *smbprobe.Prober
	staging *staging.Staging
}

// Load returns what the calls to Windows have to do, by the kind of their objects.
func (n *Node) Load() []wincalls.Load { return n.calls.Load() }

// RefusedLogOns returns how many accounts SMB servers have refused lately, and how many log-ons
// weren't made because of that.
func (n *Node) RefusedLogOns() (refused int, heldBack uint64) {
	return len(n.shares.LogOns().Refused()), n.shares.LogOns().HeldBack()
}

// RefusedUnstages returns at how many paths UnstageVolume was refused lately, mostly since
// something uses the volume, and hasn't succeeded since.
func (n *Node) RefusedUnstages() int { return n.staging.RefusedUnstages() }

// KeepDirectories has PathExists be quicker when it is called often: see
// [pathpolicy.Policy.KeepDirectories]. Call stop after the last operation, before the
// system is closed.
func (n *Node) KeepDirectories() (stop func() error) { return n.paths.KeepDirectories() }

// New returns the operations on the node that sys is. It fails only for bad options.
func New(sys win.System, o Options) (*Node, error) {
	if o.KubeletPath == "" {
		o.KubeletPath = DefaultKubeletPath
	}
	calls := wincalls.New(sys, wincalls.Options{Observe: o.OnWindowsCall, Logger: o.Logger})
	systemDisks := systemdisk.New(calls)
	paths, err := pathpolicy.New(o.KubeletPath, o.WorkingDirs...)
	if err == nil && o.WritableMountPoints {
		paths = paths.AllowCreation()
	}
	if err == nil {
		paths, err = paths.Protect(o.ProtectedVolumes, systemDisks.Protected)
	}
	if err != nil {
		return nil, err
	}
	owner := use.New(calls, paths, systemDisks)
	probes := smbprobe.New(calls, smblogon.New(o.Logger))
	options := shared.Options{
		AllowRecognizedData: o.AllowRecognizedData, NewIDsForClones: o.NewIDsForClones,
		SilentDiskTimeout: o.SilentDiskTimeout, WithoutPrivacy: o.SMBWithoutPrivacy,
		Logger: o.Logger, Runner: operation.NewRunner(o.OnOperation), Owner: owner,
		SystemDisks: systemDisks, Shares: probes, OnSkippedDisks: o.OnSkippedDisks,
	}
	allDisks := disks.New(calls, options)
	allVolumes := volumes.New(calls, paths, options)
	allMappings := mappings.New(calls, paths, options)
	options.OnUnlinked, options.AskAdapters = allMappings.Unlinked, allDisks.AskAdapters
	allFiles := files.New(calls, paths, options)
	targets := initiator.New(calls, options)
	tasks := staging.New(staging.Groups{
		Sys: calls, Paths: paths, Owner: owner, Disks: allDisks, Volumes: allVolumes, Files: allFiles, Mappings: allMappings,
		LogOns: probes.LogOns(), Initiator: targets, SystemDisks: systemDisks,
	}, options)
	return &Node{calls: calls, paths: paths, disks: allDisks, shares: probes, staging: tasks, Operations: Operations{
		Disk:       allDisks,
		Volume:     allVolumes,
		Filesystem: allFiles,
		SMB:        allMappings,
		ISCSI:      targets,
		System:     machine.New(calls, options),
		Storage:    tasks,
	}}, nil
}
