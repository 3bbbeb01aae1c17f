// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client calls CSI Proxy on this node, for CSI drivers and tools.
//
// A [Client] has a field with a typed client for each API group:
//
//	c := client.New()
//	defer c.Close()
//	err := c.Disk.PartitionDisk(ctx, number)
//
// Each field uses the newest version of its group that the node's daemon serves. The client knows
// all versions, so a driver works with every daemon. The first call looks for the version; after
// the version's endpoint is gone, the next call looks again. The fields and methods are the same as
// in [github.com/csi-proxy/csi-proxy/node.Node], so a driver's interfaces are satisfied in process
// and over the pipe.
//
// # Errors
//
// Errors are *[csiproxy.Error]; errors.Is tells them apart, as in process. The client itself
// returns two more errors. If no endpoint of a group is served, as during an upgrade of the daemon,
// the error is [csiproxy.ErrUnavailable]: try again. If the version in use lacks an operation, the
// error is [csiproxy.ErrUnimplemented], and errors.As finds a [VersionError]. The published daemon
// has no error classes; its failures are [csiproxy.ErrInternal] with the daemon's text.
//
// A call has a deadline only if its context has one. The daemon ends a call shortly before the
// deadline, by a twentieth of the call's time, between 50 and 500 milliseconds. The error then says
// what the call waited for.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// Client calls the CSI Proxy of this node. [New] makes one. All methods of a Client and of its
// groups may be called concurrently.
type Client struct {
	Disk       *Disk
	Volume     *Volume
	Filesystem *Filesystem
	SMB        *SMB
	ISCSI      *ISCSI
	System     *System
	Storage    *Storage

	options options
	groups  map[string]*group
	close   context.CancelFunc // ends the groups' context
}

// New returns a client. The client connects on first use and reconnects automatically.
func New(opts ...Option) *Client {
	o := options{dir: DefaultEndpointDir(), versions: make(map[string][]string)}
	o.dial = func(ctx context.Context, group, version string) (net.Conn, error) {
		return pipe.Dial(ctx, o.address(group, version))
	}
	for _, group := range api.Groups() {
		o.versions[group] = api.Versions(group)
	}
	for _, opt := range opts {
		opt(&o)
	}

	c := &Client{options: o, groups: make(map[string]*group)}
	var ctx context.Context
	ctx, c.close = context.WithCancel(context.Background())
	for _, name := range api.Groups() {
		c.groups[name] = newGroup(ctx, name, o)
	}
	c.Disk = &Disk{c.groups["disk"]}
	c.Volume = &Volume{c.groups["volume"]}
	c.Filesystem = &Filesystem{c.groups["filesystem"]}
	c.SMB = &SMB{c.groups["smb"]}
	c.ISCSI = &ISCSI{c.groups["iscsi"]}
	c.System = &System{c.groups["system"]}
	c.Storage = &Storage{c.groups["storage"]}
	return c
}

// Option configures the client returned by New.
type Option func(*options)

type options struct {
	dir      string // of the endpoints
	driver   string // whose endpoints; "" for the published names
	dial     Dialer
	dialer   bool                // dial is the caller's, who alone knows where endpoints are
	versions map[string][]string // by group; they are tried in this order
	invalid  error               // the error of an invalid option
}

// address returns the pipe name or socket path of a version's endpoint. With WithDialer, the result
// is only the name of the endpoint.
func (o *options) address(group, version string) string {
	name := api.DriverEndpointName(o.driver, group, version)
	if o.dialer {
		return name
	}
	return pipe.Address(o.dir, name)
}

// DefaultEndpointDir returns the default directory of the daemon's sockets: /run/csi-proxy for
// root, a directory of the user's own for others. On Windows, where pipes need no directory, the
// result is empty.
func DefaultEndpointDir() string { return pipe.DefaultDir() }

// WithEndpointDir looks for the daemon's sockets in dir. On Windows, where endpoints are named
// pipes, the option is ignored.
func WithEndpointDir(dir string) Option {
	return func(o *options) { o.dir = dir }
}

// WithDriver uses the endpoints that the daemon's flag -drivers gives to the driver with this name.
// A driver in a HostProcess container needs the option, because HostProcess containers see all
// pipes of the node. In other containers the DaemonSet mounts these endpoints under the published
// names.
func WithDriver(name string) Option {
	return func(o *options) { o.driver = name }
}

// Dialer connects to the endpoint of a version of a group, such as "disk" and "v1". For a missing
// endpoint, errors.Is(err, fs.ErrNotExist) must be true.
type Dialer func(ctx context.Context, group, version string) (net.Conn, error)

// WithDialer connects with dial instead of to the node's pipes or sockets. Tests use a dialer to
// reach a daemon in memory.
func WithDialer(dial Dialer) Option {
	return func(o *options) { o.dial, o.dialer = dial, true }
}

// WithVersions limits a group to these versions; the client uses the newest one served. If the
// group or a version is unknown, every call of the client returns csiproxy.ErrInvalidArgument.
func WithVersions(group string, versions ...string) Option {
	return func(o *options) {
		for _, version := range versions {
			if _, ok := api.Service(group, version); !ok {
				o.invalid = &csiproxy.Error{
					Op:     "WithVersions",
					Kind:   csiproxy.ErrInvalidArgument,
					Detail: fmt.Sprintf("the API has no group %q with a version %q", group, version),
				}
				return
			}
		}
		o.versions[group] = slices.DeleteFunc(api.Versions(group), func(version string) bool {
			return !slices.Contains(versions, version)
		})
	}
}

// Close ends all connections. Calls in progress return context.Canceled, later calls
// csiproxy.ErrFailedPrecondition.
func (c *Client) Close() error {
	c.close()
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}
