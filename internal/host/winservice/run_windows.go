// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

const (
	// progressInterval is how often progress of a start or stop is reported to the
	// manager. It must be shorter than the wait hints, which are the timeouts.
	progressInterval = 2 * time.Second
	// minTimeout is the shortest wait hint.
	minTimeout = 2 * progressInterval
	// dispatcherTimeout is how long the dispatcher may take to return after the
	// service has ended. A control that arrives at that moment can block it. After a
	// failure that isn't reported to the manager, it never returns.
	dispatcherTimeout = time.Second
)

func runManaged(run func(ctx context.Context, ready func()) error, options Options) error {
	return newHandler(run, options, restartsCrashesOnly, func(name string, atLeast time.Duration) error {
		return errors.Join(extendPreshutdown(name, atLeast), addRecovery(name))
	}).dispatch()
}

// handler handles the manager's controls.
type handler struct {
	run     func(ctx context.Context, ready func()) error
	options Options
	crashes func(name string) (bool, error)              // restartsCrashesOnly
	repair  func(name string, stops time.Duration) error // of settings that the service was made without

	ended chan error // gets what Run returns
}

func newHandler(run func(ctx context.Context, ready func()) error, options Options,
	crashes func(name string) (bool, error),
	repair func(name string, stops time.Duration) error) *handler {
	return &handler{run: run, options: options, crashes: crashes, repair: repair, ended: make(chan error, 1)}
}

// dispatch is Run.
func (h *handler) dispatch() error {
	dispatched := make(chan error, 1)
	// The manager ignores the name, since the service has a process of its own.
	go func() { dispatched <- svc.Run("", h) }()

	select {
	case err := <-dispatched:
		select {
		case ended := <-h.ended:
			return ended
		default:
		}
		if errors.Is(err, windows.ERROR_FAILED_SERVICE_CONTROLLER_CONNECT) {
			return fmt.Errorf("run as a service: %w (%w)", ErrNotManaged, err)
		}
		if err == nil {
			err = errors.New("the service manager has ended the service")
		}
		return fmt.Errorf("run as a service: %w", err)
	case err := <-h.ended:
		select {
		case <-dispatched:
		case <-time.After(dispatcherTimeout):
		}
		return err
	}
}

// stopCauses are the causes of the context's end, by the control that ends it.
var stopCauses = map[svc.Cmd]error{
	svc.Stop:        errors.New("the service manager stops the service"),
	svc.PreShutdown: errors.New("the system is about to shut down"),
	svc.Shutdown:    errors.New("the system is shutting down"),

	svc.Cmd(ControlLeave): errors.New("csi-proxyctl ends the service without those that depend on it"),
}

var (
	errNotReady = errors.New("the service was not ready")
	errNotEnded = errors.New("the stopped service did not end")
)

// Execute runs the service from the manager's order to start until it has ended.
//
// https://learn.microsoft.com/en-us/windows/win32/services/service-servicemain-function
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_status
func (h *handler) Execute(args []string, controls <-chan svc.ChangeRequest,
	statuses chan<- svc.Status) (specific bool, exitCode uint32) {
	name := args[0] // the manager's, which the service was installed under
	events := openEvents(name, h.options.Log)
	defer events.close()
	events.warn(h.options.Warning)

	asked, err := h.execute(name, events, controls, statuses)
	if err != nil {
		events.failed(err)
	} else {
		events.info(eventStopped, "The service has stopped.")
	}
	if err == nil || asked {
		// If an error were reported, the manager would restart a service that it was
		// asked to stop.
		h.ended <- err
		return false, 0
	}
	silent, queryErr := h.crashes(name)
	if queryErr != nil {
		h.options.Log.Warn("the recovery actions of the service can't be read", "service", name, "err", queryErr)
	}
	h.ended <- err
	if silent {
		select {} // until Run's caller ends the process
	}
	return true, ExitFailed
}

// execute runs the service and reports whether it ends because the manager asked
// for it.
func (h *handler) execute(name string, events *events, controls <-chan svc.ChangeRequest,
	statuses chan<- svc.Status) (asked bool, err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ready := make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- h.run(ctx, func() {
			select {
			case ready <- struct{}{}:
			default:
			}
		})
	}()

	progress := time.NewTicker(progressInterval)
	defer progress.Stop()
	limit := time.NewTimer(h.options.StartTimeout)
	defer limit.Stop()

	status := pending(svc.StartPending, h.options.StartTimeout)
	statuses <- status
	var failed error
	stop := func(cause error) {
		status = pending(svc.StopPending, h.options.StopTimeout)
		statuses <- status
		limit.Reset(h.options.StopTimeout)
		cancel(cause)
	}
	for {
		select {
		case err := <-ended:
			return asked, errors.Join(failed, err)
		case <-ready:
			if status.State == svc.StartPending {
				limit.Stop()
				status = svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown | svc.AcceptPreShutdown}
				statuses <- status
				events.info(eventStarted, "The service has started.")
				// In a goroutine, since the manager may be waiting for an answer of this one.
				go h.repairSettings(name)
			}
		case <-progress.C:
			if status.State != svc.Running {
				status.CheckPoint++
				statuses <- status
			}
		case <-limit.C:
			if status.State == svc.StopPending {
				return asked, errors.Join(failed, fmt.Errorf("%w within %v", errNotEnded, h.options.StopTimeout))
			}
			failed = fmt.Errorf("%w within %v", errNotReady, h.options.StartTimeout)
			stop(failed)
		case control := <-controls:
			cause, stops := stopCauses[control.Cmd]
			switch {
			case stops && status.State != svc.StopPending:
				asked = true
				stop(cause)
			case control.Cmd == svc.Interrogate:
				statuses <- status
			}
		}
	}
}

// repairSettings makes Windows wait long enough for this service at a shutdown, and start it again
// after a failure.
func (h *handler) repairSettings(name string) {
	if err := h.repair(name, h.options.StopTimeout); err != nil {
		h.options.Log.Warn("at a shutdown, Windows may not wait until the service has ended, nor start it again after "+
			"a failure; to fix that, run csi-proxyctl service install",
			"service", name, "needed", h.options.StopTimeout, "err", err)
	}
}

func pending(state svc.State, timeout time.Duration) svc.Status {
	return svc.Status{State: state, CheckPoint: 1, WaitHint: uint32(max(timeout, minTimeout).Milliseconds())}
}

// extendPreshutdown makes Windows wait for the service at a shutdown at least as long as
// the service may take to stop. If a service was made without such a time, as by sc.exe,
// Windows waits ten seconds since build 15063, and sc.exe has no command to change that.
// Wait hints don't extend the time. It is raised and never lowered: for a shorter time,
// give the daemon a shorter time to stop. The right to change the service, which
// LocalSystem has as a member of the Administrators, is requested only if needed.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_preshutdown_info
func extendPreshutdown(name string, atLeast time.Duration) error {
	s, err := open(name, windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	current, err := preshutdown(s)
	if err != nil || current >= atLeast {
		return err
	}
	change, err := open(name, windows.SERVICE_CHANGE_CONFIG)
	if err != nil {
		return err
	}
	defer change.Close() // what is done is done
	return setPreshutdown(change, atLeast)
}

// addRecovery makes Windows start the service again after any failure, if it has no recovery actions
// at all: one that sc.exe create or WMCO made has none, and would be gone until somebody starts it.
// Actions that somebody has chosen stay, also the choice to do nothing.
func addRecovery(name string) error {
	var current Settings
	s, err := open(name, windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	err = queryRecovery(s, &current)
	if errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return nil // this Windows keeps none
	}
	if err != nil || len(current.Recovery.Actions) > 0 {
		return err
	}
	change, err := open(name, installRights)
	if err != nil {
		return err
	}
	defer change.Close() // what is done is done
	return setRecovery(change, restarts)
}

// preshutdown returns how long Windows waits for the service at a shutdown.
func preshutdown(s *mgr.Service) (time.Duration, error) {
	var milliseconds, needed uint32 // SERVICE_PRESHUTDOWN_INFO
	if err := windows.QueryServiceConfig2(s.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO,
		(*byte)(unsafe.Pointer(&milliseconds)), uint32(unsafe.Sizeof(milliseconds)), &needed); err != nil {
		return 0, fmt.Errorf("query the wait at a shutdown: %w", err)
	}
	return time.Duration(milliseconds) * time.Millisecond, nil
}

func setPreshutdown(s *mgr.Service, wait time.Duration) error {
	milliseconds := uint32(min(wait.Milliseconds(), math.MaxUint32)) // SERVICE_PRESHUTDOWN_INFO
	return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO,
		(*byte)(unsafe.Pointer(&milliseconds)))
}

// restartsCrashesOnly reports whether the manager takes recovery actions only if the
// process ends without having reported that the service has stopped.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_failure_actions_flag
func restartsCrashesOnly(name string) (bool, error) {
	s, err := open(name, windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return false, err
	}
	defer s.Close() // nothing depends on it
	actions, err := s.RecoveryActions()
	if err != nil {
		return false, fmt.Errorf("query recovery actions: %w", err)
	}
	if !slices.ContainsFunc(actions, func(a mgr.RecoveryAction) bool { return a.Type != mgr.NoAction }) {
		return false, nil
	}
	always, err := s.RecoveryActionsOnNonCrashFailures()
	if err != nil {
		return false, fmt.Errorf("query when recovery actions are taken: %w", err)
	}
	return !always, nil
}
