// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deployment installs the daemon as a service, replaces the published daemon, and upgrades the
// service's program. If the new daemon doesn't work, the old daemon comes back.
//
// # Dependents
//
// On AKS, kubelet depends on the service. Replacements and upgrades leave running dependents alone, as
// [winservice.Stop] explains. So nothing has to remember which services to start again.
//
// # Deaths
//
// The process may die at any moment, and every call may be repeated. Before the first change, the registry
// key of the service gets a [record] of the service as it was. The record stays until the new daemon works or
// the old daemon is back. Before the program is exchanged, the old program is copied to NAME.rollback.exe; in
// the end, the copy becomes NAME.previous.exe. A file of drivers is kept as long as the settings or the record
// name it.
//
// A run that finds a record continues from there. If the daemon of that run fails too, the service goes back
// to the record. The path of the service always has a whole program, and the old program always has a copy.
//
// [winservice.Lock] keeps runs from overlapping.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
)

// Names are the names of the service in the field. The first name, which OpenShift and AKS use, is the
// default for a new service. The published instructions, GCE's scripts and Rancher use csiproxy;
// aks-engine used csi-proxy-server.
var Names = []string{"csi-proxy", "csiproxy", "csi-proxy-server"}

const (
	// startLimit bounds a start: the daemon reports to the manager within two minutes
	// that it serves, or ends.
	startLimit = 150 * time.Second
	// stopLimit bounds a stop.
	stopLimit = 2 * time.Minute
	// healthLimit bounds the wait for all endpoints to answer.
	healthLimit = 30 * time.Second
	// rollbackLimit bounds a rollback, also after the caller has given up.
	rollbackLimit = stopLimit + startLimit + healthLimit
	// attempts is how often a rollback is tried, since the node has no daemon meanwhile.
	attempts      = 3
	attemptsDelay = 5 * time.Second
)

// Services are the services of Windows.
type Services interface {
	winservice.Manager
	// Configure changes a service's settings, and makes a missing service.
	Configure(name string, settings winservice.Settings) error
	// Record returns what SetRecord stored with the service, nil if nothing is.
	Record(name string) ([]byte, error)
	// SetRecord stores a record with the service, for as long as the service exists. Nil
	// removes the record.
	SetRecord(name string, record []byte) error
	// SplitCommandLine returns the program of a command line, and its arguments.
	SplitCommandLine(commandLine string) (program string, args []string, err error)
	// CommandLine is the reverse of SplitCommandLine.
	CommandLine(program string, args ...string) (string, error)
	// MakeDirectory makes a missing directory, for SYSTEM and the Administrators only.
	MakeDirectory(dir string) error
	// Writers returns who can write to a directory, beside SYSTEM and administrators.
	Writers(dir string) ([]string, error)
}

// Programs runs programs and looks at them.
type Programs interface {
	// Check runs a daemon with -check and the flags, and returns what it reports.
	Check(ctx context.Context, program string, args []string) (winservice.Report, error)
	// Origin says whose daemon a program is.
	Origin(program string) (Origin, error)
}

// Files changes files. A written file is complete, and on the disk, once it exists.
type Files interface {
	// Read returns the content of a file, nil for a missing file.
	Read(path string) ([]byte, error)
	// Write makes or replaces a file.
	Write(ctx context.Context, path string, content []byte) error
	// Rename renames a file within a directory, and replaces the target.
	Rename(ctx context.Context, from, to string) error
	// Remove removes a file. A missing file is no error.
	Remove(path string) error
	// List returns the paths of the entries of a directory, none for a missing directory.
	List(dir string) ([]string, error)
}

// Origin says whose daemon a program is.
type Origin int

// Origins.
const (
	Unknown   Origin = iota
	Ours             // this module's
	Published        // the one of github.com/kubernetes-csi/csi-proxy
)

// Deployer puts daemons in place.
type Deployer struct {
	Services Services
	Programs Programs
	Files    Files
	// Healthy returns nil if these endpoints answer now, or without endpoints, if any endpoint answers.
	Healthy func(ctx context.Context, endpoints []string) error
	// Log gets each step.
	Log *slog.Logger
}

// Find returns name, or for an empty name the existing service of Names, or else the first of Names.
// Several existing services are csiproxy.ErrFailedPrecondition.
func (d *Deployer) Find(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	var found []string
	for _, candidate := range Names {
		_, err := d.Services.Query(candidate)
		switch {
		case err == nil:
			found = append(found, candidate)
		case !errors.Is(err, csiproxy.ErrNotFound):
			return "", err
		}
	}
	switch len(found) {
	case 0:
		return Names[0], nil
	case 1:
		return found[0], nil
	}
	return "", refuse("find service", "",
		fmt.Sprintf("there are the services %s, and only one of them can have the pipes; choose one with --name, "+
			"or remove the others", strings.Join(found, ", ")))
}

// Installation says which daemon to put in place, and how.
type Installation struct {
	Name    string // of the service; see Find
	Program string // a full path
	// From is the file to copy to Program, such as a file of a container's image; empty if Program is in place.
	From string
	Args []string
	// Drivers is the content of the file for -drivers, to be written beside the program; nil for no file.
	Drivers []byte

	upgrade bool // the service keeps its settings, and Args are its present arguments
	mayMiss bool // the program may lack versions of the API
}

// Installed is the outcome of an Installation, and the output of "csi-proxyctl service install -o json".
type Installed struct {
	Name        string `json:"name"`
	CommandLine string `json:"command_line"`
	// Replaced is the command line of the replaced daemon's service.
	Replaced string `json:"replaced,omitempty"`
	// RestartNeeded is true if the service still runs with its old command line.
	RestartNeeded bool `json:"restart_needed"`
}

// defaultLog is where OpenShift's must-gather and collectors of logs of nodes look.
const defaultLog = `C:\var\log\csi-proxy\csi-proxy.log`

// Install makes or changes the service. A change takes effect at the next start of the service. Install
// refuses the service of the published daemon.
func (d *Deployer) Install(ctx context.Context, in Installation) (Installed, error) {
	name, err := d.Find(in.Name)
	if err != nil {
		return Installed{}, unchanged(err)
	}
	defer d.tidyDrivers(append(Names, name), in.Program)
	before, err := d.current(name)
	if errors.Is(err, csiproxy.ErrNotFound) {
		err = nil
	}
	if before.origin == Published {
		err = refuse("install service", name, "it is the published daemon's; to put this daemon in its place, add --replace")
	}
	var settings winservice.Settings
	var report winservice.Report
	if err == nil {
		settings, report, err = d.settings(ctx, in, in.Program)
	}
	if err == nil {
		err = d.checkWriters("the log", report.LogDirectory)
	}
	if err != nil {
		return Installed{}, unchanged(err)
	}
	return Installed{Name: name, CommandLine: settings.CommandLine,
		RestartNeeded: before.ran && before.CommandLine != settings.CommandLine}, d.Services.Configure(name, settings)
}

// settings returns the settings for an installation, and the report of the program, which may still be at
// another path.
func (d *Deployer) settings(ctx context.Context, in Installation,
	program string) (settings winservice.Settings, report winservice.Report, err error) {
	if !winservice.IsOurProgram(in.Program) { // or no later command would take the service for ours
		return settings, report, &csiproxy.Error{Op: "install service", Kind: csiproxy.ErrInvalidArgument,
			Detail: fmt.Sprintf("the name of %s doesn't contain csi-proxy", in.Program)}
	}
	if in.Drivers != nil {
		if in.Args, err = d.placeDrivers(ctx, in); err != nil {
			return settings, report, err
		}
	}
	if !in.upgrade {
		in.Args = serviceArgs(in.Args)
	}
	line, err := d.Services.CommandLine(in.Program, in.Args...)
	if err == nil {
		report, err = d.check(ctx, program, in.Args, in.mayMiss)
	}
	if err == nil && !in.upgrade { // whose program is there already
		err = d.checkWriters("the service's program", directoryOf(in.Program))
	}
	return winservice.Settings{CommandLine: line, Start: winservice.Automatic}, report, err
}

// checkWriters refuses a directory that ordinary users can write to: a user could exchange the program of
// SYSTEM, or redirect the log by a link.
func (d *Deployer) checkWriters(contents, dir string) error {
	if dir == "" {
		return nil
	}
	names, err := d.Services.Writers(dir)
	if err != nil || len(names) == 0 {
		return err
	}
	return refuse("install service", dir, winservice.WritableText(contents, dir, names)+"; "+winservice.WritableAdvice(dir))
}

// directoryOf returns the directory of a program; empty if the path has none.
func directoryOf(program string) string { return program[:max(0, strings.LastIndexAny(program, `\/`))] }

// check runs a daemon with -check. Without mayMiss, the daemon must serve all versions of the API.
func (d *Deployer) check(ctx context.Context, program string, args []string, mayMiss bool) (winservice.Report, error) {
	report, err := d.Programs.Check(ctx, program, args)
	if err != nil {
		return winservice.Report{}, &csiproxy.Error{Op: "check program", Object: program, Kind: csiproxy.ErrInvalidArgument,
			Detail: "it must be a CSI Proxy that takes the service's flags", Err: err}
	}
	for _, problem := range report.Problems {
		d.Log.Warn("the daemon would have a problem on this node", "problem", problem)
	}
	for _, warning := range report.Warnings {
		d.Log.Warn("warning about the daemon's flags", "warning", warning)
	}
	var missing []string
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			endpoint := api.EndpointName(group, version)
			ofAdministrators := api.DriverEndpointName(admin.Driver, group, version) // with -drivers
			if !slices.Contains(report.Endpoints, endpoint) && !slices.Contains(report.Endpoints, ofAdministrators) {
				missing = append(missing, endpoint)
			}
		}
	}
	if len(missing) > 0 && !mayMiss {
		return winservice.Report{}, refuse("check program", program, "it doesn't serve "+strings.Join(missing, ", ")+
			", which drivers on this node may use")
	}
	return report, nil
}

// current is a service as it is.
type current struct {
	winservice.Settings
	ran     bool
	program string
	args    []string
	origin  Origin // of the program
}

// current returns the settings and the program of a service. The service of a foreign program is
// csiproxy.ErrFailedPrecondition.
func (d *Deployer) current(name string) (c current, err error) {
	status, err := d.Services.Query(name)
	if err == nil {
		c.Settings, c.ran = status.Settings, status.State != winservice.Stopped
		c.program, c.args, err = d.Services.SplitCommandLine(c.Daemon())
	}
	if err == nil && !winservice.IsOurProgram(c.program) {
		err = refuse("check service", name, "it runs another program, "+c.Daemon()+"; choose another name")
	}
	if err == nil {
		c.origin, err = d.Programs.Origin(c.program)
	}
	if err != nil {
		return current{}, err
	}
	return c, nil
}

// isOurs reports whether the service runs our daemon without a wrapper, as Install and Replace leave it.
func (c current) isOurs() bool { return c.origin == Ours && c.Wrapped == "" }

// serviceArgs adds the arguments that a service needs. The default log is a file, since a service has no
// standard error.
func serviceArgs(args []string) []string {
	with := slices.Clone(args)
	if !named(args, "log_file", "log_dir", "logtostderr", "alsologtostderr") {
		with = append([]string{"-log_file=" + defaultLog, "-logtostderr=false"}, with...)
	}
	if !named(args, "windows-service") {
		with = append([]string{"-windows-service"}, with...)
	}
	return with
}

// named reports whether one of the flags is among the arguments.
func named(args []string, flags ...string) bool {
	return slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.ContainsFunc(flags, func(flag string) bool { return name == "-"+flag || name == "--"+flag })
	})
}

// Cycle stops the service, starts the service, or restarts the service while its dependents run on. A stop
// alone is winservice.ErrDependents while dependents run.
func (d *Deployer) Cycle(ctx context.Context, name string, stop, start bool) error {
	name, err := d.Find(name)
	if err == nil {
		_, err = d.current(name)
	}
	if errors.Is(err, csiproxy.ErrNotFound) && !start {
		return nil
	}
	if err == nil && stop {
		err = winservice.Stop(ctx, d.Services, d.Log, name, start)
	}
	if errors.Is(err, winservice.ErrDependents) {
		err = &csiproxy.Error{Op: "stop service", Object: name, Kind: csiproxy.ErrFailedPrecondition, Err: err,
			Detail: "nothing was changed; csi-proxyctl service restart leaves the dependents running; if the service must stay " +
				"stopped, drain the node and stop the dependents first"}
	}
	if err == nil && start {
		err = winservice.Start(ctx, d.Services, name)
	}
	return err
}

// start starts the service, and waits until the endpoints answer, or without endpoints, any endpoint.
func (d *Deployer) start(ctx context.Context, name string, endpoints []string) error {
	d.Log.Info("starting the service", "service", name)
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := winservice.Start(starting, d.Services, name); err != nil {
		return err
	}
	return d.works(ctx, name, endpoints)
}

// works returns nil if the service runs, and the endpoints answer within healthLimit.
func (d *Deployer) works(ctx context.Context, name string, endpoints []string) error {
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	for {
		status, err := d.Services.Query(name)
		if err != nil {
			return err
		}
		if status.State != winservice.Running {
			return fmt.Errorf("the service %s is in state %q; the reason is in the daemon's log and in the Event Log", name,
				status.State)
		}
		if err = d.Healthy(ctx, endpoints); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not all endpoints answer: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stop stops the service while its dependents run on, and ends processes of programs that hold endpoints.
func (d *Deployer) stop(ctx context.Context, name string, programs ...string) error {
	d.Log.Info("stopping the service", "service", name)
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if err := winservice.Stop(ctx, d.Services, d.Log, name, true); err != nil {
		return err
	}
	return winservice.Release(ctx, d.Services, programs)
}

// again retries until success, up to attempts times.
func again(ctx context.Context, do func() error) error {
	for i := 1; ; i++ {
		err := do()
		if err == nil || i == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(attemptsDelay):
		}
	}
}

// beside returns the path of a file beside a program: C:\k\csi-proxy.exe has
// C:\k\csi-proxy.previous.exe.
func beside(program, word string) string {
	extension := filepath.Ext(program)
	return strings.TrimSuffix(program, extension) + "." + word + extension
}

func refuse(op, object, detail string) error {
	return &csiproxy.Error{Op: op, Object: object, Kind: csiproxy.ErrFailedPrecondition, Detail: detail}
}

// unchanged returns the error of a failure before the first change.
func unchanged(err error) error { return fmt.Errorf("%w; nothing was changed", err) }
