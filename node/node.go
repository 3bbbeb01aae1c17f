// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node does the storage operations of one Windows node in process: what
// the daemon offers over its endpoints, as Go methods. A driver's test gets one
// on a simulated node from package simnode.
package node

import (
	"log/slog"

	"github.com/csi-proxy/csi-proxy/internal/keylock"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/smbprobe"
	"github.com/csi-proxy/csi-proxy/internal/wintrace"
	"github.com/csi-proxy/csi-proxy/node/disk"
	"github.com/csi-proxy/csi-proxy/node/filesystem"
	"github.com/csi-proxy/csi-proxy/node/iscsi"
	"github.com/csi-proxy/csi-proxy/node/smb"
	"github.com/csi-proxy/csi-proxy/node/system"
	"github.com/csi-proxy/csi-proxy/node/volume"
)

// DefaultKubeletPath is the directory that kubelet uses on Windows.
const DefaultKubeletPath = `C:\var\lib\kubelet`

// Options configure a node. The zero value is the default.
type Options struct {
	// KubeletPath is the directory below which paths are accepted. Default:
	// DefaultKubeletPath.
	KubeletPath string
	// WorkingDirs are further directories below which paths are accepted.
	WorkingDirs []string
	// AllowRecognizedData lets PartitionDisk and FormatVolume write over data of
	// another system that they recognise. Default: they refuse.
	AllowRecognizedData bool
	// SMBWithoutPrivacy lets NewSMBGlobalMapping map shares of servers that don't
	// encrypt. Default: it doesn't.
	SMBWithoutPrivacy bool
	// Logger gets what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// OnOperation is told of every operation that has ended, OnWindowsCall of
	// every call to Windows. Default: nobody is.
	OnOperation   operation.Observer
	OnWindowsCall wintrace.Observer
	// MaxOperations bounds the operations under way at one time; more wait. Of those
	// of SMB, ISCSI and System, each may have a quarter. An operation that Windows
	// doesn't finish counts also when its caller has given up, one that waits for
	// something else doesn't. Default: 256.
	MaxOperations int
}

// Node is a Windows node. Its methods may be called concurrently.
type Node struct {
	Disk       *disk.Disks
	Volume     *volume.Volumes
	Filesystem *filesystem.Filesystem
	SMB        *smb.Mappings
	ISCSI      *iscsi.Initiator
	System     *system.Machine
}

// New returns the operations on the node that sys is. It fails only for bad
// options.
func New(sys wintrace.System, o Options) (*Node, error) {
	if o.KubeletPath == "" {
		o.KubeletPath = DefaultKubeletPath
	}
	if o.MaxOperations == 0 {
		o.MaxOperations = operation.DefaultMaximum
	}
	paths, err := pathpolicy.New(o.KubeletPath, o.WorkingDirs...)
	if err != nil {
		return nil, err
	}
	instrumented := wintrace.New(sys, o.OnWindowsCall)
	runner := operation.NewRunner(o.MaxOperations, o.OnOperation)
	locks := new(keylock.Locks[uint32])
	shares := smbprobe.New(instrumented)
	// Servers, targets and services may keep operations waiting: so many of each that
	// there is room for those on disks.
	part := func() *operation.Runner { return runner.Part(max(1, o.MaxOperations/4)) }
	return &Node{
		Disk: disk.New(instrumented, disk.Options{
			AllowRecognizedData: o.AllowRecognizedData, Logger: o.Logger, Locks: locks, Runner: runner,
		}),
		Volume: volume.New(instrumented, paths, volume.Options{
			AllowRecognizedData: o.AllowRecognizedData, Logger: o.Logger, Locks: locks, Runner: runner,
		}),
		Filesystem: filesystem.New(instrumented, paths, filesystem.Options{Runner: runner, Shares: shares}),
		SMB: smb.New(instrumented, paths, smb.Options{
			WithoutPrivacy: o.SMBWithoutPrivacy, Logger: o.Logger, Runner: part(), Shares: shares,
		}),
		ISCSI:  iscsi.New(instrumented, iscsi.Options{Logger: o.Logger, Runner: part()}),
		System: system.New(instrumented, system.Options{Runner: part()}),
	}, nil
}
