// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/deployment"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
)

func (p *program) service() *cobra.Command {
	group := p.group("service", "Run the daemon as a Windows service",
		p.serviceInstall(),
		p.serviceUninstall(),
		p.serviceStart(),
		p.serviceStop(),
		p.serviceRestart(),
		p.serviceUpgrade(),
		p.serviceStatus(),
	)
	group.Long = `Install the daemon as a Windows service, upgrade it, remove it, start and stop it, or show its
state. All but the last need an administrator. Only one of these commands runs at a time.

Without --name the commands mean the service ` + strings.Join(deployment.Names, ", ") + `, whichever
exists, and for a new service the first of these.

If a command was interrupted, run it again: it first finishes what was begun.`
	return group
}

// nameFlag adds the flag for the service's name to a command.
func nameFlag(c *cobra.Command) *string {
	return c.Flags().String("name", "",
		"`name` of the service (default: the one that exists, else "+deployment.Names[0]+")")
}

// services is the service manager of this Windows; nil on other systems.
var services deployment.Services

// deployer returns what changes services. It prints its steps on standard error, unless a
// program reads that.
func (p *program) deployer() *deployment.Deployer {
	log := slog.New(slog.DiscardHandler)
	if p.format == formatText {
		log = slog.New(slog.NewTextHandler(p.stderr, nil))
	}
	return &deployment.Deployer{
		Services: services,
		Programs: deployment.RealPrograms{},
		Files:    deployment.RealFiles{},
		Healthy:  p.healthy,
		Log:      log,
	}
}

// healthTimeout bounds one question whether the daemon is well. A connection may have
// been made to a daemon that has just ended.
const healthTimeout = 3 * time.Second

// healthy returns nil if these endpoints answer, or without endpoints if any does.
func (p *program) healthy(ctx context.Context, endpoints []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if len(endpoints) == 0 {
		c := p.client(ctx)
		return errors.Join(c.Ready(ctx), c.Close())
	}
	// The names of the endpoints tell whose they are. The running daemon can't be asked: it may still be the old one.
	driver := ""
	if slices.Contains(endpoints, api.DriverEndpointName(admin.Driver, "disk", "v1")) {
		driver = admin.Driver
	}
	c := p.clientOf(driver)
	defer func() { err = errors.Join(err, c.Close()) }()
	var faults []error
	for _, e := range c.Endpoints(ctx) {
		switch {
		case !slices.Contains(endpoints, api.DriverEndpointName(driver, e.Group, e.Version)):
		case e.Err != nil:
			faults = append(faults, fmt.Errorf("%s: %w", e.Address, e.Err))
		case !e.Served:
			faults = append(faults, fmt.Errorf("%s: not served", e.Address))
		}
	}
	return errors.Join(faults...)
}

// changing is a leaf that changes services, with the lock for that.
func (p *program) changing(use, short string,
	do func(ctx context.Context, deployer *deployment.Deployer, args []string) (reply, error)) *cobra.Command {
	return p.leaf(use, short, func(ctx context.Context, args []string) (r reply, err error) {
		unlock, err := winservice.Lock()
		if err != nil {
			return reply{}, err
		}
		defer func() { err = errors.Join(err, unlock()) }()
		return do(ctx, p.deployer(), args)
	})
}

func (p *program) serviceInstall() *cobra.Command {
	var in deployment.Installation
	var name *string
	var replace, watch bool
	var from, drivers string
	c := p.changing("install DAEMON", "Install the daemon as a service, or change that service",
		func(ctx context.Context, deployer *deployment.Deployer, args []string) (reply, error) {
			daemon, err := filepath.Abs(args[0])
			if err != nil {
				return reply{}, err
			}
			in.Name, in.Program, in.Args = *name, daemon, args[1:]
			if drivers != "" {
				if in.Drivers, err = os.ReadFile(drivers); err != nil {
					return reply{}, err
				}
			}
			install := deployer.Install
			if replace || from != "" {
				install = deployer.Replace
			}
			if from != "" {
				if in.From, err = filepath.Abs(from); err != nil {
					return reply{}, err
				}
			}
			installed, err := install(ctx, in)
			return installedReply(installed), err
		})
	install := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !watch {
			return install(cmd, args)
		}
		err := whenReleased(cmd.Context(), p.deployer().Log, func() error { return install(cmd, args) })
		if err != nil || cmd.Context().Err() != nil {
			return err
		}
		// Without the lock, so that other commands can change the service meanwhile.
		deployer := p.deployer()
		found, err := deployer.Find(*name)
		if err != nil {
			return err
		}
		return watchService(cmd.Context(), found, services.Query, deployer.Log)
	}
	c.Use = "install DAEMON [-- FLAG...]"
	c.Long = `Install csi-proxy.exe as a service. DAEMON is its path. The flags after -- are passed to the
daemon, with -windows-service added. If they don't say where the log goes, it goes to
C:\var\log\csi-proxy\csi-proxy.log. The command prints the service's command line.

DAEMON is run with -check and these flags first. If the daemon wouldn't start with them, the
command fails. If others can write to the directory of DAEMON, that is an error, too, and
without --replace also if they can write to that of the log.

The service runs as LocalSystem, and starts with the system. When the daemon first runs, it has
Windows start it again 10 seconds after any failure, unless the service has recovery actions, and
wait for it at a shutdown as long as it may take to stop.

If the service exists, it is changed; if it runs, the change takes effect at its next start.
The command doesn't start the service; see csi-proxyctl service start.

With --replace the daemon takes the place of the published CSI Proxy. The service keeps its name,
its texts and its flags; flags after -- come after these. It is stopped, its process is ended,
and this daemon is started. If not all versions of the API are then served, the published daemon
comes back, and the command fails. See also: csi-proxyctl service uninstall --restore. If there
is no service yet, the daemon is installed and started. Services that depend on this one, as kubelet
on AKS, run on.

With --from the program comes from another file, such as one in a container or a package. If DAEMON
is the service's program already, it is exchanged as csi-proxyctl service upgrade does. Otherwise
--from does what --replace does. If the program and the flags are those that the service has, and it
runs, nothing changes.

With --drivers the daemon gets a copy of a file for its flag -drivers, which is kept beside DAEMON. If
the daemon doesn't work with it, the service has the file before, or none, again. Without --drivers
and with flags after --, a file that the service had is removed.

With --watch the command goes on and prints the state of the service whenever it changes. It ends
with an error if the service doesn't run for 30 seconds; repeated, it installs and starts it again.
While a program that isn't a service's has the pipes, it waits, and names it.`
	c.Example = `  csi-proxyctl service install "C:\Program Files\csi-proxy\csi-proxy.exe" -- -v=2
  csi-proxyctl service install --replace "C:\Program Files\csi-proxy\csi-proxy.exe"
  csi-proxyctl service install "C:\Program Files\csi-proxy\csi-proxy.exe" --from C:\hpc\csi-proxy.exe --watch`
	c.Args = func(cmd *cobra.Command, args []string) error {
		before := cmd.ArgsLenAtDash()
		if before < 0 {
			before = len(args)
		}
		if before != 1 {
			return fmt.Errorf("there are %d arguments before --; give one, DAEMON, and put the daemon's flags after --", before)
		}
		if drivers != "" && flagValue(args[1:], "drivers") != "" {
			return errors.New("--drivers gives the daemon's -drivers; leave out one of the two")
		}
		return nil
	}
	c.ValidArgsFunction = completeProgram
	name = nameFlag(c)
	flags := c.Flags()
	flags.BoolVar(&replace, "replace", false, "take the place of the published CSI Proxy, and start")
	flags.StringVar(&from, "from", "", "bring the program from this `file` to DAEMON, and start")
	flags.StringVar(&drivers, "drivers", "", "keep a copy of this `file`, which names the node's drivers, and pass it as -drivers")
	flags.BoolVar(&watch, "watch", false, "go on, and print what becomes of the service")
	return c
}

// completeProgram completes the first argument with file names.
func completeProgram(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

const (
	watchInterval = 5 * time.Second
	// watchTimeout is longer than the service manager takes to restart a service that has
	// failed.
	watchTimeout = 30 * time.Second
)

// whenReleased installs the service. While another program has the pipes, such as a published daemon in a
// container, it says so and tries again, until ctx ends: a container that ended instead would be
// restarted ever less often, and come late when the pipes are free.
func whenReleased(ctx context.Context, log *slog.Logger, install func() error) error {
	logged := ""
	for {
		err := install()
		if !errors.Is(err, winservice.ErrHeld) {
			return err
		}
		if err.Error() != logged {
			logged = err.Error()
			log.Warn("waiting until the pipes are free", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchTimeout):
		}
	}
}

// watchService logs the state of a service whenever it changes, until ctx ends. If the
// service doesn't run for watchTimeout, or is gone, that is an error.
func watchService(ctx context.Context, name string, query func(string) (winservice.Status, error),
	log *slog.Logger) error {
	logged := ""
	ran := time.Now()
	for {
		status, err := query(name)
		if err != nil {
			return err
		}
		state := status.State.String()
		if state != logged {
			log.Info("state of the service", "service", name, "state", state, "process", status.ProcessID)
			logged = state
		}
		if status.State == winservice.Running {
			ran = time.Now()
		}
		if time.Since(ran) >= watchTimeout {
			return &csiproxy.Error{Op: "watch service", Object: name, Kind: csiproxy.ErrUnavailable,
				Detail: fmt.Sprintf("it is %s, and hasn't run for %v; the reason is in the daemon's log and in the Event Log",
					state, watchTimeout)}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchInterval):
		}
	}
}

func installedReply(i deployment.Installed) reply {
	r := line(i, i.CommandLine)
	if i.Replaced != "" {
		r.warnings = append(r.warnings,
			fmt.Sprintf("the service %s had the command line %s before; csi-proxyctl service uninstall --restore brings it back",
				i.Name, i.Replaced))
	}
	if i.RestartNeeded {
		r.warnings = append(r.warnings,
			"the service runs with the command line before; csi-proxyctl service restart gives it this one")
	}
	return r
}

func (p *program) serviceUninstall() *cobra.Command {
	var name *string
	var restore, watch bool
	c := p.changing("uninstall", "Stop and remove the service",
		func(ctx context.Context, deployer *deployment.Deployer, _ []string) (reply, error) {
			return done, deployer.Uninstall(ctx, *name, restore)
		})
	uninstall := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := uninstall(cmd, args)
		if err == nil && watch {
			<-cmd.Context().Done()
		}
		return err
	}
	c.Long = `Stop the service, wait until its process has ended, and remove it. No file is removed but that of
service install --drivers. It is no error if the service doesn't exist. The service of the published
CSI Proxy stays as it is, without an error. Refused are a service that has the name but isn't CSI Proxy,
and one that other services depend on, as kubelet on AKS: they could not start any more.

With --restore, a service that has replaced a daemon, by csi-proxyctl service install --replace, isn't
removed: that daemon is put back, and started if it ran before. A service that has replaced none is
removed, so that one command suits all nodes. Repeated, --restore leaves the daemon that is back alone.

With --watch the command goes on, doing nothing, until it is stopped: a container that runs it
stays.`
	name = nameFlag(c)
	c.Flags().BoolVar(&restore, "restore", false,
		"bring back the daemon that was replaced; remove a service that has replaced none")
	c.Flags().BoolVar(&watch, "watch", false, "go on until the command is stopped")
	return c
}

// controlling is a command that stops or starts the service that --name means, or both.
func (p *program) controlling(use, short, long string, stop, start bool) *cobra.Command {
	var name *string
	c := p.changing(use, short, func(ctx context.Context, deployer *deployment.Deployer, _ []string) (reply, error) {
		return done, deployer.Cycle(ctx, *name, stop, start)
	})
	c.Long = long
	name = nameFlag(c)
	return c
}

func (p *program) serviceStart() *cobra.Command {
	return p.controlling("start", "Start the service",
		`Start the service, and wait until it serves. It is no error if it runs already.`, false, true)
}

func (p *program) serviceStop() *cobra.Command {
	return p.controlling("stop", "Stop the service",
		`Stop the service, and wait until its process has ended. Calls under way get the daemon's
-grace-period to finish. A process that is there 5 seconds after the service has stopped, as the
published daemon's is, is ended. It is no error if the service is stopped, or doesn't exist.

While services that depend on it run, as kubelet on AKS, it isn't stopped; the error names them.
csi-proxyctl service restart leaves them running.`, true, false)
}

func (p *program) serviceRestart() *cobra.Command {
	return p.controlling("restart", "Stop and start the service",
		`Stop the service as csi-proxyctl service stop does, and start it as csi-proxyctl service start
does. Flags that were changed take effect. Services that depend on it, as kubelet on AKS, run on.`, true, true)
}

func (p *program) serviceUpgrade() *cobra.Command {
	var name *string
	var mayMiss bool
	c := p.changing("upgrade NEW", "Put a new program in the place of the service's",
		func(ctx context.Context, deployer *deployment.Deployer, args []string) (reply, error) {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return reply{}, err
			}
			u, err := deployer.Upgrade(ctx, *name, path, mayMiss)
			return line(u, fmt.Sprintf("%s is version %s", u.Program, u.Version)), err
		})
	c.Long = `Put a new program in the place of the service's. NEW is its path. The service's path and flags
stay. The program before is kept beside it: for csi-proxy.exe as csi-proxy.previous.exe.

NEW is run with -check and the service's flags first: it must run, and serve all versions of the
API. Then the service is stopped, the program is exchanged, and the service is started. In
between, drivers' calls fail with Unavailable for a moment; drivers repeat them. If not all
versions are then served, the program before comes back, and the command fails. Services that depend
on this one, as kubelet on AKS, run on.

To go back later: csi-proxyctl service upgrade C:\k\csi-proxy.previous.exe
If that one lacks versions of the API that came later, and no driver on the node uses them, add
--allow-missing-versions.`
	c.Example = `  csi-proxyctl service upgrade C:\Users\Administrator\Downloads\csi-proxy.exe`
	c.ValidArgsFunction = completeProgram
	name = nameFlag(c)
	c.Flags().BoolVar(&mayMiss, "allow-missing-versions", false,
		"accept a program that doesn't serve all versions of the API, such as an older one")
	return c
}

// serviceJSON is the state of a service in JSON.
type serviceJSON struct {
	Name             string `json:"name"`
	State            string `json:"state"`
	Start            string `json:"start"` // in words, in the place of the number in Settings
	ProcessID        uint32 `json:"process_id,omitempty"`
	ExitCode         uint32 `json:"exit_code"`
	SpecificExitCode uint32 `json:"specific_exit_code"`
	Account          string `json:"account"`
	winservice.Settings
	// Replaced is the command line of the daemon that uninstall --restore brings back.
	Replaced string `json:"replaced,omitempty"`
	// Interrupted says that a command was cut off and must be repeated.
	Interrupted bool `json:"interrupted,omitempty"`
}

func (p *program) serviceStatus() *cobra.Command {
	var name *string
	c := p.leaf("status", "Show the state of the service", func(context.Context, []string) (reply, error) {
		if services == nil {
			return reply{}, winservice.Unsupported("QueryService", cmp.Or(*name, deployment.Names[0]))
		}
		deployer := p.deployer()
		found, err := deployer.Find(*name)
		if err != nil {
			return reply{}, err
		}
		return serviceStatusOf(deployer, found)
	})
	c.Long = `Show the state of the service. EXIT CODE is the Windows error number with which the service
last stopped: 1077 if it hasn't been started since the system was started, 1066 with the service's
own code in brackets if it failed. COMMAND LINE is the daemon's, also where nssm or srvany starts
the daemon; -o json has the wrapper's as well. If an upgrade or a replacement was interrupted, the
command says so: run that again.`
	name = nameFlag(c)
	return c
}

func serviceStatusOf(deployer *deployment.Deployer, name string) (reply, error) {
	s, err := services.Query(name)
	if err != nil {
		return reply{}, err
	}
	replaced, interrupted, err := deployer.Replaced(name)
	if err != nil {
		return reply{}, err
	}
	r := reply{
		header: []string{"NAME", "STATE", "START", "PROCESS", "EXIT CODE", "ACCOUNT", "COMMAND LINE"},
		rows:   [][]string{{name, s.State.String(), s.Start.String(), processID(s), exitCodeOf(s), s.Account, s.Daemon()}},
	}
	if interrupted {
		r.warnings = append(r.warnings, "csi-proxyctl service install or upgrade was cut off; repeat it")
	}
	r.json = serviceJSON{
		Name:             name,
		State:            s.State.String(),
		Start:            s.Start.String(),
		ProcessID:        s.ProcessID,
		ExitCode:         s.ExitCode,
		SpecificExitCode: s.SpecificExitCode,
		Account:          s.Account,
		Settings:         s.Settings,
		Replaced:         replaced,
		Interrupted:      interrupted,
	}
	return r, nil
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
