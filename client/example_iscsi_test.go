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

const target csiproxy.IQN = "iqn.2026-01.example:vol-1"

var portal = csiproxy.ISCSIPortal{Address: "10.0.0.1"}

// startNodeWithTarget starts a simulated node for an example, and a target with one
// disk that the node may use with CHAP in both directions.
func startNodeWithTarget() (*simnode.Node, *client.ISCSI) {
	node := startNode()
	node.AddISCSITarget(simnode.ISCSITarget{
		IQN: target, Portals: []csiproxy.ISCSIPortal{portal},
		CHAPUser: "node", CHAPSecret: csiproxy.NewSecret("correct horse"), MutualSecret: csiproxy.NewSecret("battery staple"),
		LUNs: []simnode.Disk{{SizeBytes: 1 << 30, Serial: "vol-1"}},
	})
	return node, node.Client().ISCSI
}

var chap = csiproxy.ISCSIAuthentication{Type: csiproxy.ISCSIOneWayCHAP, Username: "node", Secret: csiproxy.NewSecret("correct horse")}

// attach logs the node in to the target and returns its disk's number in words.
func attach(ctx context.Context, initiator *client.ISCSI, a csiproxy.ISCSIAuthentication) (string, error) {
	if err := initiator.AddTargetPortal(ctx, portal); err != nil {
		return "", err
	}
	if _, err := initiator.DiscoverTargetPortal(ctx, portal); err != nil {
		return "", err
	}
	if err := initiator.ConnectTarget(ctx, portal, target, a); err != nil {
		return "", err
	}
	disks, err := initiator.GetTargetDisks(ctx, portal, target)
	if err != nil {
		return "", err
	}
	return fmt.Sprint("disks ", disks), nil
}

// From a portal's address to a disk's number, and back.
func ExampleISCSI() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	found, err := attach(ctx, initiator, chap)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found)
	if err := initiator.DisconnectTarget(ctx, portal, target); err != nil {
		log.Fatal(err)
	}
	fmt.Println("forget the portal:", initiator.RemoveTargetPortal(ctx, portal))
	// Output:
	// disks [1]
	// forget the portal: <nil>
}

// A portal is added once. All of the node's drivers have the same ones.
func ExampleISCSI_AddTargetPortal() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	for range 2 {
		fmt.Println("add:", initiator.AddTargetPortal(ctx, portal))
	}
	portals, err := initiator.ListTargetPortals(ctx)
	fmt.Println(portals, err)
	// Output:
	// add: <nil>
	// add: <nil>
	// [10.0.0.1:3260] <nil>
}

// A portal that isn't known yet is added, as the error says.
func ExampleISCSI_DiscoverTargetPortal() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	targets, err := initiator.DiscoverTargetPortal(ctx, portal)
	if errors.Is(err, csiproxy.ErrNotFound) {
		if err := initiator.AddTargetPortal(ctx, portal); err != nil {
			log.Fatal(err)
		}
		targets, err = initiator.DiscoverTargetPortal(ctx, portal)
	}
	fmt.Println(targets, err)
	// Output: [iqn.2026-01.example:vol-1] <nil>
}

func ExampleISCSI_ListTargetPortals() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	if err := initiator.AddTargetPortal(ctx, portal); err != nil {
		log.Fatal(err)
	}
	portals, err := initiator.ListTargetPortals(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range portals {
		fmt.Println(p.Address, p.Port)
	}
	// Output: 10.0.0.1 3260
}

func ExampleISCSI_RemoveTargetPortal() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	if err := initiator.AddTargetPortal(ctx, portal); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		err := initiator.RemoveTargetPortal(ctx, portal)
		fmt.Println("removed already:", errors.Is(err, csiproxy.ErrNotFound))
	}
	// Output:
	// removed already: false
	// removed already: true
}

// A target tells a driver whether it is the credentials that are wrong.
func ExampleISCSI_ConnectTarget() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	for _, s := range []string{"wrong secret", "correct horse"} {
		found, err := attach(ctx, initiator, csiproxy.ISCSIAuthentication{
			Type: csiproxy.ISCSIOneWayCHAP, Username: "node", Secret: csiproxy.NewSecret(s),
		})
		if errors.Is(err, csiproxy.ErrUnauthenticated) {
			fmt.Println("the target refuses the credentials")
		} else {
			fmt.Println(found, err)
		}
	}
	// Output:
	// the target refuses the credentials
	// disks [1] <nil>
}

// The disks of a target go with the connection.
func ExampleISCSI_DisconnectTarget() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	if _, err := attach(ctx, initiator, chap); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		fmt.Println("disconnect:", initiator.DisconnectTarget(ctx, portal, target))
	}
	disks, err := initiator.GetTargetDisks(ctx, portal, target)
	fmt.Println(len(disks), "disks", err)
	// Output:
	// disconnect: <nil>
	// disconnect: <nil>
	// 0 disks <nil>
}

// The number is all that the disk group needs.
func ExampleISCSI_GetTargetDisks() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	if _, err := attach(ctx, initiator, chap); err != nil {
		log.Fatal(err)
	}
	found, err := initiator.GetTargetDisks(ctx, portal, target)
	if err != nil {
		log.Fatal(err)
	}
	ids, err := node.Client().Disk.ListDiskIDs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, number := range found {
		fmt.Println(number, ids[number].SerialNumber)
	}
	// Output: 1 vol-1
}

// With mutual CHAP, the target must prove itself too: the node's secret comes
// first. It needs a daemon that has v1alpha2.
func ExampleISCSI_SetMutualCHAPSecret() {
	node, initiator := startNodeWithTarget()
	defer node.Close()

	ctx := context.Background()
	err := initiator.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("battery staple"))
	if old := new(client.VersionError); errors.As(err, &old) {
		log.Fatalf("the daemon is too old: it serves %s", old.Version)
	}
	fmt.Println(attach(ctx, initiator, csiproxy.ISCSIAuthentication{
		Type: csiproxy.ISCSIMutualCHAP, Username: "node", Secret: csiproxy.NewSecret("correct horse"),
	}))
	// Output: disks [1] <nil>
}
