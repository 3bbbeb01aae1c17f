// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/simnode"
	"github.com/csi-proxy/csi-proxy/storage"
)

// driver is the node part of a CSI driver for disks that go by their serial number.
type driver struct {
	proxy *client.Client
}

// stage is NodeStageVolume: it makes the disk's volume available at a path that
// all pods share. It may be repeated at any time.
func (d *driver) stage(ctx context.Context, serial, stagingPath string) error {
	_, err := d.proxy.Storage.StageVolume(ctx, storage.StageVolumeRequest{
		Disk: storage.Selector{SerialNumber: serial}, StagingPath: stagingPath,
	})
	return err
}

// publish is NodePublishVolume: it shows one pod what is staged. It may be repeated, too.
func (d *driver) publish(ctx context.Context, stagingPath, targetPath string) error {
	return d.proxy.Storage.PublishVolume(ctx, stagingPath, targetPath)
}

// expand is NodeExpandVolume, after the disk has grown. It returns the new size in
// bytes.
func (d *driver) expand(ctx context.Context, volumePath string, diskSize int64) (int64, error) {
	grown, err := d.proxy.Storage.ExpandVolume(ctx, storage.ExpandVolumeRequest{Path: volumePath, DiskSizeBytes: diskSize})
	return grown.SizeBytes, err
}

// unpublish is NodeUnpublishVolume: the pod has gone.
func (d *driver) unpublish(ctx context.Context, targetPath string) error {
	return d.proxy.Storage.UnpublishVolume(ctx, targetPath)
}

// unstage is NodeUnstageVolume, after the last pod has gone. It leaves the disk offline, so that
// the cloud may detach it.
func (d *driver) unstage(ctx context.Context, stagingPath string) error {
	_, err := d.proxy.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: stagingPath})
	return err
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
		if err := d.publish(ctx, stagingPath, targetPath); err != nil {
			log.Fatal(err)
		}
	}
	if err := node.WriteFile(targetPath+`\hello`, []byte("world")); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a pod has written to the volume")

	node.GrowDisk(number, 3<<30)
	size, err := d.expand(ctx, stagingPath, 3<<30)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the volume has grown beyond 2 GiB:", size > 2<<30)

	if err := d.unpublish(ctx, targetPath); err != nil {
		log.Fatal(err)
	}
	if err := d.unstage(ctx, stagingPath); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the disk is offline:", node.Disks()[number].Offline)

	// Output:
	// a pod has written to the volume
	// the volume has grown beyond 2 GiB: true
	// the disk is offline: true
}
