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

// timeout is for callers without a deadline. Windows itself gives a service 30 seconds to begin,
// and then as long as the service asks for.
const timeout = 2 * time.Minute

// Start starts a service, if stopped, and waits until the service runs. A paused service gives
// csiproxy.ErrFailedPrecondition, and so does a service that stops again on the way, with its
// Windows exit code as error. Without a deadline in ctx, a slow service gives
// csiproxy.ErrUnavailable. Start logs each service that it starts.
//
// Source: https://learn.microsoft.com/windows/win32/services/starting-a-service
func Start(ctx context.Context, m win.Services, log *slog.Logger, name string) error {
	started := false
	for polling := poll(ctx); polling.Next(ctx); {
		s, err := m.QueryService(ctx, name)
		if err != nil {
			return err
		}
		if s.State == win.ServiceRunning {
			if started {
				log.Info("service started", "service", name)
			}
			return nil
		}
		if s.State == win.ServicePaused {
			return failed("the service is paused", nil)
		}
		if s.State == win.ServiceStopped && started {
			return endedAgain(s)
		}
		if s.State != win.ServiceStopped {
			continue // starting or stopping
		}
		started = true // or by somebody else
		if err := m.StartService(ctx, name); err != nil && !errors.Is(err, winerr.ErrorServiceAlreadyRunning) {
			return err
		}
	}
	return tookTooLong(ctx, "start")
}

// endedAgain is the error of a service that stopped after its start.
func endedAgain(s win.Service) error {
	switch s.ExitCode {
	case 0:
		return failed("the service stopped right after its start", nil)
	case winerr.ErrorServiceSpecificError:
		return failed(fmt.Sprintf("the service stopped right after its start, with its own error %d", s.SpecificExitCode), s.ExitCode)
	}
	return failed("the service stopped right after its start", s.ExitCode)
}

func failed(detail string, err error) error {
	return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: detail, Err: err}
}

// Stop stops a running service, and waits until the service is stopped. With force, running
// dependent services are stopped first, one after the other; without force, they give
// csiproxy.ErrFailedPrecondition, with their names. A service that refuses to stop gives
// csiproxy.ErrFailedPrecondition. Without a deadline in ctx, a slow service gives
// csiproxy.ErrUnavailable. Stop logs each service that it stops.
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
			return failed("these services depend on it and are running: "+cmp.Or(names, "services of others"), err)
		}
		for _, dependent := range dependents {
			err := stop(ctx, m, log, dependent)
			if winerr.IsAny(err, winerr.ErrorServiceDoesNotExist, winerr.ErrorDependentServicesRunning) {
				continue // the service has gone, or is left to the next round
			}
			if err != nil {
				return &csiproxy.Error{Object: "dependent service " + dependent, Err: err}
			}
		}
	}
}

const (
	// askAgain is how long a service may go on running after a request to stop. After askAgain,
	// somebody has probably started the service again.
	askAgain = 5 * time.Second
	// maxAsked limits the requests to stop a service.
	maxAsked = 3
)

// stop stops a service without running dependents.
func stop(ctx context.Context, m win.Services, log *slog.Logger, name string) error {
	asked, last := 0, time.Time{}
	for polling := poll(ctx); polling.Next(ctx); {
		s, err := m.QueryService(ctx, name)
		if err != nil || s.State == win.ServiceStopped {
			if err == nil && asked > 0 {
				log.Info("service stopped", "service", name)
			}
			return err
		}
		if s.State == win.ServiceStopPending || asked == maxAsked {
			continue
		}
		if asked > 0 && time.Since(last) < askAgain {
			continue
		}
		err = m.StopService(ctx, name)
		if errors.Is(err, winerr.ErrorServiceNotActive) { // the service has stopped meanwhile
			return nil
		}
		if errors.Is(err, winerr.ErrorServiceCannotAcceptCtrl) { // the service is about to change its state
			continue
		}
		if err != nil {
			return err
		}
		asked, last = asked+1, time.Now()
	}
	return tookTooLong(ctx, "stop")
}

// poll returns the loop that waits for the requested state of a service.
func poll(ctx context.Context) *operation.Polling {
	limit := timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline) + time.Second // ctx ends first
	}
	return &operation.Polling{Timeout: limit}
}

// tookTooLong returns the error of a service that is not in the requested state after poll.
func tookTooLong(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the service took longer than %v to %s", timeout, what)
}
