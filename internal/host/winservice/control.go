// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
)

// Manager has the calls to Windows of which Start, Stop, Uninstall and Release are made.
type Manager interface {
	// Query returns the state of a service: csiproxy.ErrNotFound if there is none.
	Query(name string) (Status, error)
	// StartService tells Windows to start a service. One that runs is no error.
	StartService(name string) error
	// ControlService sends a control to a service. One that is stopped, or takes no control yet, is no error.
	// ErrDependents: Windows has not passed on ControlStop.
	ControlService(name string, control Control) error
	// Dependents returns the services that depend on one, with active only those that aren't stopped.
	Dependents(name string, active bool) ([]string, error)
	// DeleteService removes a stopped service, which exists until the last handle to it is closed.
	DeleteService(name string) error
	// OpenProcess opens a process; nil if there is none with this id.
	OpenProcess(id uint32) (Process, error)
	// Holder returns the id of the process that serves an endpoint, 0 if none does.
	Holder(ctx context.Context, endpoint string) (id uint32, err error)
}

// Process is an open process.
type Process interface {
	Ended() (bool, error)
	Terminate() error
	Image() (program string, err error)
	Close()
}

// Control is a control of a service.
type Control uint32

const (
	// ControlStop stops a service.
	ControlStop Control = 1
	// ControlLeave tells our daemon to end as at ControlStop. The numbers from 128 on are a program's own;
	// nssm takes 128 for itself. Windows passes them on whatever depends on the service.
	//
	// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/nf-winsvc-controlservice
	ControlLeave Control = 200
)

var (
	// ErrHeld is that another program than those of the service has the pipes.
	ErrHeld = errors.New("another program has the pipes")
	// ErrDependents is that services which depend on one are running.
	ErrDependents = errors.New("services that depend on it are running")
)

const (
	// pollInterval is how often the manager is asked about a change. Not all versions of Windows
	// announce these changes.
	pollInterval = 100 * time.Millisecond
	// lingerLimit is how long a process may be there after its service has stopped, or was told to leave.
	// Ours needs a second at most; the published daemon's never ends.
	lingerLimit = 5 * time.Second
)

// Start starts the service, and returns when it runs, which the daemon reports when it
// serves. If it ends instead, the error has its exit code.
func Start(ctx context.Context, m Manager, name string) error {
	started := false
	for {
		status, err := m.Query(name)
		if err != nil {
			return err
		}
		switch {
		case status.State == Running:
			return nil
		case status.State == Stopped && started:
			return &csiproxy.Error{Op: "start service", Object: name, Kind: csiproxy.ErrUnavailable,
				Detail: fmt.Sprintf("it has ended with exit code %d (%d); the reason is in the daemon's log and in the Event Log",
					status.ExitCode, status.SpecificExitCode)}
		case status.State == Stopped:
			if err := m.StartService(name); err != nil {
				return err
			}
			started = true
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("the service %s, in state %q, does not run yet: %w", name, status.State, err)
		}
	}
}

// Stop stops the service, and returns when its process has ended, so that its program can be replaced. A
// service that doesn't exist is stopped. A process that is there five seconds after the service has
// reported that it is stopped, as the published daemon's is, is ended.
//
// Windows refuses to stop a service while others that depend on it run, as kubelet does on AKS. Without leave
// that is ErrDependents. With leave, the service ends without a stop, and those others run on: Windows looks
// at dependencies only when it starts a service or passes on a stop. Our daemon follows ControlLeave; the
// process of any other is ended. Nothing has to remember which services must be started again.
//
// https://learn.microsoft.com/en-us/windows/win32/services/stopping-a-service
func Stop(ctx context.Context, m Manager, log *slog.Logger, name string, leave bool) error {
	var process Process // the service's
	var opened uint32   // its id
	defer func() {
		if process != nil {
			process.Close()
		}
	}()
	var lingers time.Time // since when the service was told all that can be told
	for {
		status, err := m.Query(name)
		if errors.Is(err, csiproxy.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if status.ProcessID != 0 && status.ProcessID != opened {
			if process != nil {
				process.Close()
			}
			if process, err = m.OpenProcess(status.ProcessID); err != nil {
				return err
			}
			opened, lingers = status.ProcessID, time.Time{}
		}
		ended := true
		if process != nil {
			if ended, err = process.Ended(); err != nil {
				return err
			}
		}
		switch {
		case status.State == Stopped && ended:
			return nil
		case status.State == StopPending:
			lingers = time.Time{}
		case !lingers.IsZero():
			if !ended && time.Since(lingers) > lingerLimit {
				if err := process.Terminate(); err != nil {
					return err
				}
			}
		case status.State == Stopped:
			lingers = time.Now()
		default:
			err := m.ControlService(name, ControlStop)
			if leave && errors.Is(err, ErrDependents) {
				err = m.ControlService(name, ControlLeave)
				log.Info("ending the service without its dependents, which run on", "service", name, "err", err)
				lingers, err = time.Now(), nil // one that doesn't know the control is ended
			}
			if err != nil {
				return err
			}
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("the service %s, in state %q, has not ended: %w", name, status.State, err)
		}
	}
}

// Uninstall stops the service, waits until its process has ended, and removes it. It is no error if the
// service doesn't exist. ErrDependents: another service depends on it, and could never start again.
func Uninstall(ctx context.Context, m Manager, log *slog.Logger, name string) error {
	dependents, err := m.Dependents(name, false)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(dependents) > 0:
		return &csiproxy.Error{Op: "uninstall service", Object: name, Kind: csiproxy.ErrFailedPrecondition, Err: ErrDependents,
			Detail: fmt.Sprintf("%s could never start again, since it depends on this service; bring the daemon before back with "+
				"--restore, or end the dependency with sc.exe config %s depend= LIST", strings.Join(dependents, ", "), dependents[0])}
	}
	if err := Stop(ctx, m, log, name, false); err != nil {
		return err
	}
	return m.DeleteService(name)
}

// Release ends the processes of programs that hold endpoints of the API, and returns when no process
// holds one. If another program holds one, the error is [ErrHeld] and csiproxy.ErrFailedPrecondition.
func Release(ctx context.Context, m Manager, programs []string) error {
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			if err := release(ctx, m, api.EndpointName(group, version), programs); err != nil {
				return err
			}
		}
	}
	return nil
}

func release(ctx context.Context, m Manager, endpoint string, programs []string) error {
	for {
		id, err := m.Holder(ctx, endpoint)
		if err != nil || id == 0 {
			return err
		}
		if err := endProgram(ctx, m, id, endpoint, programs); err != nil {
			return err
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("process %d still holds %s: %w", id, endpoint, err)
		}
	}
}

// endProgram ends a process that holds an endpoint, if it is one of programs.
func endProgram(ctx context.Context, m Manager, id uint32, endpoint string, programs []string) error {
	process, err := m.OpenProcess(id)
	if err != nil || process == nil {
		return err
	}
	defer process.Close()
	image, err := process.Image()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(programs, func(program string) bool { return samePath(program, image) }) {
		return &csiproxy.Error{Op: "release the pipes", Kind: csiproxy.ErrFailedPrecondition, Err: ErrHeld,
			Detail: fmt.Sprintf("%s is held by process %d, %s; end that process first", endpoint, id, image)}
	}
	if err := process.Terminate(); err != nil {
		return err
	}
	for {
		if ended, err := process.Ended(); err != nil || ended {
			return err
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("process %d, %s, does not end: %w", id, image, err)
		}
	}
}

// samePath reports whether two paths are those of one file, also if one of them has short
// names or goes through a link.
func samePath(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	first, err1 := os.Stat(a)
	second, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

// wait waits for pollInterval. If ctx ends first, the error is its cause.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollInterval):
		return nil
	}
}
