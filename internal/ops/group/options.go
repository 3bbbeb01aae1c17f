// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package group has what the groups of operations have in common: their options. Those of one node share
// a value.
package group

import (
	"context"
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/locks"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/users"
)

// Options change how the operations behave. Each group takes those that concern it. The zero
// value is the default, as for a group that is alone on its node.
type Options struct {
	// AllowRecognizedData lets PartitionDisk and FormatVolume write over data of another
	// system that they recognise. Default: they refuse. A volume with a file system that
	// Windows knows is refused always.
	AllowRecognizedData bool
	// RefuseClones refuses to bring a disk online that has the ids of a disk which is online, such
	// as a snapshot next to its original. Default: Windows gives it new ids.
	RefuseClones bool
	// SilentDiskTimeout is how long the calls on all disks wait for one that does not
	// answer. Default: disks.DefaultSilentDiskTimeout.
	SilentDiskTimeout time.Duration
	// WithoutPrivacy accepts SMB servers that don't encrypt. Default: they are refused.
	WithoutPrivacy bool

	// Writers are who may write at the root of a volume that FormatVolume has formatted, as
	// storage.FormatOptions has them. Default: whom Windows lets.
	Writers []string

	// Logger gets each change of the node, and what an operation passes over without
	// failing. Default: none.
	Logger *slog.Logger
	// Runner runs and observes the operations.
	Runner *operation.Runner
	// Locks locks what is changed: a disk, a volume, the mappings of a server, the links to a share. A
	// query locks nothing: a server may take long to answer it.
	Locks *locks.Locker
	// Users finds who uses disks and volumes.
	Users *users.Finder

	// OnSkippedDisks is called with how many disks the calls on all disks pass over, since
	// these don't answer or answer with errors, whenever that number changes. Default: none.
	OnSkippedDisks func(count int)
	// ReenumerateAdapters has the node's storage adapters search for new disks. It is called while
	// disks of an iSCSI target are awaited. Default: they don't, and Windows finds the disks by
	// itself.
	ReenumerateAdapters func(context.Context) error
}

// Logged returns the options with a logger and a runner, if they are missing.
func (o Options) Logged() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Runner == nil {
		o.Runner = operation.NewRunner(nil)
	}
	return o
}

// On returns the options with what is missing made for sys: logger, runner, locks and users.
func (o Options) On(sys users.System, paths *pathpolicy.Policy) Options {
	o = o.Logged()
	if o.Users == nil {
		o.Users = users.New(sys, paths, o.Logger)
	}
	if o.Locks == nil {
		o.Locks = locks.New(sys, paths, o.Users, o.Logger)
	}
	return o
}
