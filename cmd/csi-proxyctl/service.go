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
	// serviceStopTimeout is the daemon's default grace period, and what it needs
	// after that.
	serviceStopTimeout = 30 * time.Second
)

func (p *program) service() *cobra.Command {
	group := p.group("service", "Install the daemon as a Windows service",
		p.serviceInstall(),
		p.serviceUninstall(),
		p.serviceStatus(),
	)
	group.Long = `Install the daemon as a Windows service, remove it, or tell what Windows knows of it. Only
an administrator may do the former two.`
	return group
}

// nameFlag gives a command the flag of a service's name.
func nameFlag(c *cobra.Command) *string {
	return c.Flags().String("name", defaultServiceName, "`name` of the service")
}

func (p *program) serviceInstall() *cobra.Command {
	var config winservice.Config
	var name *string
	c := p.leaf("install DAEMON", "Install the daemon, or change the service that it is", func(ctx context.Context, args []string) (reply, error) {
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
	c.Long = `Install csi-proxy.exe, whose path is DAEMON, as a service that starts with the system, as
LocalSystem, and is restarted 10 seconds after a failure. The flags after -- are for the
daemon; -windows-service is added. Prints the command line of the service.

Installing it again changes the service; a running one takes that over when it is started
again. The service isn't started: sc.exe start csi-proxy does that.`
	c.Example = `  csi-proxyctl service install C:\k\csi-proxy.exe -- -logtostderr=false -log_file=C:\k\csi-proxy.log`
	c.Args = func(cmd *cobra.Command, args []string) error {
		before := cmd.ArgsLenAtDash()
		if before < 0 {
			before = len(args)
		}
		if before != 1 {
			return fmt.Errorf("it takes one DAEMON, and the daemon's flags after --; there are %d arguments before", before)
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
	flags.StringVar(&config.DisplayName, "display-name", "", "`name` for people; the name if empty")
	flags.StringVar(&config.Description, "description", serviceDescription, "what the service does, in a `sentence`")
	flags.DurationVar(&config.StopTimeout, "stop-timeout", serviceStopTimeout,
		"how long a system that shuts down waits: the daemon's -grace-period and 5 seconds")
	return c
}

// daemonArgs returns the arguments of a daemon that is a service.
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
	c.Long = `Stop the service, wait until its process has ended, and remove it. It is no error if there
is none. A service of the name that isn't CSI Proxy's is left alone.`
	name = nameFlag(c)
	return c
}

// serviceJSON is the status of a service as programs get it.
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
	c := p.leaf("status", "Tell what Windows knows of the service", func(context.Context, []string) (reply, error) {
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
	c.Long = `Tell what Windows knows of the service. The exit code is a Windows error number, of the
last time that it has stopped: 1077 if it was never started since the system was, and
1066 with the service's own code if it has failed.`
	name = nameFlag(c)
	return c
}

// processID is the process of a service for people, empty for none.
func processID(s winservice.Status) string {
	if s.ProcessID == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(s.ProcessID), 10)
}

// exitCodeOf is the exit code of a service for people.
func exitCodeOf(s winservice.Status) string {
	if s.SpecificExitCode != 0 {
		return fmt.Sprintf("%d (%d)", s.ExitCode, s.SpecificExitCode)
	}
	return strconv.FormatUint(uint64(s.ExitCode), 10)
}
