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

	stage := func() error {
		_, err := n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
			Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: staging,
		})
		return err
	}
	publish := func() error { return n.Storage.PublishVolume(ctx, staging, target) }
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

// A driver for SMB shares: each staging path is a link to the share, and the secret
// comes with the request.
func Example_share() {
	sim, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer sim.Close()
	sim.AddSMBShare(simnode.SMBShare{Server: "filer", Name: "data"})
	sim.SetSMBUser("filer", `EXAMPLE\app`, csiproxy.NewSecret("correct horse"))
	n, ctx := sim.Operations(), context.Background() // on Windows: node.Open

	stage := func(source, stagingPath string, secrets map[string]string) error {
		return n.Storage.StageShare(ctx, csiproxy.StageShareRequest{
			RemotePath: source, StagingPath: stagingPath,
			Credentials: csiproxy.SMBCredentials{Username: secrets["username"], Password: csiproxy.NewSecret(secrets["password"])},
		})
	}
	secrets := map[string]string{"username": `EXAMPLE\app`, "password": "correct horse"}
	for range 2 { // kubelet repeats what it isn't sure of
		if err := stage(`//filer/data`, staging, secrets); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(sim.WriteFile(staging+`\report.txt`, []byte("for all pods")))

	// The password changes, and a driver that doesn't know it yet learns that.
	sim.SetSMBUser("filer", `EXAMPLE\app`, csiproxy.NewSecret("battery staple"))
	err = n.SMB.NewSMBGlobalMapping(ctx, `//filer/data`, "",
		csiproxy.SMBCredentials{Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("correct horse")})
	fmt.Println(errors.Is(err, csiproxy.ErrUnauthenticated))
	fmt.Println(n.SMB.NewSMBGlobalMapping(ctx, `//filer/data`, "",
		csiproxy.SMBCredentials{Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("battery staple")}))
	data, err := sim.ReadFile(staging + `\report.txt`)
	fmt.Printf("%s %v\n", data, err)
	// Output:
	// <nil>
	// true
	// <nil>
	// for all pods <nil>
}
