// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// subject is a node with the disk and the volume that an operation is about.
type volumeSubject struct {
	*node
	number csiproxy.DiskNumber
	id     csiproxy.VolumeID
}

func raw(n *node) volumeSubject {
	number, id := n.attach(winsim.DiskSpec{Serial: " vol 1"})
	return volumeSubject{n, number, id}
}

func formattedVolume(n *node) volumeSubject {
	number, id := n.formatted(winsim.DiskSpec{Serial: " vol 1"})
	return volumeSubject{n, number, id}
}

const link = kubelet + `\link` // to a volume

func mounted(n *node) volumeSubject {
	s := formattedVolume(n)
	n.do(n.volumes.MountVolume(n.t.Context(), s.id, volumeStaging))
	n.do(n.sim.Symlink(link, volumeStaging, true))
	return s
}

// grown is a node with a volume whose disk has grown since.
func grown(n *node) volumeSubject {
	s := formattedVolume(n)
	n.do(n.sim.GrowDisk(s.number, 20*gibibyte))
	return s
}

func (n *node) path(text string) pathpolicy.Path {
	n.t.Helper()
	path, err := n.volumes.Parse(text)
	n.do(err)
	return path
}

func (s volumeSubject) unmountUnused(ctx context.Context, force bool) error {
	lockedVolume, err := s.locks.LockVolumeOnly(ctx, s.id)
	if err != nil {
		return err
	}
	defer lockedVolume.Release()
	if force {
		return s.volumes.UnmountByForce(ctx, lockedVolume, s.path(volumeStaging))
	}
	locked, err := s.volumes.UnmountUnused(ctx, lockedVolume, s.path(volumeStaging))
	if err != nil {
		return err
	}
	return locked.Close()
}

// An error at any call to Windows of any operation reaches the caller, apart from few that
// don't matter, and nothing is left half-done that the operation doesn't complete when it is repeated.
func TestErrorAtEachCallOfVolumes(t *testing.T) {
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, c := range map[string]struct {
		subject func(*node) volumeSubject
		operate func(context.Context, volumeSubject) (any, error)
		passed  string // the calls whose errors don't reach the caller
	}{
		// Where Windows doesn't tell the volume of a partition, all volumes are looked through.
		"ListVolumesOnDisk": {raw, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.ListVolumesOnDisk(ctx, s.number, 0)
		}, "GetVolumeNameForVolumeMountPointW"},
		"ListVolumesOnDisk of a partition": {raw, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.ListVolumesOnDisk(ctx, s.number, 2)
		}, "GetVolumeNameForVolumeMountPointW"},
		"DataVolumeOfDisk": {raw, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.DataVolumeOfDisk(ctx, s.number)
		}, "GetVolumeNameForVolumeMountPointW"},
		"GetDiskNumberFromVolumeID": {raw, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.GetDiskNumberFromVolumeID(ctx, s.id)
		}, ""},
		"IsVolumeFormatted": {formattedVolume, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.IsVolumeFormatted(ctx, s.id)
		}, ""},
		"FormatVolume": {raw, func(ctx context.Context, s volumeSubject) (any, error) {
			for _, v := range s.sim.Volumes() {
				if v.Name == string(s.id) && v.FileSystem != "" {
					return nil, nil // it is the repetition, and would be refused
				}
			}
			return nil, s.volumes.FormatVolume(ctx, s.id)
		}, "MSFT_Volume.Format"},
		"GetVolumeStats": {formattedVolume, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.GetVolumeStats(ctx, s.id)
		}, ""},
		"WriteVolumeCache": {formattedVolume, func(ctx context.Context, s volumeSubject) (any, error) {
			return nil, s.volumes.WriteVolumeCache(ctx, s.id)
		}, ""},
		"ResizeVolume": {grown, func(ctx context.Context, s volumeSubject) (any, error) {
			return nil, s.volumes.ResizeVolume(ctx, s.id, 0)
		}, ""},
		"MountVolume": {formattedVolume, func(ctx context.Context, s volumeSubject) (any, error) {
			return nil, s.volumes.MountVolume(ctx, s.id, volumeStaging)
		}, "GetKernelObjectSecurity, NtCreateFile, SetVolumeMountPointW"},
		"UnmountVolume": {mounted, func(ctx context.Context, s volumeSubject) (any, error) {
			return nil, s.volumes.UnmountVolume(ctx, s.id, volumeStaging)
		}, ""},
		"UnmountUnused": {mounted, func(ctx context.Context, s volumeSubject) (any, error) {
			return nil, s.unmountUnused(ctx, false)
		}, ""},
		"UnmountUnused by force": {mounted, func(ctx context.Context, s volumeSubject) (any, error) {
			return nil, s.unmountUnused(ctx, true)
		}, "CreateFileW, FlushFileBuffers"}, // it is flushed again, and unmounted also if that fails
		"MountedAtPath": {mounted, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.MountedAtPath(ctx, s.path(volumeStaging))
		}, ""},
		"GetVolumeIDFromTargetPath": {mounted, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.GetVolumeIDFromTargetPath(ctx, link)
		}, ""},
		"GetClosestVolumeIDFromTargetPath": {mounted, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.GetClosestVolumeIDFromTargetPath(ctx, link)
		}, ""},
		"Repair": {formattedVolume, func(ctx context.Context, s volumeSubject) (any, error) {
			return s.volumes.Repair(ctx, s.id, win.RepairScan)
		}, ""},
		"Describe": {formattedVolume, func(ctx context.Context, s volumeSubject) (any, error) {
			v, err := s.volumes.Describe(ctx, s.id)
			if err != nil || len(v.Conditions) > 0 {
				return nil, cmp.Or(err, fmt.Errorf("%w: %v", simtest.ErrUnknown, v.Conditions))
			}
			number := *v.Disk
			v.Disk = nil
			return []any{number, v}, nil
		}, "FSCTL_GET_NTFS_VOLUME_DATA partly"},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			s := c.subject(newVolumeNode(t))
			return simtest.Attempt{Sys: s.sim, Run: func(ctx context.Context) (any, error) { return c.operate(ctx, s) },
				State: func() any { return simtest.State(s.sim) }, Passed: &c.passed}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}
