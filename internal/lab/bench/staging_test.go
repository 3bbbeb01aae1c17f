// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
)

const stagingTitle = "StageVolume beside the calls that EBS's driver makes for the same"

// measureStaging compares StageVolume with the calls of a driver. Both end with a mounted volume, and look whether it
// must grow. Most of the time is Windows' own: the format, and the arrival of the volume.
func measureStaging(t *testing.T) table {
	result := table{title: stagingTitle, columns: []string{"the driver's calls", "which cost", "StageVolume costs", "of their time"}}
	for _, disk := range []struct {
		name    string
		hasData bool
	}{{"a raw disk", false}, {"an offline disk with data", true}} {
		measure := func(f func(ctx context.Context, n nodeops.Operations) error) (made cost, operations int64) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestNode(t)
				n.attach(own, "")
				if disk.hasData {
					must(t, growingStage(t.Context(), n.Operations))
					_, err := n.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: ownStaging})
					must(t, err)
				}
				before := n.ended.Load()
				made = n.measure(func() error { return f(t.Context(), n.Operations) })
				operations = n.ended.Load() - before
			})
			return made, operations
		}
		theirs, calls := measure(ebsStage)
		ours, _ := measure(growingStage)
		result.rows = append(result.rows, &row{name: disk.name, cells: []string{strconv.FormatInt(calls, 10), theirs.String(),
			ours.String(), fmt.Sprintf("%.3f", float64(ours.took)/float64(theirs.took))}})
	}
	return result
}

func growingStage(ctx context.Context, n nodeops.Operations) error {
	_, err := n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: bySerial(own), StagingPath: ownStaging, Grow: true})
	return err
}

// ebsStage makes the calls of NodeStageVolume of EBS's driver for a disk that isn't mounted: those up to the mount, and
// those with which it looks whether the volume must grow.
func ebsStage(ctx context.Context, n nodeops.Operations) error {
	ids, err := n.Disk.ListDiskIDs(ctx)
	if err != nil {
		return err
	}
	number := csiproxy.DiskNumber(0)
	for candidate, id := range ids {
		if id.SerialNumber == own {
			number = candidate
		}
	}
	path := ownStaging
	if _, err := n.Filesystem.PathExists(ctx, path); err != nil {
		return err
	}
	if mounted, err := n.Volume.GetVolumeIDFromTargetPath(ctx, path); !errors.Is(err, csiproxy.ErrNotFound) {
		return fmt.Errorf("%s is mounted already: %w", mounted, err)
	}
	if err := n.Disk.PartitionDisk(ctx, number); err != nil {
		return err
	}
	if err := n.Disk.SetDiskState(ctx, number, true); err != nil {
		return err
	}
	volumes, err := n.Volume.ListVolumesOnDisk(ctx, number, 0)
	if err != nil {
		return err
	}
	formatted, err := n.Volume.IsVolumeFormatted(ctx, volumes[0])
	if err != nil {
		return err
	}
	if !formatted {
		if err := n.Volume.FormatVolume(ctx, volumes[0]); err != nil {
			return err
		}
	}
	if err := n.Volume.MountVolume(ctx, volumes[0], path); err != nil {
		return err
	}
	if err := n.Disk.Rescan(ctx); err != nil {
		return err
	}
	if _, err := n.Disk.GetDiskStats(ctx, number); err != nil {
		return err
	}
	_, err = n.Volume.GetVolumeStats(ctx, volumes[0])
	return err
}
