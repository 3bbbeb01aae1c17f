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
	"github.com/csi-proxy/csi-proxy/simnode"
)

// A CSI driver's NodeStageVolume, tested on Linux against a Windows node: one call finds the disk by
// its serial number, partitions, formats and mounts it. The test plays the cloud, which attaches and
// grows the disk, and the pod, which writes a file; it makes a call to Windows fail; and it reboots
// the node in between.
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

	// Windows is busy when the volume is mounted; kubelet calls again.
	node.Fail("GetDiskFreeSpaceExW", 170, 1)
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

	grown, err := node.Client().Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{Path: path, DiskSizeBytes: 20 << 30})
	fmt.Println("grown:", grown.Grown, "GiB:", grown.SizeBytes>>30, err)
	data, err := node.ReadFile(path + `\data.txt`)
	fmt.Println(string(data), err)

	// Output:
	// first try: unavailable: true Windows error: 170
	// second try: <nil>
	// after the reboot: <nil>
	// grown: true GiB: 19 <nil>
	// precious <nil>
}

// stage is the driver under test.
func stage(ctx context.Context, c *client.Client, serial, path string) error {
	_, err := c.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: serial}, StagingPath: path,
	})
	return err
}
