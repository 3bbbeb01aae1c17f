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

	// Windows is busy when StageVolume asks for the size of the volume; kubelet calls again. A change, such as
	// the format, would be retried by StageVolume itself, and not fail.
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

	grown, err := node.Client().Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: path, DiskSizeBytes: 20 << 30})
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

const stagingPath = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\pv\pvc-1\globalmount`

// startStaged starts a node for an example, with a disk whose volume is staged at stagingPath.
func startStaged() (*simnode.Node, csiproxy.DiskNumber) {
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	number := node.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-1"})
	if err := stage(context.Background(), node.Client(), "vol-1", stagingPath); err != nil {
		log.Fatal(err)
	}
	return node, number
}

// A driver that is tested while CSI Proxy is upgraded: its calls fail, and volumes stay mounted.
func ExampleNode_StopDaemon() {
	node, _ := startStaged()
	defer node.Close()

	node.StopDaemon()
	_, err := node.Client().Storage.GetVolume(context.Background(), stagingPath)
	fmt.Println("try again later:", errors.Is(err, csiproxy.ErrUnavailable))
	fmt.Println("pods go on:", node.WriteFile(stagingPath+`\data.txt`, []byte("precious")) == nil)
	node.StartDaemon()
	_, err = node.Client().Storage.GetVolume(context.Background(), stagingPath)
	fmt.Println(err)
	// Output:
	// try again later: true
	// pods go on: true
	// <nil>
}

// With the power, what pods wrote is lost unless it was written out, as UnstageVolume does.
func ExampleNode_PowerLoss() {
	node, _ := startStaged()
	defer node.Close()
	ctx := context.Background()
	file := stagingPath + `\data.txt`

	for _, unstage := range []bool{false, true} {
		if err := node.WriteFile(file, []byte("precious")); err != nil {
			log.Fatal(err)
		}
		if unstage {
			if _, err := node.Client().Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath}); err != nil {
				log.Fatal(err)
			}
		}
		node.PowerLoss()
		if err := stage(ctx, node.Client(), "vol-1", stagingPath); err != nil {
			log.Fatal(err)
		}
		data, err := node.ReadFile(file)
		fmt.Printf("unstaged: %v, read: %q %v\n", unstage, data, err)
	}
	// Output:
	// unstaged: false, read: "" <nil>
	// unstaged: true, read: "precious" <nil>
}

// A disk that leaves the node under a mounted volume.
func ExampleNode_DetachDisk() {
	node, number := startStaged()
	defer node.Close()

	node.DetachDisk(number)
	volume, err := node.Client().Storage.GetVolume(context.Background(), stagingPath)
	fmt.Println(volume.Abnormal(), volume.Conditions[0].Reason, err)
	// Output: true DiskMissing <nil>
}

// A driver of SMB shares: the node maps what a server offers.
func ExampleNode_AddSMBShare() {
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	password := csiproxy.NewSecret("opensesame")
	node.AddSMBShare(simnode.SMBShare{Server: "files", Name: "data"})
	node.SetSMBUser("files", "pods", password)

	err = node.Client().Storage.StageShare(context.Background(), csiproxy.StageShareRequest{
		RemotePath: `\\files\data`, StagingPath: stagingPath,
		Credentials: csiproxy.SMBCredentials{Username: "pods", Password: password},
	})
	fmt.Println(err, node.WriteFile(stagingPath+`\data.txt`, []byte("precious")))
	// Output: <nil> <nil>
}

// A driver of iSCSI volumes: StageVolume logs in to the target of the disk.
func ExampleNode_AddISCSITarget() {
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	portal := csiproxy.ISCSIPortal{Address: "192.0.2.1", Port: csiproxy.DefaultISCSIPort}
	const iqn = "iqn.2026-01.com.example:storage"
	node.AddISCSITarget(simnode.ISCSITarget{
		IQN: iqn, Portals: []csiproxy.ISCSIPortal{portal}, LUNs: []simnode.Disk{{SizeBytes: 10 << 30}},
	})

	staged, err := node.Client().Storage.StageVolume(context.Background(), csiproxy.StageVolumeRequest{
		Disk:        csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: iqn}},
		StagingPath: stagingPath,
	})
	fmt.Println(staged.FileSystem, err)
	// Output: NTFS <nil>
}

// A call to Windows that a driver's test has a reason to count: a volume is formatted once.
func ExampleNode_Calls() {
	node, _ := startStaged()
	defer node.Close()
	fmt.Println("formats:", node.Calls()["MSFT_Volume.Format"])
	if err := stage(context.Background(), node.Client(), "vol-1", stagingPath); err != nil {
		log.Fatal(err)
	}
	fmt.Println("formats:", node.Calls()["MSFT_Volume.Format"])
	// Output:
	// formats: 1
	// formats: 1
}
