// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winrecord

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
)

// Kubelet is the directory of the scenario. It is the same on each system, so that paths
// can be compared. Its parent must exist, and it must be empty.
const Kubelet = `C:\csi-proxy-wintest-record\kubelet`

// Disk is a new, raw disk of 1 GiB that the scenario may use as it likes.
type Disk interface {
	Number() disk.Number
	Grow(sizeBytes int64) error // its number may change
}

// Play plays the scenario: the operations of a node, in an order that is the same on each
// system. d is nil on a system without a spare disk. A step may fail: its errors are
// part of the recording, and are compared.
func Play(ctx context.Context, r *Recorder, d Disk) error {
	ops, err := nodeops.New(r, nodeops.Options{KubeletPath: Kubelet})
	if err != nil {
		return err
	}
	step := func(name string, f func() error) {
		r.Step(name)
		// The error is in the recording, as the number that Windows gave.
		_ = f()
	}
	const dir = Kubelet + `\dir`
	files := ops.Filesystem
	step("PathExists of nothing", func() error { _, err := files.PathExists(ctx, dir); return err })
	step("Mkdir", func() error { return files.Mkdir(ctx, dir+`\sub`) })
	step("Mkdir again", func() error { return files.Mkdir(ctx, dir+`\sub`) })
	step("PathExists", func() error { _, err := files.PathExists(ctx, dir); return err })
	step("Rmdir of a full directory", func() error { return files.Rmdir(ctx, dir, false) })
	step("RmdirContents", func() error { return files.RmdirContents(ctx, dir) })
	step("CreateSymlink", func() error { return files.CreateSymlink(ctx, dir, Kubelet+`\link`) })
	step("Rmdir of a link", func() error { return files.Rmdir(ctx, Kubelet+`\link`, true) })
	step("Rmdir", func() error { return files.Rmdir(ctx, dir, true) })
	step("Rmdir again", func() error { return files.Rmdir(ctx, dir, false) })
	step("GetBIOSSerialNumber", func() error { _, err := ops.System.GetBIOSSerialNumber(ctx); return err })
	step("GetService of none", func() error { _, err := ops.System.GetService(ctx, "csi-proxy-wintest-none"); return err })
	step("ListTargetPortals", func() error { _, err := ops.ISCSI.ListTargetPortals(ctx); return err })
	step("GetDiskStats of none", func() error { _, err := ops.Disk.GetDiskStats(ctx, 4_000_000); return err })
	if d != nil {
		if err := playDisk(ctx, ops, d, step); err != nil {
			return err
		}
	}
	return r.Err()
}

// playDisk plays the life of a volume.
func playDisk(ctx context.Context, ops *nodeops.Node, d Disk, step func(string, func() error)) error {
	const path = Kubelet + `\volume`
	step("Rescan", func() error { return ops.Disk.Rescan(ctx) })
	step("GetDiskStats", func() error { _, err := ops.Disk.GetDiskStats(ctx, d.Number()); return err })
	step("ListDiskIDs", func() error { _, err := ops.Disk.ListDiskIDs(ctx); return err })
	step("SetDiskState offline", func() error { return ops.Disk.SetDiskState(ctx, d.Number(), false) })
	step("SetDiskState online", func() error { return ops.Disk.SetDiskState(ctx, d.Number(), true) })
	step("PartitionDisk", func() error { return ops.Disk.PartitionDisk(ctx, d.Number()) })
	step("PartitionDisk again", func() error { return ops.Disk.PartitionDisk(ctx, d.Number()) })
	id, err := ops.Volume.DataVolumeOfDisk(ctx, d.Number())
	if err != nil {
		return fmt.Errorf("the scenario stops, since the disk has no volume: %w", err)
	}
	volumes := ops.Volume
	step("IsVolumeFormatted of a raw volume", func() error { _, err := volumes.IsVolumeFormatted(ctx, id); return err })
	step("FormatVolume", func() error { return volumes.FormatVolume(ctx, id) })
	step("MountVolume", func() error { return volumes.MountVolume(ctx, id, path) })
	step("MountVolume again", func() error { return volumes.MountVolume(ctx, id, path) })
	step("GetVolumeIDFromTargetPath", func() error { _, err := volumes.GetVolumeIDFromTargetPath(ctx, path); return err })
	step("GetVolumeStats", func() error { _, err := volumes.GetVolumeStats(ctx, id); return err })
	step("WriteVolumeCache", func() error { return volumes.WriteVolumeCache(ctx, id) })
	if err := d.Grow(2 << 30); err != nil {
		return fmt.Errorf("grow the disk: %w", err)
	}
	step("ResizeVolume", func() error { return errors.Join(ops.Disk.Rescan(ctx), volumes.ResizeVolume(ctx, id, 0)) })
	step("UnmountVolume", func() error { return volumes.UnmountVolume(ctx, id, path) })
	step("UnmountVolume again", func() error { return volumes.UnmountVolume(ctx, id, path) })
	return nil
}
