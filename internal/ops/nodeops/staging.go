// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/initiator"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Groups are the operations used by the tasks, and their shared state.
type Groups struct {
	Sys       win.System
	Paths     *pathpolicy.Policy
	Locks     *usage.Locker
	Users     *usage.Finder
	Disks     *Disks
	Volumes   *Volumes
	Files     *Filesystem
	Mappings  *shares.Mappings
	Initiator *initiator.Initiator
}

// stagingOptions configure Staging.
type stagingOptions struct {
	// Logger gets each change of the node, and problems that an operation tolerates.
	Logger *slog.Logger
	// Observer is called after each operation. Default: none.
	Observer operation.Observer
	// Driver is the name of the driver that owns the tasks. Default: the tasks belong to the node.
	Driver string
	// Shared is the state shared by the tasks of a node and of its drivers.
	Shared *SharedStaging
}

// SharedStaging is the state shared by the tasks of a node and of its drivers.
type SharedStaging struct {
	logOuts *initiator.TargetLocks // serialises logging out of a target

	mu         sync.Mutex                // guards the fields below
	connecting map[connection]int        // how many disks are being staged through the connection
	checking   map[volumeCheck]time.Time // the start times of running checks
}

// connection identifies a connection to a target. owner is the driver, or "" for the node; target is
// the target's name in lower case.
type connection struct{ owner, target string }

// volumeCheck is a check of a volume for a driver, or for the node. Another driver's volume may
// later get the same name.
type volumeCheck struct {
	driver string
	id     csiproxy.VolumeID
}

// newSharedStaging returns the state shared by the tasks of a node and of its drivers.
func newSharedStaging(drivers []string) *SharedStaging {
	return &SharedStaging{logOuts: initiator.NewTargetLocks(drivers),
		connecting: make(map[connection]int), checking: make(map[volumeCheck]time.Time)}
}

// Staging has the tasks of csiproxy.StorageOperations, on one node or of one driver. All methods may be called concurrently.
type Staging struct {
	Groups
	*SharedStaging
	options stagingOptions

	volumes operation.NextRun[csiproxy.VolumeID, csiproxy.Volume]
	shares  operation.NextRun[string, csiproxy.Volume] // by root
	luns    operation.NextRun[struct{}, map[csiproxy.DiskNumber]initiator.LUN]
}

// newStaging returns the tasks, using the operations in g.
func newStaging(g Groups, o stagingOptions) *Staging {
	s := &Staging{Groups: g, SharedStaging: o.Shared, options: o}
	s.luns.Timeout = silentVolumeTimeout
	return s
}

// ListDisks implements [csiproxy.StorageOperations].
func (s *Staging) ListDisks(ctx context.Context, wanted csiproxy.Selector) (_ []csiproxy.Disk, err error) {
	defer s.options.Observer.End("ListDisks", "", time.Now(), &err)
	if err := wanted.Validate(); err != nil {
		return nil, err
	}
	all, err := s.Disks.Describe(ctx, wanted)
	if err != nil {
		return nil, err
	}
	withoutTarget := wanted
	withoutTarget.ISCSI = nil
	all = slices.DeleteFunc(all, func(disk csiproxy.Disk) bool { return !withoutTarget.Matches(disk) })
	if err := s.addTargets(ctx, all, s.targetsInTime); err != nil {
		if wanted.ISCSI != nil || ctx.Err() != nil {
			return nil, err
		}
		s.options.Logger.Info("disks are listed without their iSCSI targets", "err", err)
	}
	return slices.DeleteFunc(all, func(disk csiproxy.Disk) bool { return !wanted.Matches(disk) }), nil
}

// addTargets fills in the iSCSI logical units of disks. It asks the initiator, by ask, only if some
// disk is on the iSCSI bus: asking starts the initiator's service.
func (s *Staging) addTargets(ctx context.Context, all []csiproxy.Disk,
	ask func(context.Context) (map[csiproxy.DiskNumber]initiator.LUN, error)) error {
	if !slices.ContainsFunc(all, func(disk csiproxy.Disk) bool { return disk.Bus == csiproxy.BusISCSI }) {
		return nil
	}
	luns, err := ask(ctx)
	if err != nil {
		return err
	}
	for i, disk := range all {
		if lun, ok := luns[disk.Number]; ok && disk.Bus == csiproxy.BusISCSI {
			all[i].ISCSI = &lun.ISCSILUN
		}
	}
	return nil
}
