// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// timeout is for callers without a deadline. Windows itself gives a service 30
// seconds to begin, and then as long as it says that it needs.
const timeout = 2 * time.Minute

// Start starts a service, if it isn't running, and waits until it runs. One that
// stops again on the way gives csiproxy.ErrFailedPrecondition, with the Windows error
// that it ended with, and so does a paused one. Without a deadline in ctx, a service
// that takes too long gives csiproxy.ErrUnavailable. A service that Start has started is
// logged.
//
// Source: https://learn.microsoft.com/windows/win32/services/starting-a-service
func Start(ctx context.Context, m win.Services, log *slog.Logger, name string) error {
	started := false
	return poll(ctx, "start", func(ctx context.Context) (bool, error) {
		s, err := m.QueryService(ctx, name)
		if err != nil {
			return false, err
		}
		if s.State == win.ServiceRunning {
			if started {
				log.Info("service started", "service", name)
			}
			return true, nil
		}
		if s.State == win.ServicePaused {
			return false, failed("the service is paused", nil)
		}
		if s.State == win.ServiceStopped && started {
			return false, endedAgain(s)
		}
		if s.State != win.ServiceStopped {
			return false, nil // on its way, in whatever direction
		}
		err = m.StartService(ctx, name)
		if errors.Is(err, winerr.ErrorServiceAlreadyRunning) { // started by somebody else
			err = nil
		}
		started = err == nil
		return false, err
	})
}

// endedAgain is the error of a service that was started and has stopped.
func endedAgain(s win.Service) error {
	switch s.ExitCode {
	case 0:
		return failed("the service stopped again at once", nil)
	case winerr.ErrorServiceSpecificError:
		return failed(fmt.Sprintf("the service stopped again at once, with its own error %d", s.SpecificExitCode), s.ExitCode)
	}
	return failed("the service stopped again at once", s.ExitCode)
}

func failed(detail string, err error) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: detail, Err: err}
}

// Stop stops a service, if it isn't stopped, and waits until it is. Running services
// that depend on it are stopped first with force, one after the other; without, they
// give csiproxy.ErrFailedPrecondition, which names them. A service that can't be
// stopped gives csiproxy.ErrFailedPrecondition. Without a deadline in ctx, one that
// takes too long gives csiproxy.ErrUnavailable. Each service that Stop has stopped is
// logged.
//
// Source: https://learn.microsoft.com/windows/win32/services/stopping-a-service
func Stop(ctx context.Context, m win.Services, log *slog.Logger, name string, force bool) error {
	// A dependent may be started while others are being stopped.
	const rounds = 3
	for round := 1; ; round++ {
		err := stop(ctx, m, log, name)
		if !errors.Is(err, winerr.ErrorDependentServicesRunning) {
			return err
		}
		dependents, listErr := m.ActiveDependentServices(ctx, name)
		if listErr != nil {
			return listErr
		}
		if !force || round == rounds {
			names := strings.Join(dependents, ", ")
			return failed("these services depend on it and are running: "+cmp.Or(names, "some whose names aren't told"), err)
		}
		for _, dependent := range dependents {
			err := stop(ctx, m, log, dependent)
			gone := errors.Is(err, winerr.ErrorServiceDoesNotExist)
			again := errors.Is(err, winerr.ErrorDependentServicesRunning) // the next round sees to it
			if err != nil && !gone && !again {
				return &csiproxy.Error{Object: "dependent service " + dependent, Err: err}
			}
		}
	}
}

const (
	// askAgain is how long a service may go on running after it was asked to stop. After
	// that, somebody has probably started it again.
	askAgain = 5 * time.Second
	// maxAsked bounds how often a service is asked.
	maxAsked = 3
)

// stop stops a service that no running one depends on.
func stop(ctx context.Context, m win.Services, log *slog.Logger, name string) error {
	asked, last := 0, time.Time{}
	return poll(ctx, "stop", func(ctx context.Context) (bool, error) {
		s, err := m.QueryService(ctx, name)
		if err != nil || s.State == win.ServiceStopped {
			if err == nil && asked > 0 {
				log.Info("service stopped", "service", name)
			}
			return err == nil, err
		}
		if s.State == win.ServiceStopPending || asked == maxAsked || asked > 0 && time.Since(last) < askAgain {
			return false, nil
		}
		err = m.StopService(ctx, name)
		if errors.Is(err, winerr.ErrorServiceNotActive) { // it has stopped meanwhile
			return true, nil
		}
		if errors.Is(err, winerr.ErrorServiceCannotAcceptCtrl) { // it is about to change its state
			return false, nil
		}
		asked, last = asked+1, time.Now()
		return false, err
	})
}

// poll calls check until it says that the service has done what it was asked for.
func poll(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	limit := timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline) + time.Second // ctx ends first
	}
	done, err := operation.Poll(ctx, operation.Polling{Timeout: limit}, func() (bool, error) { return check(ctx) })
	if err == nil && !done {
		err = csiproxy.Errorf(csiproxy.ErrUnavailable, "the service took longer than %v to %s", timeout, what)
	}
	return err
}
