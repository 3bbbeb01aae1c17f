// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// record is stored with the service.
type record struct {
	// Pending is the service before the change that is under way or was cut off.
	Pending *before `json:"pending,omitempty"`
	// Replaced is the service of the replaced daemon.
	Replaced *before `json:"replaced,omitempty"`
}

// before is a service as it was before a change.
type before struct {
	Settings winservice.Settings `json:"settings"`
	Ours     bool                `json:"ours"`
	Ran      bool                `json:"ran"`
}

// change replaces the daemon of a service.
type change struct {
	*Deployer
	name     string
	exists   bool // the service exists
	service  current
	record   record
	before   before               // the service to go back to
	old      string               // the program of before
	settings *winservice.Settings // the new settings; nil for an upgrade
	program  string               // the path of the new program
	fresh    string               // a copy of the new program; empty if program is in place
	report   winservice.Report    // of the new daemon
	begun    bool                 // the service was changed, by this run or an earlier run
}

// Replace installs and starts the daemon, in the place of a published daemon or of our own. The service keeps
// its name, which scripts, alerts and other services know. The service also keeps the published daemon's
// flags; the flags of the Installation follow and take precedence. Our own service keeps its flags if the
// Installation has none. The process of the published daemon is ended, since it keeps the pipes after a stop.
// If the new daemon doesn't work, the service gets its program and settings back, is started again, and the
// error says so.
//
// A service that runs with the wanted program and flags is left running.
func (d *Deployer) Replace(ctx context.Context, in Installation) (_ Installed, err error) {
	if in.Name, err = d.Find(in.Name); err != nil {
		return Installed{}, unchanged(err)
	}
	c, err := d.look(ctx, in)
	if err == nil {
		// The log stays where the published daemon had it; ours follows no link there.
		if err := d.checkWriters("the log", c.report.LogDirectory); err != nil {
			d.Log.Warn("other accounts can still write to the directory of the log", "err", err)
		}
		err = c.apply(ctx)
	}
	d.tidyDrivers(append(Names, in.Name), in.Program, cmp.Or(c.old, in.Program))
	if err != nil {
		return Installed{}, err
	}
	installed := Installed{Name: in.Name, CommandLine: c.settings.CommandLine}
	if c.exists && !c.before.Ours {
		installed.Replaced = c.before.Settings.CommandLine
	}
	return installed, nil
}

// Upgraded is the outcome of an upgrade, and the output of "csi-proxyctl service upgrade -o json".
type Upgraded struct {
	Name     string `json:"name"`    // of the service
	Program  string `json:"program"` // the path
	Version  string `json:"version"` // of the new program
	Changed  bool   `json:"changed"`
	Previous string `json:"previous,omitempty"` // path of the old program, if changed
}

// Upgrade replaces the service's program; the path and the flags stay. Between the end of the old daemon and
// the start of the new daemon, drivers' calls are Unavailable. If the new program doesn't work, the old program
// comes back, and the error says so. A service that has the program already is started if needed.
//
// The new program must serve all versions of the API, unless mayMiss permits an older program.
func (d *Deployer) Upgrade(ctx context.Context, name, newProgram string, mayMiss bool) (Upgraded, error) {
	name, err := d.Find(name)
	var service current
	if err == nil {
		service, err = d.current(name)
	}
	switch {
	case err != nil:
	case service.origin == Published:
		err = refuse("upgrade service", name, "it is the published daemon's; use csi-proxyctl service install --replace")
	case service.Start == winservice.Disabled:
		err = refuse("upgrade service", name, "it is disabled; csi-proxyctl service install enables it")
	case strings.EqualFold(service.program, newProgram):
		err = &csiproxy.Error{Op: "upgrade service", Object: name, Kind: csiproxy.ErrInvalidArgument,
			Detail: newProgram + " is the service's own program; put the new one elsewhere"}
	}
	if err != nil {
		return Upgraded{}, unchanged(err)
	}
	c, err := d.look(ctx, Installation{Name: name, Program: service.program, From: newProgram, Args: service.args,
		upgrade: true, mayMiss: mayMiss})
	if err == nil {
		err = c.apply(ctx)
	}
	if err != nil {
		return Upgraded{}, err
	}
	result := Upgraded{Name: name, Program: c.program, Version: c.report.Version, Changed: c.fresh != ""}
	if result.Changed {
		result.Previous = beside(c.program, "previous")
	}
	return result, nil
}

// look prepares a change, and refuses hopeless changes. The service and its files stay as they are.
func (d *Deployer) look(ctx context.Context, in Installation) (c *change, err error) {
	c = &change{Deployer: d, name: in.Name, program: in.Program}
	defer func() {
		if err != nil {
			err = unchanged(errors.Join(err, c.dropFresh()))
		}
	}()
	c.service, err = d.current(c.name)
	if c.exists = err == nil; c.exists {
		err = c.lookBack(&in)
	}
	if err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
		return c, err
	}
	checked := in.Program
	if in.From != "" {
		if err := c.bring(ctx, in.From); err != nil {
			return c, err
		}
		checked = cmp.Or(c.fresh, in.Program)
	}
	if c.record.Pending == nil && c.exists {
		if err := c.keepPrevious(ctx); err != nil {
			return c, err
		}
	}
	settings, report, err := d.settings(ctx, in, checked)
	c.report = report
	if !in.upgrade {
		c.settings = &settings
	}
	return c, err
}

// lookBack sets the fields about the service before the change, and adds the flags that stay.
func (c *change) lookBack(in *Installation) (err error) {
	if c.record, err = c.Deployer.record(c.name); err != nil {
		return err
	}
	c.before = before{Settings: c.service.Settings, Ours: c.service.isOurs(), Ran: c.service.ran}
	if c.record.Pending != nil {
		c.Log.Info("an earlier change was cut off; going on with it", "service", c.name)
		c.before = *c.record.Pending
	}
	old, oldArgs, err := c.Services.SplitCommandLine(c.before.Settings.Daemon())
	if err != nil {
		return err
	}
	c.old = old
	if c.service.origin == Published && in.From != "" && strings.EqualFold(c.service.program, in.Program) {
		return refuse("install service", c.name, "the replaced daemon is "+old+", which could not come back; give the new one another path")
	}
	switch {
	case in.upgrade:
	case !c.before.Ours:
		in.Args = append(oldArgs, in.Args...)
	case len(in.Args) == 0:
		in.Args = oldArgs // ours, which keeps its flags
	case c.record.Replaced != nil: // the same flags again lead to the same command line
		_, replacedArgs, err := c.Services.SplitCommandLine(c.record.Replaced.Settings.Daemon())
		if err != nil {
			return err
		}
		in.Args = append(replacedArgs, in.Args...)
	}
	return nil
}

// bring copies the new program to fresh, if the bytes differ from the program in place.
func (c *change) bring(ctx context.Context, from string) error {
	content, err := c.Files.Read(from)
	if err == nil && content == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return &csiproxy.Error{Op: "read program", Object: from, Kind: csiproxy.ErrInvalidArgument, Err: err}
	}
	there, err := c.Files.Read(c.program)
	if err != nil {
		return err
	}
	if bytes.Equal(there, content) {
		return c.Files.Remove(beside(c.program, "new")) // of a run that was cut off
	}
	if dir := directoryOf(c.program); dir != "" && there == nil { // who can exchange the program owns the node
		if err := c.Services.MakeDirectory(dir); err != nil {
			return err
		}
	}
	c.fresh = beside(c.program, "new")
	if err := c.Files.Write(ctx, c.fresh, content); err != nil {
		return err
	}
	origin, err := c.Programs.Origin(c.fresh)
	if err == nil && origin != Ours { // it isn't even run
		err = &csiproxy.Error{Op: "check program", Object: from, Kind: csiproxy.ErrInvalidArgument,
			Detail: "it isn't a csi-proxy.exe of this project, by what its build has recorded"}
	}
	return err
}

// apply makes the change, or rolls back.
func (c *change) apply(ctx context.Context) error {
	if !c.exists {
		return c.create(ctx)
	}
	if c.before.Ours && c.record.Pending == nil && c.fresh == "" &&
		(c.settings == nil || c.settings.CommandLine == c.service.CommandLine) && c.works(ctx, c.name, c.report.Endpoints) == nil {
		return c.configure() // it is there already, but may not start with Windows
	}
	c.begun = c.record.Pending != nil
	c.record.Pending = &c.before
	err := c.setRecord(c.name, c.record)
	if err == nil {
		err = c.copyOld(ctx)
	}
	if err == nil {
		err = c.stop(ctx, c.name, c.program, c.old)
		status, queryErr := c.Services.Query(c.name)
		c.begun = c.begun || err == nil || queryErr != nil || status.State != winservice.Running
	}
	if err == nil {
		err = c.exchange(ctx)
	}
	if err != nil {
		return c.rollBack(ctx, err)
	}
	line := c.service.CommandLine
	if c.settings != nil {
		line = c.settings.CommandLine
	}
	if !c.before.Ours && line != c.before.Settings.CommandLine {
		c.record.Replaced = &c.before
	}
	c.record.Pending = nil
	if err := c.setRecord(c.name, c.record); err != nil {
		return err
	}
	return c.keepPrevious(ctx)
}

// create makes and starts a new service, and removes the service if the daemon doesn't work.
func (c *change) create(ctx context.Context) error {
	// A daemon in a container keeps the pipes. The error names the process.
	if err := c.stop(ctx, c.name, c.program); err != nil {
		return unchanged(errors.Join(err, c.dropFresh()))
	}
	err := c.exchange(ctx)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	return errors.Join(&csiproxy.Error{Op: "install service", Object: c.name, Kind: csiproxy.ErrFailedPrecondition,
		Detail: "the daemon doesn't work, and the service was removed again", Err: err},
		winservice.Uninstall(ctx, c.Services, c.Log, c.name), c.dropFresh())
}

// copyOld copies the old program to rollbackFile. An existing copy, from a run that was cut off, stays.
func (c *change) copyOld(ctx context.Context) error {
	if c.fresh == "" || !strings.EqualFold(c.program, c.old) {
		return nil
	}
	return c.copyFile(ctx, c.old, c.rollbackFile(), false)
}

// copyFile copies a file, if the file exists. Without replace, an existing target stays.
func (d *Deployer) copyFile(ctx context.Context, from, to string, replace bool) error {
	content, err := d.Files.Read(from)
	if err != nil || content == nil {
		return err
	}
	if there, err := d.Files.Read(to); err != nil || there != nil && !replace {
		return err
	}
	return d.Files.Write(ctx, to, content)
}

func (c *change) rollbackFile() string { return beside(c.old, "rollback") }

// keepPrevious keeps the old program for a later way back.
func (c *change) keepPrevious(ctx context.Context) error {
	err := c.Files.Rename(ctx, c.rollbackFile(), beside(c.old, "previous"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the program was not exchanged
	}
	return err
}

func (c *change) dropFresh() error {
	if c.fresh == "" {
		return nil
	}
	return c.Files.Remove(c.fresh)
}

// exchange starts the stopped service with the new program and settings.
func (c *change) exchange(ctx context.Context) error {
	if c.fresh != "" {
		c.Log.Info("exchanging the program", "program", c.program, "version", c.report.Version)
		if err := c.Files.Rename(ctx, c.fresh, c.program); err != nil {
			return err
		}
	}
	if err := c.configure(); err != nil {
		return err
	}
	return c.start(ctx, c.name, c.report.Endpoints)
}

func (c *change) configure() error {
	if c.settings == nil {
		return nil
	}
	return c.Services.Configure(c.name, *c.settings)
}

// rollBack undoes a change that failed with cause, and returns the error to report.
func (c *change) rollBack(ctx context.Context, cause error) error {
	c.Log.Warn("the change has failed; putting the earlier daemon back", "err", cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	err := &csiproxy.Error{Op: "change service", Object: c.name, Kind: csiproxy.ErrFailedPrecondition, Err: cause,
		Detail: "nothing was changed"}
	problem := again(ctx, func() error {
		if c.begun {
			err.Detail = "the change was rolled back; the service is as it was before"
			if err := c.bringBack(ctx, c.name, c.before, c.program); err != nil {
				return err
			}
		}
		if err := errors.Join(c.dropFresh(), c.Files.Remove(c.rollbackFile())); err != nil {
			return err
		}
		c.record.Pending = nil
		return c.setRecord(c.name, c.record)
	})
	if problem != nil {
		err.Kind = csiproxy.ErrInternal
		err.Detail = fmt.Sprintf("the change has failed, and so has the way back (%v). The service's command line "+
			"was %s; its program, if it was exchanged, is %s. Run the command again",
			problem, c.before.Settings.CommandLine, c.rollbackFile())
	}
	return err
}

// bringBack restores the program and settings of before, and starts the service if the service ran. The stop
// ends an old daemon that has kept the pipes.
func (d *Deployer) bringBack(ctx context.Context, name string, was before, ours string) error {
	old, _, err := d.Services.SplitCommandLine(was.Settings.Daemon())
	if err != nil {
		return err
	}
	// A service that didn't run leaves the pipes to their present owner.
	if err := d.stop(ctx, name, ours, old); err != nil && (was.Ran || !errors.Is(err, winservice.ErrHeld)) {
		return err
	}
	err = d.copyFile(ctx, beside(old, "rollback"), old, true)
	if err == nil {
		err = d.Services.Configure(name, was.Settings)
	}
	if err == nil && was.Ran {
		err = d.start(ctx, name, nil)
	}
	return err
}

// Uninstall stops and removes the service. With restore, a service that has replaced another daemon stays
// instead: Uninstall restores the replaced service, and starts the service if the service ran.
//
// The service of the published daemon stays as it is, for instance on a node that has just joined. With restore,
// so does the service of every daemon that isn't ours: an earlier run has restored it.
func (d *Deployer) Uninstall(ctx context.Context, name string, restore bool) error {
	name, err := d.Find(name)
	if err != nil {
		return unchanged(err)
	}
	service, err := d.current(name)
	if errors.Is(err, csiproxy.ErrNotFound) {
		d.Log.Info("there is no service to remove", "service", name)
		return winservice.Uninstall(ctx, d.Services, d.Log, name)
	}
	var r record
	if err == nil && restore {
		r, err = d.record(name)
	}
	if err != nil {
		return unchanged(err)
	}
	if r.Pending != nil && !r.Pending.Ours {
		r.Replaced = r.Pending // a replacement that was cut off
	}
	switch {
	case r.Replaced != nil:
		return d.restore(ctx, name, *r.Replaced, service.program)
	case service.origin == Published, restore && !service.isOurs():
		d.Log.Info("the service runs a daemon that csi-proxyctl has not installed, and stays", "service", name, "program", service.program)
		return nil
	}
	err = winservice.Uninstall(ctx, d.Services, d.Log, name)
	if errors.Is(err, winservice.ErrDependents) && !restore {
		replaced, _, recordErr := d.Replaced(name)
		if replaced != "" {
			err = fmt.Errorf("csi-proxyctl service uninstall --restore, or service.restore=true of the chart, brings the "+
				"replaced daemon back. Without that: %w", err)
		}
		err = errors.Join(err, recordErr)
	}
	if err != nil {
		return err
	}
	d.Log.Info("the service is removed", "service", name)
	others := slices.DeleteFunc(slices.Clone(Names), func(other string) bool { return strings.EqualFold(other, name) })
	d.tidyDrivers(others, service.program) // the service exists until its last handle is closed
	return nil
}

// restore brings the replaced service back, and forgets that it was replaced.
func (d *Deployer) restore(ctx context.Context, name string, replaced before, ours string) error {
	if err := again(ctx, func() error { return d.bringBack(ctx, name, replaced, ours) }); err != nil {
		return errors.Join(err, winservice.Start(ctx, d.Services, name)) // so that one of the daemons serves
	}
	d.Log.Info("the replaced daemon is back", "service", name, "command_line", replaced.Settings.Daemon(), "started", replaced.Ran)
	d.tidyDrivers(append(Names, name), ours)
	return d.Services.SetRecord(name, nil)
}

// Replaced returns the command line of the replaced service, if any, and whether a change was cut off.
func (d *Deployer) Replaced(name string) (commandLine string, pending bool, err error) {
	r, err := d.record(name)
	if err != nil {
		return "", false, err
	}
	if r.Replaced != nil {
		commandLine = r.Replaced.Settings.CommandLine
	}
	return commandLine, r.Pending != nil, nil
}

func (d *Deployer) record(name string) (record, error) {
	var r record
	stored, err := d.Services.Record(name)
	if err == nil && stored != nil {
		err = json.Unmarshal(stored, &r)
	}
	if err != nil {
		return record{}, &csiproxy.Error{Op: "read what was replaced", Object: "by service " + name, Err: err}
	}
	return r, nil
}

func (d *Deployer) setRecord(name string, r record) error {
	if r == (record{}) {
		return d.Services.SetRecord(name, nil)
	}
	stored, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return d.Services.SetRecord(name, stored)
}
