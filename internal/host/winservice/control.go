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

// Manager makes the calls to Windows for Start, Stop, Uninstall and Release.
type Manager interface {
	// Query returns the state of a service. A missing service is csiproxy.ErrNotFound.
	Query(name string) (Status, error)
	// StartService tells Windows to start a service. A running service is no error.
	StartService(name string) error
	// ControlService sends a control. A service that is stopped or starting ignores the control. ErrDependents
	// says that Windows has withheld ControlStop.
	ControlService(name string, control Control) error
	// Dependents returns the dependents of a service; with active, the running dependents.
	Dependents(name string, active bool) ([]string, error)
	// DeleteService removes a stopped service. The service exists until its last handle is closed. A missing
	// service is no error.
	DeleteService(name string) error
	// OpenProcess opens a process, nil for a process that has ended.
	OpenProcess(id uint32) (Process, error)
	// Holder returns the id of the process that serves an endpoint, 0 for a free endpoint.
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
	// ControlLeave tells our daemon to end as at ControlStop. Programs define the controls from 128 on, such
	// as nssm 128. Windows passes these on in spite of running dependents.
	//
	// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/nf-winsvc-controlservice
	ControlLeave Control = 200
)

var (
	// ErrHeld says that a foreign program has the pipes.
	ErrHeld = errors.New("another program has the pipes")
	// ErrDependents says that dependents of a service keep the service from being stopped or removed.
	ErrDependents = errors.New("other services depend on it")
)

const (
	// pollInterval is how often Windows is asked about a change. Some versions of Windows announce no changes.
	pollInterval = 100 * time.Millisecond
	// lingerLimit is how long a process may exist after the stop of its service, or after ControlLeave. Our
	// daemon needs a second at most; the published daemon never ends.
	lingerLimit = 5 * time.Second
)

// Start starts the service, and returns when the daemon serves. If the daemon ends instead, the error has the
// exit code.
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

// Stop stops the service, and returns when the process has ended, so that the program can be replaced. A
// missing service counts as stopped. A process that lingers five seconds after the stop, as the published
// daemon does, is ended.
//
// Windows refuses to stop a service while dependents run, such as kubelet on AKS. Without leave, Stop returns
// ErrDependents. With leave, the service ends without a stop control, and the dependents run on: Windows checks
// dependencies only when a service is started or told to stop. Our daemon obeys ControlLeave; the process of
// any other daemon is ended.
//
// https://learn.microsoft.com/en-us/windows/win32/services/stopping-a-service
func Stop(ctx context.Context, m Manager, log *slog.Logger, name string, leave bool) error {
	var process Process // of the service
	var opened uint32   // the id of process
	defer func() {
		if process != nil {
			process.Close()
		}
	}()
	var lingers time.Time // when the last control was sent, or the service stopped
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
				log.Info("ending the service without its dependents, which run on", "service", name)
				if err = m.ControlService(name, ControlLeave); err != nil {
					log.Info("the daemon can't be asked to end, so its process is ended", "service", name, "err", err)
				}
				lingers, err = time.Now(), nil // the process of a daemon without this control is ended
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

// Uninstall stops the service, waits for the end of the process, and removes the service. A missing service
// is no error. A service with dependents, which could never start again, is ErrDependents.
func Uninstall(ctx context.Context, m Manager, log *slog.Logger, name string) error {
	dependents, err := m.Dependents(name, false)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		return m.DeleteService(name) // and what a run that was cut off has left
	case err != nil:
		return err
	case len(dependents) > 0:
		// Windows lists dependents of dependents, too. The last one starts first, so it depends on the service itself.
		//
		// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/nf-winsvc-enumdependentservicesw
		// https://learn.microsoft.com/en-us/windows-server/administration/windows-commands/sc-config
		direct := dependents[len(dependents)-1]
		return &csiproxy.Error{Op: "uninstall service", Object: name, Kind: csiproxy.ErrFailedPrecondition, Err: ErrDependents,
			Detail: fmt.Sprintf("nothing was changed: %[1]s could never start again. End the dependency of %[2]s on this node, and "+
				"repeat the command: sc.exe config %[2]s depend= / removes all its dependencies; to keep those on A and B, "+
				"depend= A/B (sc.exe qc %[2]s lists them)", strings.Join(dependents, ", "), direct)}
	}
	if err := Stop(ctx, m, log, name, false); err != nil {
		return err
	}
	return m.DeleteService(name)
}

// Release ends the processes of programs that hold endpoints of the API, and returns when all endpoints are
// free. An endpoint of a foreign program is [ErrHeld] and csiproxy.ErrFailedPrecondition.
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

// endProgram ends a process that holds an endpoint, if the process runs one of programs.
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

// samePath reports whether two paths lead to one file, also by short names or links.
func samePath(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	first, err1 := os.Stat(a)
	second, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

// wait waits for pollInterval, or returns the cause of the end of ctx.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollInterval):
		return nil
	}
}
