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

const staging = `C:\var\lib\kubelet\plugins\example\vol-1`

// startNodeWithVolume starts a simulated node for an example, with a disk that has
// an unformatted volume.
func startNodeWithVolume() (*simnode.Node, *client.Volume, csiproxy.DiskNumber, csiproxy.VolumeID) {
	node, disks, number := startNodeWithDisk()
	ctx := context.Background()
	if err := disks.PartitionDisk(ctx, number); err != nil {
		log.Fatal(err)
	}
	volumes := node.Client().Volume
	id, err := volumes.DataVolumeOfDisk(ctx, number)
	if err != nil {
		log.Fatal(err)
	}
	return node, volumes, number, id
}

// startNodeWithMount starts a simulated node for an example, with a formatted volume
// at the staging path.
func startNodeWithMount() (*simnode.Node, *client.Volume, csiproxy.DiskNumber, csiproxy.VolumeID) {
	node, volumes, number, id := startNodeWithVolume()
	ctx := context.Background()
	if err := volumes.FormatVolume(ctx, id); err != nil {
		log.Fatal(err)
	}
	if err := volumes.MountVolume(ctx, id, staging); err != nil {
		log.Fatal(err)
	}
	return node, volumes, number, id
}

func ExampleVolume_ListVolumesOnDisk() {
	node, volumes, number, id := startNodeWithVolume()
	defer node.Close()

	const allPartitions = 0
	ids, err := volumes.ListVolumesOnDisk(context.Background(), number, allPartitions)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(ids), "volume, the data volume:", ids[0] == id)
	// Output: 1 volume, the data volume: true
}

// A driver whose disks have one volume needn't index a list that may be empty.
func ExampleVolume_DataVolumeOfDisk() {
	node, disks, number := startNodeWithDisk()
	defer node.Close()

	ctx := context.Background()
	volumes := node.Client().Volume
	if err := disks.SetDiskState(ctx, number, true); err != nil {
		log.Fatal(err)
	}
	_, err := volumes.DataVolumeOfDisk(ctx, number)
	fmt.Println("not partitioned yet:", errors.Is(err, csiproxy.ErrNotFound))
	if err := disks.PartitionDisk(ctx, number); err != nil {
		log.Fatal(err)
	}
	_, err = volumes.DataVolumeOfDisk(ctx, number)
	fmt.Println("partitioned:", err)
	// Output:
	// not partitioned yet: true
	// partitioned: <nil>
}

// Staging may be repeated.
func ExampleVolume_MountVolume() {
	node, volumes, _, id := startNodeWithMount()
	defer node.Close()

	fmt.Println("mount again:", volumes.MountVolume(context.Background(), id, staging))
	// Output: mount again: <nil>
}

// Unstaging may be repeated, too. The directory stays.
func ExampleVolume_UnmountVolume() {
	node, volumes, _, id := startNodeWithMount()
	defer node.Close()

	for range 2 {
		fmt.Println("unmount:", volumes.UnmountVolume(context.Background(), id, staging))
	}
	// Output:
	// unmount: <nil>
	// unmount: <nil>
}

// An error isn't a "no": what can't be read now may hold data.
func ExampleVolume_IsVolumeFormatted() {
	node, volumes, _, id := startNodeWithVolume()
	defer node.Close()

	ctx := context.Background()
	formatted, err := volumes.IsVolumeFormatted(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	if !formatted {
		fmt.Println("format:", volumes.FormatVolume(ctx, id))
	}
	// Output: format: <nil>
}

// A volume that has a file system is never formatted.
func ExampleVolume_FormatVolume() {
	node, volumes, _, id := startNodeWithVolume()
	defer node.Close()

	for range 2 {
		err := volumes.FormatVolume(context.Background(), id)
		fmt.Println("refused:", errors.Is(err, csiproxy.ErrFailedPrecondition))
	}
	// Output:
	// refused: false
	// refused: true
}

// After the cloud has grown the disk.
func ExampleVolume_ResizeVolume() {
	node, volumes, number, id := startNodeWithMount()
	defer node.Close()

	ctx := context.Background()
	node.GrowDisk(number, 20<<30)
	disks := node.Client().Disk
	if err := disks.Rescan(ctx); err != nil {
		log.Fatal(err)
	}
	const asLargeAsPossible = 0
	fmt.Println("resize:", volumes.ResizeVolume(ctx, id, asLargeAsPossible))
	stats, err := volumes.GetVolumeStats(ctx, id)
	fmt.Println("over 19 GiB:", stats.SizeBytes > 19<<30, err)
	// Output:
	// resize: <nil>
	// over 19 GiB: true <nil>
}

func ExampleVolume_GetVolumeStats() {
	node, volumes, _, id := startNodeWithMount()
	defer node.Close()

	stats, err := volumes.GetVolumeStats(context.Background(), id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("some is used:", 0 < stats.UsedBytes && stats.UsedBytes < stats.SizeBytes)
	// Output: some is used: true
}

func ExampleVolume_GetDiskNumberFromVolumeID() {
	node, volumes, _, id := startNodeWithVolume()
	defer node.Close()

	number, err := volumes.GetDiskNumberFromVolumeID(context.Background(), id)
	fmt.Println("disk", number, err)
	// Output: disk 1 <nil>
}

// Unstaging finds the volume by its path.
func ExampleVolume_GetVolumeIDFromTargetPath() {
	node, volumes, _, id := startNodeWithMount()
	defer node.Close()

	ctx := context.Background()
	found, err := volumes.GetVolumeIDFromTargetPath(ctx, staging)
	fmt.Println("found:", found == id, err)
	_, err = volumes.GetVolumeIDFromTargetPath(ctx, `C:\var\lib\kubelet\plugins`)
	fmt.Println("no mount point:", errors.Is(err, csiproxy.ErrNotFound))
	// Output:
	// found: true <nil>
	// no mount point: true
}

// The volume that a path lies on, whatever is mounted above it. It needs a daemon
// that has v2alpha1.
func ExampleVolume_GetClosestVolumeIDFromTargetPath() {
	node, volumes, _, id := startNodeWithMount()
	defer node.Close()

	if err := node.MkdirAll(staging + `\some\directory`); err != nil {
		log.Fatal(err)
	}
	found, err := volumes.GetClosestVolumeIDFromTargetPath(context.Background(), staging+`\some\directory`)
	fmt.Println("found:", found == id, err)
	// Output: found: true <nil>
}

// What pods have written is on the disk, so that the cloud may detach it.
func ExampleVolume_WriteVolumeCache() {
	node, volumes, _, id := startNodeWithMount()
	defer node.Close()

	if err := node.WriteFile(staging+`\hello`, []byte("world")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("flush:", volumes.WriteVolumeCache(context.Background(), id))
	// Output: flush: <nil>
}
