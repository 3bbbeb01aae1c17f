// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// record is what is stored with a service that a daemon was or is being put in place of.
type record struct {
	// Pending is the service before a change that isn't known to work.
	Pending *before `json:"pending,omitempty"`
	// Replaced is the service before it became ours.
	Replaced *before `json:"replaced,omitempty"`
}

// before is a service as it was before a change.
type before struct {
	Settings winservice.Settings `json:"settings"`
	Ours     bool                `json:"ours"`
	Ran      bool                `json:"ran"`
}

// Replace puts the daemon in the place of the one that the node has: the published one,
// or an earlier installation of ours. The service keeps its name, since scripts, alerts
// and other services know it. It also keeps the published daemon's flags; those of the
// Installation come after them, so they count if both give one. If it is ours already,
// and the Installation has no flags, it keeps those that it has. The old
// daemon is stopped, and its process is ended, since the published one keeps the pipes
// after a stop. If the new daemon doesn't work, the service gets its settings back and is
// started again, and the error says so.
//
// If the node has no daemon as a service, Replace installs and starts this one.
func (d *Deployer) Replace(ctx context.Context, in Installation) (Installed, error) {
	name, err := d.Find(in.Name)
	if err != nil {
		return Installed{}, err
	}
	r := replacement{Deployer: d, name: name, program: in.Program}
	installed, err := r.replace(ctx, in)
	d.warnLeftDrivers(name, in.Program, cmp.Or(r.oldProgram, in.Program))
	return installed, err
}

func (r *replacement) replace(ctx context.Context, in Installation) (Installed, error) {
	deployer, name := r.Deployer, r.name
	status, err := deployer.Services.Query(name)
	if errors.Is(err, csiproxy.ErrNotFound) {
		return r.create(ctx, in)
	}
	if err != nil {
		return Installed{}, err
	}
	service, err := deployer.current(name)
	if err != nil {
		return Installed{}, err
	}
	if r.record, err = deployer.record(name); err != nil {
		return Installed{}, err
	}
	pending := r.record.Pending
	if pending == nil {
		pending = &before{Settings: service.Settings, Ours: service.origin == Ours && service.Wrapped == "",
			Ran: status.State != winservice.Stopped}
	} else {
		deployer.Log.Info("an earlier replacement was cut off; going on with it", "service", name)
	}
	r.before = *pending

	oldProgram, oldArgs, err := deployer.Services.SplitCommandLine(r.before.Settings.Daemon())
	if err != nil {
		return Installed{}, err
	}
	r.oldProgram = oldProgram
	switch {
	case !r.before.Ours:
		in.Args = append(oldArgs, in.Args...)
	case len(in.Args) == 0:
		in.Args = oldArgs // ours, which keeps its flags
	case r.record.Replaced != nil: // the same flags again lead to the same command line
		_, replacedArgs, err := deployer.Services.SplitCommandLine(r.record.Replaced.Settings.Daemon())
		if err != nil {
			return Installed{}, err
		}
		in.Args = append(replacedArgs, in.Args...)
	}
	in.DisplayName = cmp.Or(in.DisplayName, r.before.Settings.DisplayName)
	in.Description = cmp.Or(in.Description, r.before.Settings.Description)
	config, report, err := deployer.config(ctx, name, in)
	if err != nil {
		return Installed{}, err
	}
	deployer.warnWriters(report.LogDirectory)
	installed := Installed{Name: name, CommandLine: config.CommandLine}
	if r.before.Ours && r.record.Pending == nil && config.CommandLine == service.CommandLine &&
		deployer.works(ctx, name, report.Endpoints) == nil {
		return installed, deployer.Services.Install(ctx, config) // it is there already
	}
	if !r.before.Ours {
		installed.Replaced = r.before.Settings.CommandLine
	}
	r.record.Pending = pending
	if err := deployer.setRecord(name, r.record); err != nil {
		return Installed{}, err
	}
	if err := r.exchange(ctx, config, report.Endpoints); err != nil {
		return Installed{}, r.rollBack(ctx, err)
	}
	return installed, r.commit()
}

// replacement puts a daemon in the place of a service's.
type replacement struct {
	*Deployer
	name       string
	program    string // the new daemon's
	oldProgram string
	before     before
	record     record
}

// create makes and starts a service where none was, and removes it if it doesn't work.
func (r *replacement) create(ctx context.Context, in Installation) (Installed, error) {
	config, report, err := r.config(ctx, r.name, in)
	if err != nil {
		return Installed{}, err
	}
	r.warnWriters(report.LogDirectory)
	// A daemon that is no service's, such as a container's, has the pipes until it goes. The error
	// names it.
	if err := r.stop(ctx, r.name, r.program); err != nil {
		return Installed{}, err
	}
	err = r.Services.Install(ctx, config)
	if err == nil {
		err = r.start(ctx, r.name, report.Endpoints)
	}
	if err == nil {
		return Installed{Name: r.name, CommandLine: config.CommandLine}, nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	return Installed{}, errors.Join(&csiproxy.Error{Op: "install service", Object: r.name,
		Kind:   csiproxy.ErrFailedPrecondition,
		Detail: "the daemon doesn't work, and the service was removed again", Err: err}, r.Services.Uninstall(undo, r.name))
}

// exchange makes the service ours, and starts it.
func (r *replacement) exchange(ctx context.Context, config winservice.Config, endpoints []string) error {
	if err := r.Services.Install(ctx, config); err != nil {
		return err
	}
	if err := r.stop(ctx, r.name, r.oldProgram, r.program); err != nil {
		return err
	}
	return r.start(ctx, r.name, endpoints)
}

// commit ends a replacement whose daemon works.
func (r *replacement) commit() error {
	if !r.before.Ours {
		r.record.Replaced = r.record.Pending
	}
	r.record.Pending = nil
	return r.setRecord(r.name, r.record)
}

// rollBack undoes a replacement that failed with cause, and returns the error to report.
func (r *replacement) rollBack(ctx context.Context, cause error) error {
	r.Log.Warn("the new daemon doesn't work; putting the one before back", "err", cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	err := &csiproxy.Error{Op: "replace service", Object: r.name, Kind: csiproxy.ErrFailedPrecondition, Err: cause,
		Detail: "the replacement was rolled back; the service is as it was before"}
	problem := again(ctx, func() error { return r.bringBack(ctx, r.name, r.before, r.program) })
	if problem == nil {
		r.record.Pending = nil
		problem = r.setRecord(r.name, r.record)
	}
	if problem != nil {
		err.Kind = csiproxy.ErrInternal
		err.Detail = fmt.Sprintf("the replacement has failed, and so has the way back (%v). The service's command line "+
			"was %s. Run the command again",
			problem, r.before.Settings.CommandLine)
	}
	return err
}

// bringBack gives the service the settings of before, and starts it if it ran.
func (d *Deployer) bringBack(ctx context.Context, name string, was before, ours string) error {
	if err := d.Services.Restore(name, was.Settings); err != nil {
		return err
	}
	if !was.Ran {
		_ = d.stop(ctx, name, ours) // if the pipes are another program's, they are its again
		return nil
	}
	// The daemon before may have been stopped already, and have kept the pipes.
	program, _, err := d.Services.SplitCommandLine(was.Settings.Daemon())
	if err != nil {
		return err
	}
	if err := d.stop(ctx, name, ours, program); err != nil {
		return err
	}
	return d.start(ctx, name, nil)
}

// Uninstall stops and removes the service. With restore, the service that Replace has
// made ours becomes again what it was before, and is started if it ran.
func (d *Deployer) Uninstall(ctx context.Context, name string, restore bool) error {
	name, err := d.Find(name)
	if err != nil {
		return err
	}
	var ours string // our program
	settings, err := d.Services.Settings(name)
	if err == nil {
		ours, _, err = d.Services.SplitCommandLine(settings.Daemon())
	}
	if !restore {
		if failure := d.Services.Uninstall(ctx, name); failure != nil || err != nil {
			return failure // without the settings, it isn't known where a file of drivers is, or there was no service
		}
		others := slices.DeleteFunc(slices.Clone(Names), func(other string) bool { return strings.EqualFold(other, name) })
		return d.tidyDrivers(others, ours) // the service may be there until all have closed it
	}
	if err != nil {
		return err
	}
	r, err := d.record(name)
	if err != nil {
		return err
	}
	if r.Replaced == nil {
		return refuse("restore service", name, "it has replaced no other daemon; to remove the service, leave out --restore")
	}
	if err := again(ctx, func() error { return d.bringBack(ctx, name, *r.Replaced, ours) }); err != nil {
		return err
	}
	d.warnLeftDrivers(name, ours)
	return d.Services.SetRecord(name, nil)
}

// Replaced returns the command line of the service that ours has replaced, if it has, and
// whether a replacement was cut off.
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
	stored, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return d.Services.SetRecord(name, stored)
}
