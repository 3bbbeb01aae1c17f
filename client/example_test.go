// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// startNode starts a simulated node for an example.
func startNode() *simnode.Node {
	node, err := simnode.Start()
	if err != nil {
		log.Fatal(err)
	}
	return node
}

func ExampleNew() {
	c := client.New()
	defer c.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ids, err := c.Disk.ListDiskIDs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for number, id := range ids {
		fmt.Println(number, id.SerialNumber)
	}
}

// While the daemon is upgraded nobody is at its endpoints. It comes back within
// seconds.
func ExampleClient_upgrade() {
	node := startNode()
	defer node.Close()
	c := node.Client()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := c.Disk.Rescan(ctx)
		if !errors.Is(err, csiproxy.ErrUnavailable) {
			fmt.Println("rescan:", err)
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	// Output: rescan: <nil>
}

// A driver isn't ready without CSI Proxy.
func ExampleClient_Ready() {
	node := startNode()
	defer node.Close()
	c := node.Client()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("ready:", c.Ready(ctx) == nil)
	node.StopDaemon()
	fmt.Println("try again later:", errors.Is(c.Ready(ctx), csiproxy.ErrUnavailable))
	// Output:
	// ready: true
	// try again later: true
}

func ExampleFilesystem() {
	node := startNode()
	defer node.Close()
	c := node.Client()

	ctx := context.Background()
	for _, path := range []string{`C:\var\lib\kubelet\plugins\example`, `C:\Windows\example`} {
		switch err := c.Filesystem.Mkdir(ctx, path); {
		case errors.Is(err, csiproxy.ErrInvalidArgument):
			fmt.Println(path, "is out of bounds")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(path, "is there")
		}
	}
	// Output:
	// C:\var\lib\kubelet\plugins\example is there
	// C:\Windows\example is out of bounds
}

func ExampleClient_Endpoints() {
	node := startNode()
	defer node.Close()
	c := node.Client()

	for _, e := range c.Endpoints(context.Background()) {
		if e.Group == "disk" && e.Served {
			fmt.Println(e.Group, e.Version)
		}
	}
	// Output:
	// disk v1
	// disk v1beta3
	// disk v1beta2
	// disk v1beta1
	// disk v1alpha1
}

// A driver's test against an older daemon than the node's.
func ExampleWithVersions() {
	node := startNode()
	defer node.Close()
	c := client.New(client.WithDialer(node.Dial), client.WithVersions("volume", "v1", "v1beta3"))
	defer c.Close()

	fmt.Println(c.Volume.Version(context.Background()))
	// Output: v1 <nil>
}

// With a daemon that is too old, a driver does without.
func ExampleVersionError() {
	node := startNode()
	defer node.Close()
	c := client.New(client.WithDialer(node.Dial), client.WithVersions("volume", "v1"))
	defer c.Close()

	ctx := context.Background()
	_, err := c.Volume.GetClosestVolumeIDFromTargetPath(ctx, `C:\var\lib\kubelet\pods`)
	if old := new(client.VersionError); errors.As(err, &old) {
		fmt.Println(old.Group, old.Version, "has no", old.Method)
	}
	// Output: volume v1 has no GetClosestVolumeIDFromTargetPath
}
