// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/serve/server/exporter"
)

// daemons are the servers of one node: the server of the published endpoints, or else of the administrators'
// endpoints, and a server for each driver with its own endpoints. Limits of connections and calls count for each server
// apart, so that one driver can't use up what another needs.
type daemons []servedDriver

type servedDriver struct {
	driver string // "" for the published endpoints
	*daemon.Daemon
}

// newDaemons makes the listeners of all endpoints, or of none if it fails.
func newDaemons(ctx context.Context, o options, log *slog.Logger, node *openedNode, claimed *pipe.Claimed,
	metrics *exporter.Exporter) (all daemons, err error) {
	add := func(claimed *pipe.Claimed, c daemon.Config) {
		if err != nil {
			return
		}
		c.Log = log
		if c.Driver != "" {
			c.Log = log.With("driver", c.Driver)
		}
		c.Held = func(ctx context.Context, name string) error {
			return pipe.Held(ctx, pipe.Address(o.endpointDir, name))
		}
		c.Listen = func(name string) (net.Listener, error) { return claimed.Listen(ctx, name) }
		c.Address = func(name string) string { return pipe.Address(o.endpointDir, name) }
		c.Count = metrics.CountCalls(c.Driver)
		c.GracePeriod = o.gracePeriod
		var added *daemon.Daemon
		if added, err = daemon.New(c); err == nil {
			all = append(all, servedDriver{c.Driver, added})
		}
	}
	ofNode := daemon.Config{Operations: node.operations, Control: node.control, MaxCalls: o.maxCalls}
	if o.servesAll() {
		add(claimed, ofNode)
	} else {
		ofNode.Driver = admin.Driver
		add(claimed.Administrators(), ofNode)
	}
	for _, driver := range o.drivers.Drivers {
		add(claimed.GuardedBy(driver.PipeSecurity), daemon.Config{Driver: driver.Name, MaxCalls: driver.MaxCalls,
			Operations: driver.operations(node.ofDriver(driver.Name))})
	}
	if err != nil {
		stopped, stop := context.WithCancel(ctx)
		stop()
		return nil, errors.Join(err, all.serve(stopped, log))
	}
	return all, nil
}

// serve serves all endpoints until ctx is done, or one of the node's own ends with an error, which ends all. The end of a
// driver's endpoints is logged: the driver may have caused it.
func (all daemons) serve(ctx context.Context, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(all))
	var serving sync.WaitGroup
	for i, served := range all {
		serving.Go(func() {
			err := served.Serve(ctx)
			if err != nil && served.driver != "" && served.driver != admin.Driver {
				log.Error("the driver's endpoints have ended; restart the daemon to serve them again", "driver", served.driver, "err", err)
				return
			}
			errs[i] = err
			stop()
		})
	}
	serving.Wait()
	return errors.Join(errs...)
}

// drain refuses new calls at all endpoints, and waits for the running ones.
func (all daemons) drain(ctx context.Context, lasts time.Duration) (running int) {
	counts := make([]int, len(all))
	var draining sync.WaitGroup
	for i, served := range all {
		draining.Go(func() { counts[i] = served.Drain(ctx, lasts) })
	}
	draining.Wait()
	for _, n := range counts {
		running += n
	}
	return running
}

// readiness is exporter.Readiness: the daemon is ready if all drivers' calls are taken.
func (all daemons) readiness() (missing string, err error) {
	for _, served := range all {
		one, err := served.Readiness()
		if err != nil && served.driver != "" {
			err = fmt.Errorf("driver %s: %w", served.driver, err)
		}
		if err != nil {
			return "", err
		}
		if one != "" {
			missing = one
		}
	}
	return missing, nil
}

func (all daemons) connections() (count map[string]int) {
	count = make(map[string]int)
	for _, served := range all {
		count[served.driver] = served.Connections()
	}
	return count
}

func (all daemons) calls() map[string]server.Calls {
	calls := make(map[string]server.Calls)
	for _, served := range all {
		calls[served.driver] = served.Calls()
	}
	return calls
}

// served returns the versions that are served somewhere, by group, the newest first, and the endpoints that
// aren't, since another process has one of them.
func (all daemons) served() (versions map[string][]string, missing []string) {
	versions = make(map[string][]string)
	for _, served := range all {
		driverVersions, driverMissing := served.Served()
		maps.Copy(versions, driverVersions)
		missing = append(missing, driverMissing...)
	}
	return versions, missing
}

// endpoints returns the names of all endpoints that the options have served.
func (o options) endpoints() (names []string, _ error) {
	byDriver := make(map[string]rpc.Operations)
	if o.servesAll() {
		byDriver[""] = rpc.Operations(uncalled)
	} else {
		byDriver[admin.Driver] = rpc.Operations(uncalled)
	}
	for _, driver := range o.drivers.Drivers {
		byDriver[driver.Name] = driver.operations(uncalled)
	}
	for driver, operations := range byDriver {
		own, err := endpointsOf(driver, operations)
		if err != nil {
			return nil, err
		}
		names = append(names, own...)
	}
	slices.Sort(names)
	return names, nil
}

// endpointsOf returns the names of the endpoints that a driver has with its operations.
func endpointsOf(driver string, operations rpc.Operations) (names []string, _ error) {
	services, err := rpc.Services(operations)
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		names = append(names, api.DriverEndpointName(driver, s.Group, s.Version))
	}
	slices.Sort(names)
	return names, nil
}
