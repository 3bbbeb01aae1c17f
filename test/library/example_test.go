// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// The life of a volume, as a driver's node service has it: each call of CSI is one call here.
func Example() {
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	node.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-0123", Offline: true})

	// Over the pipe, it is client.New().Storage; in a HostProcess container, that of node.Open.
	s, ctx := node.Client().Storage, context.Background()
	const (
		staging = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\vol-0123\globalmount`
		target  = `C:\var\lib\kubelet\pods\6a1c2d3e\volumes\kubernetes.io~csi\data\mount`
	)
	staged, err := s.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: "vol-0123"}, StagingPath: staging,
	})
	fmt.Println("NodeStageVolume:", staged.FileSystem, err)
	fmt.Println("NodePublishVolume:", s.PublishVolume(ctx, staging, target))
	volume, err := s.GetVolume(ctx, target)
	fmt.Println("NodeGetVolumeStats:", volume.SizeBytes>>30, "GiB", err)

	_, err = s.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
	fmt.Println("while a pod has it:", errors.Is(err, csiproxy.ErrFailedPrecondition))
	fmt.Println("NodeUnpublishVolume:", s.UnpublishVolume(ctx, target))
	done, err := s.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
	fmt.Println("NodeUnstageVolume: disk offline", done.DiskOffline, err)
	// Output:
	// NodeStageVolume: NTFS <nil>
	// NodePublishVolume: <nil>
	// NodeGetVolumeStats: 9 GiB <nil>
	// while a pod has it: true
	// NodeUnpublishVolume: <nil>
	// NodeUnstageVolume: disk offline true <nil>
}

// A selector says which disk is meant, in the words of the cloud that attached it.
func ExampleSelector_Matches() {
	d := csiproxy.Disk{SerialNumber: "vol0abc1234def567890_00000001.", Bus: csiproxy.BusNVMe} // EBS on Nitro
	fmt.Println(csiproxy.Selector{SerialNumber: "vol-0abc1234def567890"}.Matches(d))
	fmt.Println(csiproxy.Selector{SerialNumber: "vol-0fed1234def567890"}.Matches(d))
	// Output:
	// true
	// false
}
