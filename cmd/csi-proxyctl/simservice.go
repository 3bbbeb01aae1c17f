// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/winservice"
)

func (p *program) simService() *cobra.Command {
	return p.group("service", "Add, remove and list Windows services",
		p.simServiceAdd(),
		p.simLeaf("remove NAME", "Remove a service in any state", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
			_, err := sim.RemoveService(ctx, &simv1.RemoveServiceRequest{Name: args[0]})
			return done, err
		}),
		p.simLeaf("list", "List the services", listSimServices),
	)
}

func (p *program) simServiceAdd() *cobra.Command {
	added := &simv1.WindowsService{}
	start := startFlag(winservice.Manual)
	cmd := p.simLeaf("add NAME", "Add a service", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		startType := uint32(start)
		added.Name, added.StartType = args[0], &startType
		_, err := sim.AddService(ctx, &simv1.AddServiceRequest{Service: added})
		return done, err
	})
	flags := cmd.Flags()
	flags.StringVar(&added.DisplayName, "display-name", "", "display `name`; if empty, the name of the service")
	flags.Var(&start, "start", "when it starts: automatic, with the node; manual; or disabled, never")
	flags.StringSliceVar(&added.DependsOn, "depends-on", nil, "`service` that must run before this one starts; may be given several times")
	flags.BoolVar(&added.Running, "running", false, "the service is running")
	flags.Uint32Var(&added.StartError, "start-error", 0, "Windows error `number` with which its start fails, such as 1053 or 1066; 0 for a service that can start")
	complete(cmd, "start", cobra.FixedCompletions([]cobra.Completion{
		winservice.Automatic.String(), winservice.Manual.String(), winservice.Disabled.String(),
	}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// startFlag is a start type as a flag.
type startFlag winservice.StartType

// String, Set and Type are pflag.Value.
func (f *startFlag) String() string { return winservice.StartType(*f).String() }

func (f *startFlag) Type() string { return "when" }

func (f *startFlag) Set(s string) error {
	for _, t := range []winservice.StartType{winservice.Automatic, winservice.Manual, winservice.Disabled} {
		if s == t.String() {
			*f = startFlag(t)
			return nil
		}
	}
	return fmt.Errorf("must be %s, %s or %s", winservice.Automatic, winservice.Manual, winservice.Disabled)
}

func listSimServices(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type serviceJSON struct {
		Name        string   `json:"name"`
		DisplayName string   `json:"display_name"`
		Start       string   `json:"start"`
		DependsOn   []string `json:"depends_on"`
		Running     bool     `json:"running"`
		StartError  uint32   `json:"start_error"`
	}
	response, err := sim.ListServices(ctx, &simv1.ListServicesRequest{})
	r := reply{header: []string{"SERVICE", "START", "RUNNING", "DEPENDS ON", "START ERROR", "DISPLAY NAME"}}
	list := []serviceJSON{}
	for _, s := range response.GetServices() {
		start := winservice.StartType(s.GetStartType()).String()
		list = append(list, serviceJSON{s.Name, s.DisplayName, start, append([]string{}, s.DependsOn...), s.Running, s.StartError})
		startError := ""
		if s.StartError != 0 {
			startError = strconv.FormatUint(uint64(s.StartError), 10)
		}
		r.rows = append(r.rows, []string{s.Name, start, yesNo(s.Running), strings.Join(s.DependsOn, ", "), startError, s.DisplayName})
	}
	r.json = list
	return r, err
}

func (p *program) simBIOS() *cobra.Command {
	cmd := p.simLeaf("bios SERIAL", "Change the serial number in the machine's firmware", func(ctx context.Context, sim simv1.SimClient, args []string) (reply, error) {
		_, err := sim.SetBiosSerial(ctx, &simv1.SetBiosSerialRequest{SerialNumber: args[0]})
		return done, err
	})
	cmd.Long = `Change the serial number in the machine's firmware: up to 64 printable ASCII characters, or ''
for a firmware that has none.`
	return cmd
}
