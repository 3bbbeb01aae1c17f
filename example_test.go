// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const (
	stagingPath = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\vol-1\globalmount`
	targetPath  = `C:\var\lib\kubelet\pods\6a1c2d3e\volumes\kubernetes.io~csi\data\mount`
)

// The life of a volume on a node. A driver's storage is client.New().Storage, over the daemon's pipes,
// or the field Storage of node.Open, in process. Here it is that of a simulated node.
func Example() {
	ctx := context.Background()
	sim, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer sim.Close()
	sim.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-1", Offline: true})
	var storage csiproxy.StorageOperations = sim.Client().Storage

	disk := csiproxy.Selector{SerialNumber: "vol-1"}
	staged, err := storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: disk, StagingPath: stagingPath})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("staged:", staged.FileSystem, "formatted:", staged.Formatted)
	if err := storage.PublishVolume(ctx, stagingPath, targetPath); err != nil {
		log.Fatal(err)
	}

	if err := storage.UnpublishVolume(ctx, targetPath); err != nil {
		log.Fatal(err)
	}
	unstaged, err := storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: disk})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("unmounted:", unstaged.Unmounted, "disk offline:", unstaged.DiskOffline)
	// Output:
	// staged: NTFS formatted: true
	// unmounted: true disk offline: true
}

// The class of an error says what to do. Windows' number of the error is for logs.
func ExampleWindowsErrorOf() {
	ctx := context.Background()
	sim, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer sim.Close()
	sim.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-1"})
	sim.Fail("GetDiskFreeSpaceExW", 170, 1) // Windows is busy

	for {
		_, err := sim.Client().Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: stagingPath,
		})
		if !errors.Is(err, csiproxy.ErrUnavailable) {
			fmt.Println(err)
			return
		}
		number, _ := csiproxy.WindowsErrorOf(err)
		fmt.Println("try again after Windows error", number)
	}
	// Output:
	// try again after Windows error 170
	// <nil>
}

// An ambiguous selector is refused before any disk is looked for.
func ExampleSelector_Validate() {
	lun := uint32(2)
	fmt.Println(csiproxy.Selector{AzureLUN: &lun}.Validate())
	err := csiproxy.Selector{LUN: &lun}.Validate()
	fmt.Println(csiproxy.KindOf(err) == csiproxy.ErrInvalidArgument)
	// Output:
	// <nil>
	// true
}

// The serial number that EBS gives a volume has no hyphen. Windows gives that of an NVMe disk with its
// namespace.
func ExampleSelector_Matches() {
	wanted := csiproxy.Selector{SerialNumber: "vol-0abc1234"}
	for _, serial := range []string{"vol0abc1234_00000001.", "vol0abc1235_00000001."} {
		fmt.Println(wanted.Matches(csiproxy.Disk{Bus: csiproxy.BusNVMe, SerialNumber: serial}))
	}
	// Output:
	// true
	// false
}

// A secret isn't shown by any verb of package fmt.
func ExampleNewSecret() {
	fmt.Printf("%v %+v\n", csiproxy.NewSecret("opensesame"),
		csiproxy.SMBCredentials{Username: "files", Password: csiproxy.NewSecret("opensesame")})
	// Output: [secret] {Username:files Password:[secret]}
}
