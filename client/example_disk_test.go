// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// startNodeWithDisk starts a simulated node for an example, to which the cloud has
// attached a disk, offline as clouds do.
func startNodeWithDisk() (*simnode.Node, *client.Disk, csiproxy.DiskNumber) {
	node := startNode()
	number := node.AttachDisk(simnode.Disk{
		SizeBytes: 10 << 30, Serial: "vol-1", Offline: true,
		Page83: []simnode.Designator{simnode.T10Designator("6000c29f")},
		SCSI:   &simnode.SCSIAddress{PortNumber: 1, LUN: 4},
	})
	return node, node.Client().Disk, number
}

// A cloud that tells at which LUN it has attached a disk.
func ExampleDisk_ListDiskLocations() {
	node, disks, _ := startNodeWithDisk()
	defer node.Close()

	locations, err := disks.ListDiskLocations(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for number, location := range locations {
		if location.LUNID == "4" {
			fmt.Println("disk", number)
		}
	}
	// Output: disk 1
}

func ExampleDisk_ListDiskIDs() {
	node, disks, _ := startNodeWithDisk()
	defer node.Close()

	ids, err := disks.ListDiskIDs(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, number := range slices.Sorted(maps.Keys(ids)) {
		fmt.Println("disk", number, ids[number].SerialNumber)
	}
	// Output:
	// disk 0 SIMSYSTEM
	// disk 1 vol-1
}

func ExampleDisk_FindDiskByPage83() {
	node, disks, _ := startNodeWithDisk()
	defer node.Close()

	ctx := context.Background()
	number, err := disks.FindDiskByPage83(ctx, "6000c29f")
	fmt.Println("disk", number, err)
	_, err = disks.FindDiskByPage83(ctx, "6000c290")
	fmt.Println("attached:", !errors.Is(err, csiproxy.ErrNotFound))
	// Output:
	// disk 1 <nil>
	// attached: false
}

// Staging may be repeated: a disk that has a partition keeps it.
func ExampleDisk_PartitionDisk() {
	node, disks, number := startNodeWithDisk()
	defer node.Close()

	for range 2 {
		fmt.Println("partition:", disks.PartitionDisk(context.Background(), number))
	}
	// Output:
	// partition: <nil>
	// partition: <nil>
}

// What the cloud has changed, Windows sees after a rescan.
func ExampleDisk_Rescan() {
	node, disks, number := startNodeWithDisk()
	defer node.Close()

	ctx := context.Background()
	node.GrowDisk(number, 20<<30)
	if err := disks.Rescan(ctx); err != nil {
		log.Fatal(err)
	}
	stats, err := disks.GetDiskStats(ctx, number)
	fmt.Println(stats.SizeBytes>>30, "GiB", err)
	// Output: 20 GiB <nil>
}

func ExampleDisk_GetDiskStats() {
	node, disks, number := startNodeWithDisk()
	defer node.Close()

	stats, err := disks.GetDiskStats(context.Background(), number)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stats.SizeBytes, "bytes")
	// Output: 10737418240 bytes
}

func ExampleDisk_SetDiskState() {
	node, disks, number := startNodeWithDisk()
	defer node.Close()

	ctx := context.Background()
	if err := disks.SetDiskState(ctx, number, true); err != nil {
		log.Fatal(err)
	}
	fmt.Println(disks.GetDiskState(ctx, number))
	// Output: true <nil>
}

func ExampleDisk_GetDiskState() {
	node, disks, number := startNodeWithDisk()
	defer node.Close()

	online, err := disks.GetDiskState(context.Background(), number)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("online:", online)
	// Output: online: false
}
