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
	"github.com/csi-proxy/csi-proxy/simnode"
)

// A driver of EBS looks for its volume's id in the serial number. It matches on Nitro, where
// Windows adds a namespace to the serial number, and on Xen.
func ExampleStorage_ListDisks() {
	node, _, _ := startNodeWithDisk()
	defer node.Close()

	disks, err := node.Client().Storage.ListDisks(context.Background(), csiproxy.Selector{SerialNumber: "vol-1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range disks {
		fmt.Printf("disk %d, %d GiB, online %v\n", d.Number, d.SizeBytes>>30, d.Online)
	}
	// Output: disk 1, 10 GiB, online false
}

const (
	stagingPath = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\vol-1\globalmount`
	targetPath  = `C:\var\lib\kubelet\pods\6a1c2d3e\volumes\kubernetes.io~csi\data\mount`
)

// NodeStageVolume of a driver. Kubelet may repeat it at any time.
func ExampleStorage_StageVolume() {
	node, _, _ := startNodeWithDisk()
	defer node.Close()
	for range 2 {
		staged, err := node.Client().Storage.StageVolume(context.Background(), csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: stagingPath, Grow: true,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(staged.FileSystem, staged.Formatted)
	}
	// Output:
	// NTFS true
	// NTFS false
}

// startNodeWithStaged starts a simulated node for an example, with a disk whose volume is staged.
func startNodeWithStaged() (*simnode.Node, *client.Storage, csiproxy.DiskNumber) {
	node, _, number := startNodeWithDisk()
	s := node.Client().Storage
	if _, err := s.StageVolume(context.Background(), csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: stagingPath}); err != nil {
		log.Fatal(err)
	}
	return node, s, number
}

// NodeUnstageVolume of a driver. A volume that a process still uses isn't taken from it.
func ExampleStorage_UnstageVolume() {
	node, s, _ := startNodeWithStaged()
	defer node.Close()
	ctx := context.Background()
	done, err := s.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	fmt.Println(done.Unmounted, done.DiskOffline, err)
	// Output: true true <nil>
}

// NodePublishVolume of a driver.
func ExampleStorage_PublishVolume() {
	node, _, _ := startNodeWithDisk()
	defer node.Close()
	s, ctx := node.Client().Storage, context.Background()

	err := s.PublishVolume(ctx, stagingPath, targetPath) // too early
	fmt.Println(errors.Is(err, csiproxy.ErrFailedPrecondition))
	if _, err := s.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "vol-1"},
		StagingPath: stagingPath}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.PublishVolume(ctx, stagingPath, targetPath))
	fmt.Println(node.WriteFile(targetPath+`\data.txt`, []byte("precious")))
	// Output:
	// true
	// <nil>
	// <nil>
}

// Probe of a driver that needs the storage group.
func ExampleStorage_Ready() {
	node := startNode()
	defer node.Close()
	c, ctx := node.Client(), context.Background()
	fmt.Println("ready:", c.Storage.Ready(ctx) == nil)
	node.StopDaemon()
	fmt.Println("try again later:", errors.Is(c.Storage.Ready(ctx), csiproxy.ErrUnavailable))
	// Output:
	// ready: true
	// try again later: true
}

// NodeUnpublishVolume of a driver. It is no error if nothing is published.
func ExampleStorage_UnpublishVolume() {
	node, _, _ := startNodeWithDisk()
	defer node.Close()
	fmt.Println(node.Client().Storage.UnpublishVolume(context.Background(), targetPath))
	// Output: <nil>
}

// NodeExpandVolume of a driver. The cloud has grown the disk to 20 GiB.
func ExampleStorage_ExpandVolume() {
	node, s, number := startNodeWithStaged()
	defer node.Close()
	ctx := context.Background()
	node.GrowDisk(number, 20<<30)

	done, err := s.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath, DiskSizeBytes: 20 << 30})
	fmt.Println(done.SizeBytes>>30, done.DiskSizeBytes>>30, done.Grown, err)
	// Output: 19 20 true <nil>
}

// NodeGetVolumeStats of a driver.
func ExampleStorage_GetVolume() {
	node, s, number := startNodeWithStaged()
	defer node.Close()
	ctx := context.Background()
	v, err := s.GetVolume(ctx, stagingPath)
	fmt.Println(v.FileSystem, v.SizeBytes > v.UsedBytes, v.Abnormal(), err)

	node.DetachDisk(number)
	v, err = s.GetVolume(ctx, stagingPath)
	for _, c := range v.Conditions {
		fmt.Println(c.Reason, c.Inaccessible, c.Message, err)
	}
	// Output:
	// NTFS true false <nil>
	// DiskMissing true its disk has left the node or is offline <nil>
}

// What is mounted where on the node.
func ExampleStorage_ListVolumes() {
	node, s, _ := startNodeWithStaged()
	defer node.Close()
	ctx := context.Background()
	if err := s.PublishVolume(ctx, stagingPath, targetPath); err != nil {
		log.Fatal(err)
	}
	list, err := s.ListVolumes(ctx)
	for _, m := range list.Mounts {
		fmt.Println(m.Kind, m.Path)
	}
	fmt.Println(err)
	// Output:
	// mount point C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\vol-1\globalmount
	// link C:\var\lib\kubelet\pods\6a1c2d3e\volumes\kubernetes.io~csi\data\mount
	// <nil>
}

// NodeStageVolume and NodeUnstageVolume of a driver of SMB shares. The mapping goes with the
// last staged path.
func ExampleStorage_StageShare() {
	node := startNode()
	defer node.Close()
	node.AddSMBShare(simnode.SMBShare{Server: "filer", Name: "data"})
	node.SetSMBUser("filer", "app", csiproxy.NewSecret("password"))
	s, ctx := node.Client().Storage, context.Background()

	err := s.StageShare(ctx, csiproxy.StageShareRequest{
		RemotePath: `\\filer\data`, StagingPath: stagingPath,
		Credentials: csiproxy.SMBCredentials{Username: "app", Password: csiproxy.NewSecret("password")},
	})
	fmt.Println(err)
	done, err := s.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	fmt.Println(done.Unmounted, done.Unmapped, err)
	// Output:
	// <nil>
	// true true <nil>
}

// A driver that knows which share it was to stage unstages nothing else. Where nothing is
// staged, there is nothing to do.
func ExampleStorage_UnstageShare() {
	node := startNode()
	defer node.Close()
	done, err := node.Client().Storage.UnstageShare(context.Background(), csiproxy.UnstageShareRequest{
		StagingPath: stagingPath, RemotePath: `\\filer\data`,
	})
	fmt.Println(done.Unlinked, err)
	// Output: false <nil>
}

// What is left over on the node: nothing is removed without being asked for.
func ExampleStorage_CleanUp() {
	node := startNode()
	defer node.Close()
	if err := node.Symlink(`C:\var\lib\kubelet\link`, `C:\var\lib\kubelet\gone`); err != nil {
		log.Fatal(err)
	}
	leftovers, err := node.Client().Storage.CleanUp(context.Background(), false)
	for _, l := range leftovers.Mounts {
		fmt.Println(l.Path, l.LeftoverReason, l.Removed)
	}
	fmt.Println(err)
	// Output:
	// C:\var\lib\kubelet\link it leads to nothing false
	// <nil>
}

// A scan of a volume that is in use.
func ExampleStorage_CheckVolume() {
	node, s, _ := startNodeWithStaged()
	defer node.Close()
	ctx := context.Background()
	done, err := s.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath})
	fmt.Println(done.ErrorsFound, err)
	// Output: false <nil>
}

// A driver that reacts to disks. The first value has the list; when the daemon is restarted,
// the driver watches again.
func ExampleStorage_WatchDisks() {
	node, _, number := startNodeWithDisk()
	defer node.Close()
	for changes, err := range node.Client().Storage.WatchDisks(context.Background(),
		csiproxy.Selector{SerialNumber: "vol-1"}) {
		if err != nil {
			log.Fatal(err) // csiproxy.ErrUnavailable: call WatchDisks again
		}
		for _, d := range changes.Added {
			fmt.Printf("disk %d is there: %d GiB\n", d.Number, d.SizeBytes>>30)
			node.DetachDisk(number)
		}
		for _, d := range changes.Removed {
			fmt.Printf("disk %d has left\n", d.Number)
			return
		}
	}
	// Output:
	// disk 1 is there: 10 GiB
	// disk 1 has left
}
