// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EBS is the AWS EBS driver. It calls without a deadline.
type EBS struct {
	Calls
	isDisk func(DiskIDs) bool
}

// NewEBS returns the driver of the disk that isDisk recognises. AWS's looks for a serial number
// that contains the id of the volume.
func NewEBS(n Node, isDisk func(DiskIDs) bool) EBS { return EBS{Calls{n}, isDisk} }

func (d EBS) Stage(staging string) error {
	ctx := context.Background()
	disk, err := d.diskWith(ctx, d.isDisk)
	if err != nil {
		return err
	}
	if err := d.ensureDir(ctx, staging); err != nil {
		return err
	}
	mounted, err := d.mountedDisk(ctx, staging)
	if err != nil {
		return err
	}
	if mounted == strconv.FormatUint(uint64(disk), 10) {
		return nil
	}
	if err := d.prepare(ctx, disk, true, staging); err != nil {
		return err
	}
	return d.growIfNeeded(ctx, disk, staging)
}

// mountedDisk returns the number of the disk that is mounted at a path, "" if none
// is: which it takes from the text of an error.
func (d EBS) mountedDisk(ctx context.Context, path string) (string, error) {
	volume, err := d.VolumeAt(ctx, path)
	if err != nil {
		if strings.Contains(err.Error(), "because it does not exist") {
			return "", nil
		}
		return "", err
	}
	disk, err := d.DiskOf(ctx, volume)
	return strconv.FormatUint(uint64(disk), 10), err
}

func (d EBS) growIfNeeded(ctx context.Context, disk uint32, staging string) error {
	if err := d.Rescan(ctx); err != nil {
		return err
	}
	diskSize, err := d.DiskSize(ctx, disk)
	if err != nil {
		return err
	}
	volume, err := d.VolumeAt(ctx, staging)
	if err != nil {
		return err
	}
	volumeSize, err := d.VolumeSize(ctx, volume)
	if err != nil || volumeSize >= diskSize { // never: the partition table takes some
		return err
	}
	if err := d.Rescan(ctx); err != nil {
		return err
	}
	if volume, err = d.VolumeAt(ctx, staging); err != nil {
		return err
	}
	return d.ResizeVolume(ctx, volume, 0)
}

func (d EBS) Publish(staging, target string) error {
	ctx := context.Background()
	if err := d.clear(ctx, target); err != nil {
		return err
	}
	if d.isMounted(ctx, target) {
		return nil
	}
	return d.CreateSymlink(ctx, staging, target)
}

func (d EBS) Unstage(staging string) error {
	ctx := context.Background()
	mounted, err := d.mountedDisk(ctx, staging)
	if err != nil || mounted == "" {
		return err
	}
	volume, err := d.VolumeAt(ctx, staging)
	if err != nil {
		return err
	}
	disk, err := d.DiskOf(ctx, volume)
	if err != nil {
		return err
	}
	if err := d.UnmountVolume(ctx, volume, staging); err != nil {
		return err
	}
	if err := d.Rmdir(ctx, staging, true); err != nil {
		return err
	}
	return d.SetDiskState(ctx, disk, false)
}

// AzureDisk is the Azure Disk driver. It never sets a disk online, and unmounts by removing the
// mount point.
type AzureDisk struct {
	Calls
	isDisk  func(disk uint32, lun string) bool
	resizes bool
}

// NewAzureDisk returns the driver of the disk that isDisk recognises. Azure's looks for the LUN.
// From 1.30.7 on it resizes a volume that it has staged.
func NewAzureDisk(n Node, isDisk func(disk uint32, lun string) bool, resizes bool) AzureDisk {
	return AzureDisk{Calls{n}, isDisk, resizes}
}

func (d AzureDisk) Stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	disk, err := d.findDisk(ctx)
	if err != nil {
		return err
	}
	exists, err := d.PathExists(ctx, staging)
	if err != nil {
		return err
	}
	if exists {
		if mounted, err := d.IsSymlink(ctx, staging); err != nil || mounted {
			return err
		}
	}
	if err := d.prepare(ctx, disk, false, staging); err != nil {
		return err
	}
	if !d.resizes {
		return nil
	}
	// With the number of the disk where the volume id belongs.
	return d.ResizeVolume(ctx, strconv.FormatUint(uint64(disk), 10), 0)
}

func (d AzureDisk) findDisk(ctx context.Context) (uint32, error) {
	if err := d.Rescan(ctx); err != nil {
		return 0, err
	}
	locations, err := get[map[uint32]struct{ LUNID string }](ctx, d.Calls, "ListDiskLocations", nil, "disk_locations")
	if err != nil {
		return 0, err
	}
	for disk, location := range locations {
		if disk > 0 && d.isDisk(disk, location.LUNID) {
			return disk, nil
		}
	}
	return 0, fmt.Errorf("none of the disks at %v is the volume's", locations)
}

func (d AzureDisk) Publish(staging, target string) error {
	return EBS{Calls: d.Calls}.Publish(staging, target) // the two are alike
}

func (d AzureDisk) Unstage(staging string) error {
	ctx := context.Background()
	volume, err := d.VolumeAt(ctx, staging)
	if err == nil { // else it goes on: there is nothing to flush
		if err := d.do(ctx, "WriteVolumeCache", Fields{"volume_id": volume}); err != nil {
			return err
		}
	}
	return d.Rmdir(ctx, staging, true)
}

// GCEPD is the GCE PD driver. It hands over kubelet's paths as they are, without a drive, and
// calls without a deadline.
type GCEPD struct {
	Calls
	isDisk func(DiskIDs) bool
}

// NewGCEPD returns the driver of the disk that isDisk recognises. Google's looks for the device
// name at the end of the page 83 identifier.
func NewGCEPD(n Node, isDisk func(DiskIDs) bool) GCEPD { return GCEPD{Calls{n}, isDisk} }

func (d GCEPD) Stage(staging string) error {
	ctx := context.Background()
	disk, err := d.diskWith(ctx, d.isDisk)
	if err != nil {
		return err
	}
	if d.isMounted(ctx, staging) {
		return nil
	}
	if _, err := d.DiskSize(ctx, disk); err != nil {
		return err
	}
	if err := d.prepare(ctx, disk, true, staging); err != nil {
		return err
	}
	volume, err := d.VolumeAt(ctx, staging)
	if err != nil {
		return err
	}
	return d.ResizeVolume(ctx, volume, 0)
}

func (d GCEPD) Publish(staging, target string) error {
	ctx := context.Background()
	if d.isMounted(ctx, target) {
		return nil
	}
	if err := d.clear(ctx, target); err != nil {
		return err
	}
	return d.CreateSymlink(ctx, staging, target)
}

func (d GCEPD) Unstage(staging string) error {
	ctx := context.Background()
	exists, err := d.PathExists(ctx, staging)
	if err != nil || !exists {
		return err
	}
	volume, err := d.VolumeAt(ctx, staging)
	if err != nil {
		return err
	}
	if err := d.UnmountVolume(ctx, volume, staging); err != nil {
		return err
	}
	if err := d.Rmdir(ctx, staging, true); err != nil {
		return err
	}
	disk, err := d.DiskOf(ctx, volume)
	if err != nil {
		return err
	}
	return d.SetDiskState(ctx, disk, false)
}
