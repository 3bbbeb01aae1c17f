// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staging has the operations of the storage group: whole tasks of a CSI node, made
// of the operations of the other groups.
package staging

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/disks"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/files"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/mappings"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/shared"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/use"
	"github.com/csi-proxy/csi-proxy/internal/nodeops/volumes"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/smblogon"
	"github.com/csi-proxy/csi-proxy/internal/systemdisk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

// System is what the tasks use of Windows themselves.
type System interface {
	win.Notices
	use.System
}

// Groups are the operations that the tasks are made of, and what these share.
type Groups struct {
	Sys         System
	Paths       *pathpolicy.Policy
	Owner       *use.Owner
	Disks       *disks.Disks
	Volumes     *volumes.Volumes
	Files       *files.Filesystem
	Mappings    *mappings.Mappings
	LogOns      *smblogon.Memory
	Initiator   *initiator.Initiator
	SystemDisks *systemdisk.Disks
}

// Options change how the operations behave.
type Options = shared.Options

// Staging is the tasks on one node. All methods may be called concurrently.
type Staging struct {
	Groups
	options Options
	// targets serialises logging out of a target, by its name in lower case.
	targets operation.Locks[string]

	volumes operation.Flights[volume.ID, storage.Volume]
	shares  operation.Flights[string, storage.Volume] // by root

	watching watching

	mu         sync.Mutex              // guards the fields below
	connecting map[string]int          // how many disks of a target are being staged
	checking   map[volume.ID]time.Time // since when volumes are being checked
	refused    map[string]time.Time    // when a path was last refused to be unstaged, by its lower case
}

// New returns the tasks that are made of the operations of one node.
func New(g Groups, o Options) *Staging {
	return &Staging{Groups: g, options: o.Logged(), connecting: make(map[string]int),
		checking: make(map[volume.ID]time.Time), refused: make(map[string]time.Time)}
}

// ListDisks implements [storage.Operations].
func (s *Staging) ListDisks(ctx context.Context, wanted storage.Selector) ([]storage.Disk, error) {
	return operation.Get(ctx, s.options.Runner, "ListDisks", "", func(ctx context.Context) ([]storage.Disk, error) {
		if err := wanted.Validate(); err != nil {
			return nil, err
		}
		all, err := s.Disks.Describe(ctx, wanted)
		if err != nil {
			return nil, err
		}
		hardware := wanted
		hardware.ISCSI = nil
		all = slices.DeleteFunc(all, func(d storage.Disk) bool { return !hardware.Matches(d) })
		if err := s.addTargets(ctx, all, s.Initiator.LUNs); err != nil {
			if wanted.ISCSI != nil || ctx.Err() != nil {
				return nil, err
			}
			s.options.Logger.Info("disks are listed without their iSCSI targets", "err", err)
		}
		return slices.DeleteFunc(all, func(d storage.Disk) bool { return !wanted.Matches(d) }), nil
	})
}

// addTargets fills in which disks are logical units of iSCSI targets. The initiator is
// asked, by ask, only if there are disks on that bus: asking it starts its service.
func (s *Staging) addTargets(ctx context.Context, all []storage.Disk,
	ask func(context.Context) (map[disk.Number]storage.ISCSILUN, error)) error {
	if !slices.ContainsFunc(all, func(d storage.Disk) bool { return d.Bus == storage.BusISCSI }) {
		return nil
	}
	luns, err := ask(ctx)
	if err != nil {
		return err
	}
	for i, d := range all {
		if lun, ok := luns[d.Number]; ok && d.Bus == storage.BusISCSI {
			all[i].ISCSI = &lun
		}
	}
	return nil
}
