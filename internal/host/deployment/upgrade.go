// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// Upgraded is what an upgrade has led to. Its JSON is the output of "csi-proxyctl service upgrade
// -o json".
type Upgraded struct {
	Name     string `json:"name"`    // of the service
	Program  string `json:"program"` // its path, which is the same as before
	Version  string `json:"version"` // of the program now
	Changed  bool   `json:"changed"`
	Previous string `json:"previous,omitempty"` // path of the program before; empty if it was the same
}

// Upgrade puts a new program in the place of the service's. The path and the flags stay.
// Between the stop of the old daemon and the start of the new one, drivers' calls are
// Unavailable. If the new one doesn't work, the old one is put back and started, and the
// error says so. If the service has this program already, it is only started if it
// doesn't run.
//
// The new program must serve all versions of the API, unless some may be missing, as in
// an older program.
func (d *Deployer) Upgrade(ctx context.Context, name, newProgram string, mayMiss bool) (Upgraded, error) {
	name, err := d.Find(name)
	if err != nil {
		return Upgraded{}, err
	}
	before, err := d.current(name)
	if err != nil {
		return Upgraded{}, err
	}
	if before.origin == Published {
		return Upgraded{}, refuse("upgrade service", name,
			"it is the published daemon's; use csi-proxyctl service install --replace")
	}
	if before.Start == winservice.Disabled {
		return Upgraded{}, refuse("upgrade service", name, "it is disabled; csi-proxyctl service install enables it")
	}
	program, args := before.program, before.args
	if strings.EqualFold(program, newProgram) {
		return Upgraded{}, &csiproxy.Error{Op: "upgrade service", Object: name, Kind: csiproxy.ErrInvalidArgument,
			Detail: newProgram + " is the service's own program; put the new one elsewhere"}
	}
	u := upgrade{Deployer: d, name: name, program: program, args: args, settings: before.Settings}

	// The new program is copied first, since finishing an upgrade replaces
	// NAME.previous.exe, which may be the new program.
	fresh := beside(program, "new")
	copyErr := d.Files.Copy(ctx, newProgram, fresh)
	if err := u.finishInterrupted(ctx); err != nil {
		return Upgraded{}, err
	}
	if copyErr != nil {
		return Upgraded{}, &csiproxy.Error{Op: "upgrade service", Object: name, Kind: csiproxy.ErrInvalidArgument,
			Detail: "the new program can't be copied; nothing was changed", Err: copyErr}
	}
	// What isn't CSI Proxy isn't even run.
	if origin, err := d.Programs.Origin(fresh); err != nil || origin != Ours {
		return Upgraded{}, errors.Join(&csiproxy.Error{Op: "upgrade service", Object: name, Kind: csiproxy.ErrInvalidArgument,
			Detail: newProgram + " isn't a csi-proxy.exe that can take this one's place, by what its build has recorded; " +
				"it wasn't run, and nothing was changed", Err: err}, d.Files.Remove(fresh))
	}
	report, err := d.check(ctx, fresh, args, mayMiss)
	if err != nil {
		return Upgraded{}, errors.Join(err, d.Files.Remove(fresh))
	}
	result := Upgraded{Name: name, Program: program, Version: report.Version}
	same, err := d.Files.Same(program, fresh)
	if err != nil {
		return Upgraded{}, err
	}
	if same {
		return result, errors.Join(d.start(ctx, name, report.Endpoints), d.Files.Remove(fresh))
	}
	if err := d.Files.Copy(ctx, program, u.rollbackFile()); err != nil {
		return Upgraded{}, errors.Join(err, d.Files.Remove(fresh))
	}
	if err := u.exchange(ctx, fresh, report); err != nil {
		return Upgraded{}, u.rollBack(ctx, err)
	}
	result.Changed, result.Previous = true, beside(program, "previous")
	return result, u.commit(ctx)
}

// upgrade is an upgrade of one service.
type upgrade struct {
	*Deployer
	name     string
	program  string // of the service
	args     []string
	settings winservice.Settings
}

func (u *upgrade) rollbackFile() string { return beside(u.program, "rollback") }

// exchange puts the file fresh in the program's place and starts it.
func (u *upgrade) exchange(ctx context.Context, fresh string, report winservice.Report) error {
	if err := u.allow(report.Privileges); err != nil {
		return err
	}
	if err := u.stop(ctx, u.name, u.program); err != nil {
		return err
	}
	u.Log.Info("exchanging the program", "program", u.program, "version", report.Version)
	if err := u.Files.Rename(ctx, fresh, u.program); err != nil {
		return err
	}
	return u.start(ctx, u.name, report.Endpoints)
}

// allow adds privileges to those that the service is limited to, if it is.
func (u *upgrade) allow(privileges []string) error {
	if len(u.settings.Privileges) == 0 {
		return nil
	}
	settings := u.settings
	settings.Privileges = slices.Clone(settings.Privileges)
	for _, privilege := range privileges {
		if !slices.Contains(settings.Privileges, privilege) {
			settings.Privileges = append(settings.Privileges, privilege)
		}
	}
	if len(settings.Privileges) == len(u.settings.Privileges) {
		return nil
	}
	return u.Services.Restore(u.name, settings)
}

// commit ends an upgrade whose program works.
func (u *upgrade) commit(ctx context.Context) error {
	return u.Files.Rename(ctx, u.rollbackFile(), beside(u.program, "previous"))
}

// finishInterrupted brings an upgrade to its end that was cut off. What the caller wants
// comes after that.
func (u *upgrade) finishInterrupted(ctx context.Context) error {
	interrupted, err := u.Files.Exists(u.rollbackFile())
	if err != nil || !interrupted {
		return err
	}
	u.Log.Info("an earlier upgrade was cut off; finishing it first", "program", u.program)
	same, err := u.Files.Same(u.rollbackFile(), u.program)
	if err != nil {
		return err
	}
	if same { // the program was not exchanged, or is put back already
		if err := u.start(ctx, u.name, nil); err != nil {
			// It must not keep the node from getting a better one.
			u.Log.Warn("the program before the upgrade doesn't work either", "err", err)
		}
		return u.Files.Remove(u.rollbackFile())
	}
	report, err := u.Programs.Check(ctx, u.program, u.args)
	if err == nil {
		err = u.start(ctx, u.name, report.Endpoints)
	}
	if err != nil {
		u.Log.Warn("the program of the interrupted upgrade doesn't work; putting the one before back", "err", err)
		return u.putBack(ctx)
	}
	return u.commit(ctx)
}

// rollBack undoes an upgrade that failed with cause, and returns the error to report.
func (u *upgrade) rollBack(ctx context.Context, cause error) error {
	u.Log.Warn("the upgrade has failed; putting the program before back", "err", cause)
	err := &csiproxy.Error{Op: "upgrade service", Object: u.name, Kind: csiproxy.ErrFailedPrecondition, Err: cause,
		Detail: "the upgrade was rolled back; the program before runs"}
	problem := u.putBack(ctx)
	if problem == nil {
		problem = u.Files.Remove(beside(u.program, "new"))
	}
	if problem != nil {
		err.Kind = csiproxy.ErrInternal
		err.Detail = fmt.Sprintf("the upgrade has failed, and so has the way back (%v). The program before is %s. Run "+
			"the command again", problem, u.rollbackFile())
	}
	return err
}

// putBack puts the program before in place and starts it.
func (u *upgrade) putBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	return again(ctx, func() error {
		same, err := u.Files.Same(u.rollbackFile(), u.program)
		if err != nil {
			return err
		}
		if !same {
			if err := u.stop(ctx, u.name, u.program); err != nil {
				return err
			}
			if err := u.Files.Copy(ctx, u.rollbackFile(), u.program); err != nil {
				return err
			}
		}
		if err := u.start(ctx, u.name, nil); err != nil {
			return err
		}
		return u.Files.Remove(u.rollbackFile())
	})
}

// Pending reports whether an upgrade of the service with a command line was cut off.
func (d *Deployer) Pending(commandLine string) (bool, error) {
	program, _, err := d.Services.SplitCommandLine(commandLine)
	if err != nil {
		return false, err
	}
	return d.Files.Exists(beside(program, "rollback"))
}
