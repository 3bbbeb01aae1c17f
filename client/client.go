// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client calls CSI Proxy on the node where it runs, for CSI drivers and
// tools.
//
// A [Client] has one typed client for each API group, as a node.Node has its
// operations:
//
//	c := client.New()
//	defer c.Close()
//	err := c.Disk.PartitionDisk(ctx, number)
//
// Each speaks the newest version of its group that the node's daemon serves, down to
// the first one published, so that a driver works with every daemon in the field. It
// finds out which when it is first used, and anew when that version's endpoint has
// gone. Methods have the signatures of the operations in the packages below node: what
// a driver declares as its interface is satisfied in process and over the pipe.
//
// # Errors
//
// Errors are *csiproxy.Error, to be told apart with errors.Is as in process. Two
// are the client's own. Where no endpoint of a group is served, as while the daemon
// is upgraded, the error is csiproxy.ErrUnavailable: try again. Where the version
// in use doesn't have an operation, it is csiproxy.ErrUnimplemented, and
// errors.As finds a [VersionError]. The published daemon, which doesn't classify its
// failures, gives csiproxy.ErrInternal with its text.
//
// No call has a deadline unless its context has one.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/pipe"
)

// Client reaches the CSI Proxy of this node. Its methods, and those of its groups,
// may be called concurrently. It comes from [New].
type Client struct {
	Disk       *Disk
	Volume     *Volume
	Filesystem *Filesystem
	SMB        *SMB
	ISCSI      *ISCSI
	System     *System

	options options
	groups  map[string]*group
	close   context.CancelFunc // ends the groups' context
}

// New returns a client. It connects when it is first used, and reconnects by itself.
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
	return c
}

// Option changes what New returns.
type Option func(*options)

type options struct {
	dir      string // of the endpoints
	dial     Dialer
	versions map[string][]string // by group, to try in this order
	invalid  error               // an option's mistake
}

// address is where the endpoint of a version is.
func (o *options) address(group, version string) string {
	return pipe.Address(o.dir, api.EndpointName(group, version))
}

// DefaultEndpointDir returns the directory of the daemon's sockets unless told
// otherwise: /run/csi-proxy for root, and for another user a directory of the
// user's own. It is empty on Windows, where pipes aren't in a directory.
func DefaultEndpointDir() string { return pipe.DefaultDir() }

// WithEndpointDir looks for the daemon's sockets in dir. Windows, which has named
// pipes, ignores it.
func WithEndpointDir(dir string) Option {
	return func(o *options) { o.dir = dir }
}

// Dialer connects to the endpoint of a version of a group, such as "disk" and
// "v1". Where there is none, the error must answer errors.Is(err, fs.ErrNotExist).
type Dialer func(ctx context.Context, group, version string) (net.Conn, error)

// WithDialer connects with dial instead of to the node's pipes or sockets, as in
// tests that have the daemon in memory.
func WithDialer(dial Dialer) Option {
	return func(o *options) { o.dial = dial }
}

// WithVersions speaks only these versions of a group, the newest of them that is
// served. A group or version that doesn't exist is csiproxy.ErrInvalidArgument at
// the first use of the client.
func WithVersions(group string, versions ...string) Option {
	return func(o *options) {
		for _, version := range versions {
			if _, ok := api.Service(group, version); !ok {
				o.invalid = &csiproxy.Error{
					Op:     "WithVersions",
					Kind:   csiproxy.ErrInvalidArgument,
					Detail: fmt.Sprintf("there is no version %q of a group %q", version, group),
				}
				return
			}
		}
		o.versions[group] = slices.DeleteFunc(api.Versions(group), func(version string) bool {
			return !slices.Contains(versions, version)
		})
	}
}

// Close ends all connections. Calls under way end with context.Canceled, later ones
// with csiproxy.ErrFailedPrecondition.
func (c *Client) Close() error {
	c.close()
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}
