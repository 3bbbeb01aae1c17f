// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/simnode"
	"github.com/csi-proxy/csi-proxy/volume"
)

// A CSI driver's NodeStageVolume, as short as it can be, tested on Linux against a
// Windows node: the driver finds its disk by serial number, partitions, formats
// and mounts it. The test plays the cloud, which attaches and grows the disk, and
// the pod, which writes a file; it makes a call to Windows fail; and it reboots the
// node in between.
//
// In a test function, simnode.New(t) takes the place of Start and Close.
func Example() {
	ctx := context.Background()
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()

	// The cloud attaches a disk, offline as clouds do.
	number := node.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-0123", Offline: true})
	const path = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\pv\pvc-1\globalmount`

	// Windows is busy at first; kubelet calls again.
	node.Fail("SetVolumeMountPointW", 170, 1)
	err = stage(ctx, node.Client(), "vol-0123", path)
	number170, _ := csiproxy.WindowsErrorOf(err)
	fmt.Println("first try: unavailable:", errors.Is(err, csiproxy.ErrUnavailable), "Windows error:", number170)
	fmt.Println("second try:", stage(ctx, node.Client(), "vol-0123", path))

	// A pod writes a file, the disk grows, the node reboots.
	if err := node.WriteFile(path+`\data.txt`, []byte("precious")); err != nil {
		log.Fatal(err)
	}
	node.GrowDisk(number, 20<<30)
	node.Reboot()
	fmt.Println("after the reboot:", stage(ctx, node.Client(), "vol-0123", path))

	volumes := node.Client().Volume
	id, _ := volumes.GetVolumeIDFromTargetPath(ctx, path)
	fmt.Println("grow:", volumes.ResizeVolume(ctx, id, 0))
	stats, _ := volumes.GetVolumeStats(ctx, id)
	fmt.Println("GiB:", stats.SizeBytes>>30)
	data, err := node.ReadFile(path + `\data.txt`)
	fmt.Println(string(data), err)

	// Output:
	// first try: unavailable: true Windows error: 170
	// second try: <nil>
	// after the reboot: <nil>
	// grow: <nil>
	// GiB: 19
	// precious <nil>
}

// stage is the driver under test.
func stage(ctx context.Context, c *client.Client, serial, path string) error {
	disks, volumes := c.Disk, c.Volume
	if err := disks.Rescan(ctx); err != nil {
		return err
	}
	number, err := findDisk(ctx, disks, serial)
	if err != nil {
		return err
	}
	if err := disks.PartitionDisk(ctx, number); err != nil {
		return err
	}
	if err := disks.SetDiskState(ctx, number, true); err != nil {
		return err
	}
	ids, err := volumes.ListVolumesOnDisk(ctx, number, 0)
	if err != nil {
		return err
	}
	if err := formatIfNeeded(ctx, volumes, ids[0]); err != nil {
		return err
	}
	return volumes.MountVolume(ctx, ids[0], path)
}

func findDisk(ctx context.Context, disks *client.Disk, serial string) (disk.Number, error) {
	all, err := disks.ListDiskIDs(ctx)
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

func formatIfNeeded(ctx context.Context, volumes *client.Volume, id volume.ID) error {
	formatted, err := volumes.IsVolumeFormatted(ctx, id)
	if err != nil || formatted {
		return err
	}
	return volumes.FormatVolume(ctx, id)
}
