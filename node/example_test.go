// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/node/disk"
	"github.com/csi-proxy/csi-proxy/simnode"
)

const (
	staging = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\vol-1\globalmount`
	target  = `C:\var\lib\kubelet\pods\6a1c2d3e\volumes\kubernetes.io~csi\data\mount`
)

// A driver in a HostProcess container opens the node when it starts.
func ExampleOpen() {
	n, err := node.Open(node.Options{})
	if errors.Is(err, csiproxy.ErrUnimplemented) {
		return // not on Windows: a test takes a simulated node, as the other examples do
	}
	if err != nil {
		log.Fatal(err)
	}
	serial, err := n.System.GetBIOSSerialNumber(context.Background())
	fmt.Println(serial, err)
}

// NodeStageVolume and NodePublishVolume of a driver whose volumes are disks that go
// by their serial number.
func Example_disk() {
	sim, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer sim.Close()
	sim.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Serial: "vol-1", Offline: true})
	n, ctx := sim.Operations(), context.Background() // on Windows: node.Open

	find := func(serial string) (disk.Number, error) {
		disks, err := n.Disk.ListDiskIDs(ctx)
		for number, ids := range disks {
			if ids.SerialNumber == serial {
				return number, nil
			}
		}
		return 0, errors.Join(err, csiproxy.ErrNotFound)
	}
	stage := func() error {
		number, err := find("vol-1")
		if err != nil {
			return err
		}
		if err := n.Disk.SetDiskState(ctx, number, true); err != nil {
			return err
		}
		if err := n.Disk.PartitionDisk(ctx, number); err != nil {
			return err
		}
		id, err := n.Volume.DataVolumeOfDisk(ctx, number)
		if err != nil {
			return err
		}
		formatted, err := n.Volume.IsVolumeFormatted(ctx, id)
		if err != nil {
			return err
		}
		if !formatted {
			if err := n.Volume.FormatVolume(ctx, id); err != nil {
				return err
			}
		}
		return n.Volume.MountVolume(ctx, id, staging)
	}
	publish := func() error {
		if err := n.Filesystem.Rmdir(ctx, target, false); err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
			return err
		}
		if err := n.Filesystem.Mkdir(ctx, target[:len(target)-len(`\mount`)]); err != nil {
			return err
		}
		return n.Filesystem.CreateSymlink(ctx, staging, target)
	}
	for range 2 { // kubelet repeats what it isn't sure of
		if err := errors.Join(stage(), publish()); err != nil {
			log.Fatal(err)
		}
	}

	fmt.Println(sim.WriteFile(target+`\data.txt`, []byte("precious")))
	data, err := sim.ReadFile(staging + `\data.txt`)
	fmt.Printf("%s %v\n", data, err)
	// Output:
	// <nil>
	// precious <nil>
}
