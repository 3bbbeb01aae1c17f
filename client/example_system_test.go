// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/published"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// startNodeWithServices starts a simulated node for an example, with the services
// base and agent, which needs base.
func startNodeWithServices() (*simnode.Node, *client.System) {
	node := startNode()
	node.SetBIOSSerial("VMware-42 0b 1c 2d 3e 4f 50 61-72 83 94 a5 b6 c7 d8 e9")
	node.AddService(simnode.Service{Name: "base"})
	node.AddService(simnode.Service{Name: "agent", DisplayName: "Example Agent", DependsOn: []string{"base"}})
	machine := node.Client().System
	return node, machine
}

func ExampleSystem() {
	node, machine := startNodeWithServices()
	defer node.Close()

	ctx := context.Background()
	if err := machine.StartService(ctx, "agent"); err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"base", "agent", "other"} {
		switch s, err := machine.GetService(ctx, name); {
		case errors.Is(err, csiproxy.ErrNotFound):
			fmt.Println("no service", name)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(name, "runs:", s.Status == published.ServiceRunning)
		}
	}
	// Output:
	// base runs: true
	// agent runs: true
	// no service other
}

// vSphere's driver makes the UUID of the virtual machine out of it.
func ExampleSystem_GetBIOSSerialNumber() {
	node, machine := startNodeWithServices()
	defer node.Close()

	serial, err := machine.GetBIOSSerialNumber(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	digits, _ := strings.CutPrefix(serial, "VMware-")
	fmt.Println(strings.NewReplacer(" ", "", "-", "").Replace(digits))
	// Output: 420b1c2d3e4f5061728394a5b6c7d8e9
}

func ExampleSystem_GetService() {
	node, machine := startNodeWithServices()
	defer node.Close()

	s, err := machine.GetService(context.Background(), "agent")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.DisplayName, s.StartType == published.StartTypeManual, s.Status == published.ServiceStopped)
	// Output: Example Agent true true
}

// A service that runs already is a success, as is one that this call starts.
func ExampleSystem_StartService() {
	node, machine := startNodeWithServices()
	defer node.Close()

	ctx := context.Background()
	for range 2 {
		fmt.Println("start:", machine.StartService(ctx, "base"))
	}
	// Output:
	// start: <nil>
	// start: <nil>
}

// Services that depend on one another are stopped together, or not at all.
func ExampleSystem_StopService() {
	node, machine := startNodeWithServices()
	defer node.Close()

	ctx := context.Background()
	if err := machine.StartService(ctx, "agent"); err != nil {
		log.Fatal(err)
	}
	err := machine.StopService(ctx, "base", false)
	fmt.Println("others need it:", errors.Is(err, csiproxy.ErrFailedPrecondition))
	fmt.Println("force:", machine.StopService(ctx, "base", true))
	// Output:
	// others need it: true
	// force: <nil>
}
