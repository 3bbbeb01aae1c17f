// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// driver is the node part of a CSI driver for disks that go by their serial number.
type driver struct {
	proxy *client.Client
}

// stage is NodeStageVolume: it makes the disk's volume available at a path that
// all pods share. It may be repeated at any time.
func (d *driver) stage(ctx context.Context, serial, stagingPath string) error {
	number, err := d.find(ctx, serial)
	if err != nil {
		return err
	}
	if err := d.proxy.Disk.SetDiskState(ctx, number, true); err != nil {
		return err
	}
	if err := d.proxy.Disk.PartitionDisk(ctx, number); err != nil {
		return err
	}
	volumes := d.proxy.Volume
	id, err := volumes.DataVolumeOfDisk(ctx, number)
	if err != nil {
		return err
	}
	formatted, err := volumes.IsVolumeFormatted(ctx, id)
	if err != nil {
		return err
	}
	if !formatted {
		if err := volumes.FormatVolume(ctx, id); err != nil {
			return err
		}
	}
	return volumes.MountVolume(ctx, id, stagingPath)
}

// find returns the number of the disk with a serial number.
func (d *driver) find(ctx context.Context, serial string) (disk.Number, error) {
	if err := d.proxy.Disk.Rescan(ctx); err != nil {
		return 0, err
	}
	all, err := d.proxy.Disk.ListDiskIDs(ctx)
	if err != nil {
		return 0, err
	}
	for number, ids := range all {
		if ids.SerialNumber == serial {
			return number, nil
		}
	}
	return 0, fmt.Errorf("no disk has the serial number %s", serial)
}

// publish is NodePublishVolume: it shows one pod what is staged.
func (d *driver) publish(ctx context.Context, stagingPath, targetPath string) error {
	// Kubelet may have made the directory, and the link may be there already.
	if err := d.proxy.Filesystem.Rmdir(ctx, targetPath, true); err != nil {
		return err
	}
	return d.proxy.Filesystem.CreateSymlink(ctx, stagingPath, targetPath)
}

// expand is NodeExpandVolume, after the disk has grown. It returns the new size in
// bytes.
func (d *driver) expand(ctx context.Context, volumePath string) (int64, error) {
	if err := d.proxy.Disk.Rescan(ctx); err != nil {
		return 0, err
	}
	id, err := d.proxy.Volume.GetVolumeIDFromTargetPath(ctx, volumePath)
	if err != nil {
		return 0, err
	}
	if err := d.proxy.Volume.ResizeVolume(ctx, id, 0); err != nil {
		return 0, err
	}
	stats, err := d.proxy.Volume.GetVolumeStats(ctx, id)
	return stats.SizeBytes, err
}

// unstage is NodeUnstageVolume, after the last pod has gone.
func (d *driver) unstage(ctx context.Context, stagingPath string) error {
	id, err := d.proxy.Volume.GetVolumeIDFromTargetPath(ctx, stagingPath)
	if errors.Is(err, csiproxy.ErrNotFound) {
		return nil // unstaged already
	}
	if err != nil {
		return err
	}
	return d.proxy.Volume.UnmountVolume(ctx, id, stagingPath)
}

// The life of a volume in a driver's hands.
func Example_driver() {
	// On a real node, the client is client.New().
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	d := &driver{proxy: node.Client()}

	ctx := context.Background()
	const (
		stagingPath = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\vol-1\globalmount`
		targetPath  = `C:\var\lib\kubelet\pods\2f1c7f6e\volumes\kubernetes.io~csi\pv-1\mount`
	)
	number := node.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "vol-1"})
	for range 2 { // kubelet repeats what it isn't sure of
		if err := d.stage(ctx, "vol-1", stagingPath); err != nil {
			log.Fatal(err)
		}
		if err := node.MkdirAll(`C:\var\lib\kubelet\pods\2f1c7f6e\volumes\kubernetes.io~csi\pv-1`); err != nil {
			log.Fatal(err)
		}
		if err := d.publish(ctx, stagingPath, targetPath); err != nil {
			log.Fatal(err)
		}
	}
	if err := node.WriteFile(targetPath+`\hello`, []byte("world")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a pod has written to the volume")

	node.GrowDisk(number, 3<<30)
	size, err := d.expand(ctx, stagingPath)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the volume has grown beyond 2 GiB:", size > 2<<30)

	if err := d.unstage(ctx, stagingPath); err != nil {
		log.Fatal(err)
	}
	if _, err := node.ReadFile(targetPath + `\hello`); err != nil {
		fmt.Println("the file is with the volume, not on the node's disk")
	}

	// Output:
	// a pod has written to the volume
	// the volume has grown beyond 2 GiB: true
	// the file is with the volume, not on the node's disk
}
