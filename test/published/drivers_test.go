// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
)

// driver is the node half of a CSI driver, as kubelet calls it. Each type below
// makes the calls of a shipped driver in that driver's order, and draws its
// conclusions from the answers, with its quirks: what isn't checked there isn't
// checked here.
type driver interface {
	stage(staging string) error
	publish(staging, target string) error
	unpublish(target string) error
	unstage(staging string) error
}

// ebs is the AWS EBS driver. It calls without a deadline.
type ebs struct {
	clients
	volumeID string // vol-0123456789abcdef0
}

func (d ebs) stage(staging string) error {
	ctx := context.Background()
	disk, err := d.findDisk(ctx)
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
	if err := d.partition(ctx, disk); err != nil {
		return err
	}
	if err := d.setOnline(ctx, disk, true); err != nil {
		return err
	}
	volume, err := d.firstVolume(ctx, disk)
	if err != nil {
		return err
	}
	if err := d.format(ctx, volume); err != nil {
		return err
	}
	if err := d.mount(ctx, volume, staging); err != nil {
		return err
	}
	return d.growIfNeeded(ctx, disk, staging)
}

func (d ebs) findDisk(ctx context.Context) (uint32, error) {
	resp, err := d.disk.ListDiskIDs(ctx, &diskv1.ListDiskIDsRequest{})
	if err != nil {
		return 0, err
	}
	for disk, ids := range resp.DiskIDs {
		if strings.Contains(ids.SerialNumber, strings.ReplaceAll(d.volumeID, "-", "")) {
			return disk, nil
		}
	}
	return 0, fmt.Errorf("no disk with the volume %s", d.volumeID)
}

// mountedDisk returns the number of the disk that is mounted at a path, "" if none
// is: which it takes from the text of an error.
func (d ebs) mountedDisk(ctx context.Context, path string) (string, error) {
	volume, err := d.volumeAt(ctx, path)
	if err != nil {
		if strings.Contains(err.Error(), "because it does not exist") {
			return "", nil
		}
		return "", err
	}
	disk, err := d.diskOf(ctx, volume)
	return strconv.FormatUint(uint64(disk), 10), err
}

func (d ebs) growIfNeeded(ctx context.Context, disk uint32, staging string) error {
	if err := d.rescan(ctx); err != nil {
		return err
	}
	diskSize, err := d.diskSize(ctx, disk)
	if err != nil {
		return err
	}
	volume, err := d.volumeAt(ctx, staging)
	if err != nil {
		return err
	}
	volumeSize, err := d.volumeSize(ctx, volume)
	if err != nil || volumeSize >= diskSize { // never: the partition table takes some
		return err
	}
	if err := d.rescan(ctx); err != nil {
		return err
	}
	if volume, err = d.volumeAt(ctx, staging); err != nil {
		return err
	}
	return d.resize(ctx, volume, 0)
}

func (d ebs) publish(staging, target string) error {
	ctx := context.Background()
	if err := d.clear(ctx, target); err != nil {
		return err
	}
	if d.isMounted(ctx, target) {
		return nil
	}
	return d.createSymlink(ctx, staging, target)
}

func (d ebs) unpublish(target string) error {
	return d.removeDir(context.Background(), target, true)
}

func (d ebs) unstage(staging string) error {
	ctx := context.Background()
	mounted, err := d.mountedDisk(ctx, staging)
	if err != nil || mounted == "" {
		return err
	}
	volume, err := d.volumeAt(ctx, staging)
	if err != nil {
		return err
	}
	disk, err := d.diskOf(ctx, volume)
	if err != nil {
		return err
	}
	if err := d.unmount(ctx, volume, staging); err != nil {
		return err
	}
	if err := d.removeDir(ctx, staging, true); err != nil {
		return err
	}
	return d.setOnline(ctx, disk, false)
}

// azureDisk is the Azure Disk driver. It never sets a disk online, and unmounts by
// removing the mount point.
type azureDisk struct {
	clients
	lun string
}

func (d azureDisk) stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	disk, err := d.findDisk(ctx)
	if err != nil {
		return err
	}
	exists, err := d.pathExists(ctx, staging)
	if err != nil {
		return err
	}
	if exists {
		if mounted, err := d.isSymlink(ctx, staging); err != nil || mounted {
			return err
		}
	}
	if err := d.partition(ctx, disk); err != nil {
		return err
	}
	volume, err := d.firstVolume(ctx, disk)
	if err != nil {
		return err
	}
	if err := d.format(ctx, volume); err != nil {
		return err
	}
	if err := d.mount(ctx, volume, staging); err != nil {
		return err
	}
	// From 1.30.7 on, with the number of the disk where the volume id belongs.
	return d.resize(ctx, strconv.FormatUint(uint64(disk), 10), 0)
}

func (d azureDisk) findDisk(ctx context.Context) (uint32, error) {
	if err := d.rescan(ctx); err != nil {
		return 0, err
	}
	resp, err := d.disk.ListDiskLocations(ctx, &diskv1.ListDiskLocationsRequest{})
	if err != nil {
		return 0, err
	}
	for disk, location := range resp.DiskLocations {
		if location.LUNID == d.lun && disk > 0 {
			return disk, nil
		}
	}
	return 0, fmt.Errorf("no disk at LUN %s", d.lun)
}

func (d azureDisk) publish(staging, target string) error {
	return ebs{clients: d.clients}.publish(staging, target) // the two are alike
}

func (d azureDisk) unpublish(target string) error {
	return d.removeDir(context.Background(), target, true)
}

func (d azureDisk) unstage(staging string) error {
	ctx := context.Background()
	volume, err := d.volumeAt(ctx, staging)
	if err == nil { // else it goes on: there is nothing to flush
		_, err = d.volume.WriteVolumeCache(ctx, &volumev1.WriteVolumeCacheRequest{VolumeId: volume})
		if err != nil {
			return err
		}
	}
	return d.removeDir(ctx, staging, true)
}

// gcePD is the GCE PD driver. It hands over kubelet's paths as they are, without a
// drive, and calls without a deadline.
type gcePD struct {
	clients
	deviceName string
}

func (d gcePD) stage(staging string) error {
	ctx := context.Background()
	disk, err := d.findDisk(ctx)
	if err != nil {
		return err
	}
	if d.isMounted(ctx, staging) {
		return nil
	}
	if _, err := d.diskSize(ctx, disk); err != nil {
		return err
	}
	if err := d.partition(ctx, disk); err != nil {
		return err
	}
	if err := d.setOnline(ctx, disk, true); err != nil {
		return err
	}
	volume, err := d.firstVolume(ctx, disk)
	if err != nil {
		return err
	}
	if err := d.format(ctx, volume); err != nil {
		return err
	}
	if err := d.mount(ctx, volume, staging); err != nil {
		return err
	}
	if volume, err = d.volumeAt(ctx, staging); err != nil {
		return err
	}
	return d.resize(ctx, volume, 0)
}

func (d gcePD) findDisk(ctx context.Context) (uint32, error) {
	resp, err := d.disk.ListDiskIDs(ctx, &diskv1.ListDiskIDsRequest{})
	if err != nil {
		return 0, err
	}
	for disk, ids := range resp.DiskIDs {
		if words := strings.Fields(ids.Page83); len(words) > 0 && words[len(words)-1] == d.deviceName {
			return disk, nil
		}
	}
	return 0, fmt.Errorf("no disk %s", d.deviceName)
}

func (d gcePD) publish(staging, target string) error {
	ctx := context.Background()
	if d.isMounted(ctx, target) {
		return nil
	}
	if err := d.clear(ctx, target); err != nil {
		return err
	}
	return d.createSymlink(ctx, staging, target)
}

func (d gcePD) unpublish(target string) error {
	return d.removeDir(context.Background(), target, true)
}

func (d gcePD) unstage(staging string) error {
	ctx := context.Background()
	exists, err := d.pathExists(ctx, staging)
	if err != nil || !exists {
		return err
	}
	volume, err := d.volumeAt(ctx, staging)
	if err != nil {
		return err
	}
	if err := d.unmount(ctx, volume, staging); err != nil {
		return err
	}
	if err := d.removeDir(ctx, staging, true); err != nil {
		return err
	}
	disk, err := d.diskOf(ctx, volume)
	if err != nil {
		return err
	}
	return d.setOnline(ctx, disk, false)
}
