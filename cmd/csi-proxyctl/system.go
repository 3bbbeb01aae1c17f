// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

func (p *program) system() *cobra.Command {
	var force bool
	stop := p.action("stop NAME", "Stop a service, and wait until it has stopped",
		func(ctx context.Context, c *client.Client, args []string) error {
			return c.System.StopService(ctx, args[0], force)
		})
	stop.Flags().BoolVar(&force, "force", false, "stop the running services that depend on it first")

	services := p.group("service", "Manage Windows services",
		p.call("get NAME", "Show the state of a service", showService),
		p.method("start NAME", "Start a service, and wait until it runs", (*client.System).StartService, nil),
		stop,
	)
	services.Long = `Manage the Windows services of the node, through CSI Proxy, as a CSI driver does. NAME is the
one in the service manager, not the display name. CSI Proxy's own service is installed and
removed by "csi-proxyctl service", which talks to Windows itself.`

	return p.group("system", "Manage Windows services, and read the firmware's serial number",
		p.method("bios", "Show the serial number in the machine's firmware", (*client.System).GetBIOSSerialNumber,
			func(serial string) reply { return line(map[string]string{"serial_number": serial}, serial) }),
		services,
	)
}

func showService(ctx context.Context, c *client.Client, args []string) (reply, error) {
	type serviceJSON struct {
		Name        string `json:"name"`
		DisplayName string `json:"display_name"`
		State       string `json:"state"`
		Start       string `json:"start"`
	}
	s, err := c.System.GetService(ctx, args[0])
	// Both packages have the service manager's numbers.
	state, start := winservice.State(s.Status).String(), winservice.StartType(s.StartType).String()
	return reply{
		json:   serviceJSON{args[0], s.DisplayName, state, start},
		header: []string{"STATE", "START", "DISPLAY NAME"},
		rows:   [][]string{{state, start, s.DisplayName}},
	}, err
}
