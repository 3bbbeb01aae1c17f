// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package daemon puts the daemon together: the operations of a node, served in every published
// version, each at an endpoint of its own. The command csi-proxy and package simnode use this
// package.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
)

// Config configures a Daemon.
type Config struct {
	// Operations are the operations of the node, or of a driver. A group without operations is left
	// out.
	Operations rpc.Operations
	// Driver is the owner of the endpoints; empty for the published names.
	Driver string
	// Control are services beside the API, by the names of their endpoints, for controlling a
	// simulated node.
	Control map[string]server.Service
	// Listen makes the listener of the endpoint with a name.
	Listen func(name string) (net.Listener, error)
	// Held returns an error naming the process that serves the endpoint with a name, or nil for a
	// free endpoint. If Held is set, New succeeds while another process has published endpoints,
	// and the daemon serves all free endpoints: see takeover.
	Held func(ctx context.Context, name string) error
	// Address returns the address of the endpoint with a name, for the log. Default: the name.
	Address func(name string) string
	// Count is server.Config's.
	Count func(callType, method string) (ended func(status error))
	// MaxCalls limits the calls in progress at all endpoints together, without streaming calls.
	// Default: server.DefaultMaxCalls.
	MaxCalls int
	// GracePeriod is how long a stop waits for running calls before cancelling them.
	GracePeriod time.Duration
	// Log gets the served versions, and the calls. Default: none.
	Log *slog.Logger
}

// isPublished reports whether the published daemon has the group of a service: all groups but the
// storage API.
func isPublished(s *rpc.Service) bool { return s.Group != "storage" }

// isObsolete reports whether a version is an alpha or beta of a group that has v1.
func isObsolete(s *rpc.Service) bool {
	return s.Version != "v1" && strings.HasPrefix(s.Version, "v1") && slices.Contains(api.Versions(s.Group), "v1")
}

// Daemon is the server of a node's operations.
type Daemon struct {
	*server.Server
	driver   string
	versions []*rpc.Service
	takeover *takeover // of the published endpoints that weren't free at the start
}

// Readiness returns nil while the daemon takes calls to the versions of today's drivers, else the
// reason. If only obsolete versions are unserved, missing has the reason.
func (d *Daemon) Readiness() (missing string, err error) {
	if err := d.Refusing(); err != nil {
		return "", err
	}
	for _, set := range d.takeover.sets {
		switch holder := set.waitsFor(); {
		case holder == nil:
		case !isObsolete(set.services[0]):
			return "", fmt.Errorf("waiting until another process leaves: %w; the storage API is served", holder)
		default:
			missing = fmt.Sprintf("versions older than v1 aren't served until another process leaves: %v", holder)
		}
	}
	return missing, nil
}

// Served returns the served versions, by group, newest first, and the unserved endpoints, held by
// another process.
func (d *Daemon) Served() (versions map[string][]string, missing []string) {
	versions = make(map[string][]string)
	for _, s := range d.versions {
		if slices.ContainsFunc(d.takeover.sets, func(set *endpointSet) bool {
			return set.waitsFor() != nil && slices.Contains(set.services, s)
		}) {
			missing = append(missing, api.DriverEndpointName(d.driver, s.Group, s.Version))
		} else {
			versions[s.Group] = append(versions[s.Group], s.Version)
		}
	}
	return versions, missing
}

// maxControlBytes bounds the requests for controlling a simulated node. They carry data for its
// disks and files.
const maxControlBytes = 1 << 20

// New makes the listeners of all endpoints and returns the daemon that serves them. After an error,
// all listeners are closed.
func New(c Config) (*Daemon, error) {
	versions, err := rpc.Services(c.Operations)
	if err != nil {
		return nil, err
	}
	var own, current, obsolete []*rpc.Service
	for _, v := range versions {
		switch {
		case !isPublished(v):
			own = append(own, v)
		case isObsolete(v):
			obsolete = append(obsolete, v)
		default:
			current = append(current, v)
		}
	}
	endpoints := c.endpointsOf(own)
	for _, name := range slices.Sorted(maps.Keys(c.Control)) {
		endpoints = append(endpoints,
			server.Endpoint{Name: name, Service: c.Control[name], MaxRequestBytes: maxControlBytes})
	}
	if err := listen(endpoints, c.Listen); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	d := &Daemon{driver: c.Driver, versions: versions, takeover: newTakeover(c)}
	served := own
	for _, set := range [][]*rpc.Service{current, obsolete} {
		if len(set) == 0 {
			continue
		}
		published := c.endpointsOf(set)
		if err == nil { // else this one waits for the one before
			err = listen(published, c.Listen)
		}
		switch {
		case err == nil:
			served = append(served, set...)
		case errors.Is(err, pipe.ErrInUse) && c.Held != nil:
			d.takeover.add(published, set, err)
		default:
			for _, e := range endpoints {
				err = errors.Join(err, e.Listener.Close())
			}
			return nil, err
		}
		endpoints = append(endpoints, published...)
	}
	c.announce(served)
	go d.takeover.run()
	for _, name := range slices.Sorted(maps.Keys(c.Control)) {
		c.Log.Info("serving the control of the simulated node", "address", c.address(name))
	}
	d.Server = server.New(server.Config{
		Endpoints:   endpoints,
		Count:       c.Count,
		MaxCalls:    c.MaxCalls,
		GracePeriod: c.GracePeriod,
		Log:         c.Log,
	})
	return d, nil
}

// endpointsOf returns the endpoints of services, without listeners, in the order of their creation:
// newest first within a group. A client looking for the newest version during the daemon's start
// relies on this order.
func (c Config) endpointsOf(services []*rpc.Service) (endpoints []server.Endpoint) {
	for _, s := range services {
		endpoints = append(endpoints,
			server.Endpoint{Name: api.DriverEndpointName(c.Driver, s.Group, s.Version), Service: s})
	}
	return endpoints
}

// listen makes the listeners of the endpoints, in order. After an error, all listeners are closed.
func listen(endpoints []server.Endpoint, listener func(name string) (net.Listener, error)) (err error) {
	for i := range endpoints {
		if endpoints[i].Listener, err = listener(endpoints[i].Name); err != nil {
			for _, e := range endpoints[:i] {
				err = errors.Join(err, e.Listener.Close())
			}
			return err
		}
	}
	return nil
}

// announce logs the served versions and their addresses, with a line for each group.
func (c Config) announce(services []*rpc.Service) {
	versions := make(map[string][]string)
	for _, service := range services {
		versions[service.Group] = append(versions[service.Group], service.Version)
	}
	for _, group := range api.Groups() {
		if len(versions[group]) > 0 {
			c.Log.Info("serving", "group", group, "versions", strings.Join(versions[group], " "),
				"address", c.address(api.DriverEndpointName(c.Driver, group, "<version>")))
		}
	}
}

// address returns an endpoint's address for clients.
func (c Config) address(name string) string {
	if c.Address == nil {
		return name
	}
	return c.Address(name)
}
