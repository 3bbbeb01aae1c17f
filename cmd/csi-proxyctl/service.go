// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/internal/winservice"
)

// Defaults of a service.
const (
	defaultServiceName = "csi-proxy"
	serviceDescription = "Serves the storage operations of this node to CSI drivers"
	// serviceStopTimeout is the daemon's default grace period and the time that it
	// needs after that.
	serviceStopTimeout = 30 * time.Second
)

func (p *program) service() *cobra.Command {
	group := p.group("service", "Install the daemon as a Windows service",
		p.serviceInstall(),
		p.serviceUninstall(),
		p.serviceStatus(),
	)
	group.Long = `Install the daemon as a Windows service, remove it, or show its state. Only an administrator
may install and remove it.`
	return group
}

// nameFlag adds the flag for the service's name to a command.
func nameFlag(c *cobra.Command) *string {
	return c.Flags().String("name", defaultServiceName, "`name` of the service")
}

func (p *program) serviceInstall() *cobra.Command {
	var config winservice.Config
	var name *string
	c := p.leaf("install DAEMON", "Install the daemon as a service, or change that service", func(ctx context.Context, args []string) (reply, error) {
		daemon, err := filepath.Abs(args[0])
		if err != nil {
			return reply{}, err
		}
		if config.CommandLine, err = winservice.CommandLine(daemon, daemonArgs(args[1:])...); err != nil {
			return reply{}, err
		}
		config.Name = *name
		config.Log = slog.New(slog.NewTextHandler(p.stderr, nil))
		if err := winservice.Install(ctx, config); err != nil {
			return reply{}, err
		}
		return line(map[string]string{"name": config.Name, "command_line": config.CommandLine}, config.CommandLine), nil
	})
	c.Use = "install DAEMON [-- FLAG...]"
	c.Long = `Install csi-proxy.exe as a service. DAEMON is its path. The service runs as LocalSystem, starts
with the system, and is restarted 10 seconds after a failure. The flags after -- are passed to
the daemon, with -windows-service added. The command prints the service's command line.

If the service exists, it is changed; if it runs, the change takes effect at its next start.
The command doesn't start the service. To start it, run: sc.exe start csi-proxy`
	c.Example = `  csi-proxyctl service install C:\k\csi-proxy.exe -- -logtostderr=false -log_file=C:\k\csi-proxy.log`
	c.Args = func(cmd *cobra.Command, args []string) error {
		before := cmd.ArgsLenAtDash()
		if before < 0 {
			before = len(args)
		}
		if before != 1 {
			return fmt.Errorf("there are %d arguments before --; give one, DAEMON, and put the daemon's flags after --", before)
		}
		return nil
	}
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveDefault // files
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	name = nameFlag(c)
	flags := c.Flags()
	flags.StringVar(&config.DisplayName, "display-name", "", "display `name`; if empty, the name of the service")
	flags.StringVar(&config.Description, "description", serviceDescription, "what the service does, in a `sentence`")
	flags.DurationVar(&config.StopTimeout, "stop-timeout", serviceStopTimeout,
		"how long Windows waits for the service at a shutdown: 5 seconds more than the daemon's -grace-period")
	return c
}

// daemonArgs adds -windows-service to the daemon's arguments if it is missing.
func daemonArgs(args []string) []string {
	const asService = "-windows-service"
	if slices.Contains(args, asService) || slices.Contains(args, "-"+asService) {
		return args
	}
	return append([]string{asService}, args...)
}

func (p *program) serviceUninstall() *cobra.Command {
	var name *string
	c := p.leaf("uninstall", "Stop and remove the service", func(ctx context.Context, _ []string) (reply, error) {
		return done, winservice.Uninstall(ctx, *name)
	})
	c.Long = `Stop the service, wait until its process has ended, and remove it. It is no error if the
service doesn't exist. A service that has the name but isn't CSI Proxy is an error, and isn't
touched.`
	name = nameFlag(c)
	return c
}

// serviceJSON is the state of a service in JSON.
type serviceJSON struct {
	Name             string `json:"name"`
	State            string `json:"state"`
	Start            string `json:"start"`
	ProcessID        uint32 `json:"process_id,omitempty"`
	ExitCode         uint32 `json:"exit_code"`
	SpecificExitCode uint32 `json:"specific_exit_code"`
	CommandLine      string `json:"command_line"`
	DisplayName      string `json:"display_name"`
	Account          string `json:"account"`
}

func (p *program) serviceStatus() *cobra.Command {
	var name *string
	c := p.leaf("status", "Show the state of the service", func(context.Context, []string) (reply, error) {
		s, err := winservice.Query(*name)
		return reply{
			json: serviceJSON{
				Name:             *name,
				State:            s.State.String(),
				Start:            s.Start.String(),
				ProcessID:        s.ProcessID,
				ExitCode:         s.ExitCode,
				SpecificExitCode: s.SpecificExitCode,
				CommandLine:      s.CommandLine,
				DisplayName:      s.DisplayName,
				Account:          s.Account,
			},
			header: []string{"STATE", "START", "PROCESS", "EXIT CODE", "ACCOUNT", "COMMAND LINE"},
			rows:   [][]string{{s.State.String(), s.Start.String(), processID(s), exitCodeOf(s), s.Account, s.CommandLine}},
		}, err
	})
	c.Long = `Show the state of the service. The exit code is the Windows error number with which the
service last stopped: 1077 if it hasn't been started since the system was started, 1066 with
the service's own code in brackets if it failed.`
	name = nameFlag(c)
	return c
}

// processID returns the process id of a service as text, empty for none.
func processID(s winservice.Status) string {
	if s.ProcessID == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(s.ProcessID), 10)
}

// exitCodeOf returns the exit code of a service as text.
func exitCodeOf(s winservice.Status) string {
	if s.SpecificExitCode != 0 {
		return fmt.Sprintf("%d (%d)", s.ExitCode, s.SpecificExitCode)
	}
	return strconv.FormatUint(uint64(s.ExitCode), 10)
}
