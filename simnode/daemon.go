// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/csi-proxy/csi-proxy/api"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/sim/simcontrol"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/node"
)

const (
	bufferBytes = 64 << 10 // of an in-memory connection
	// gracePeriod lets idle clients notice the end of their connection before the next daemon
	// starts. Otherwise they would send a call on the old connection.
	gracePeriod = 500 * time.Millisecond
)

// runner runs the daemon on a simulated node, in memory and on sockets.
type runner struct {
	sys     *winsim.System
	options node.Options
	sim     *simcontrol.Service // the control of the simulated node, served beside it

	mu     sync.Mutex // guards all below
	node   *nodeops.Node
	memory map[string]*bufconn.Listener // by endpoint name; nil while it is stopped
	stops  []func() error               // stop the servers
	claim  *pipe.Claimed                // where the sockets or pipes are; nil if there are none
	dir    string                       // of the sockets; on Windows ""
	made   bool                         // whether dir goes in the end
}

func newRunner(sys *winsim.System, o node.Options) *runner {
	return &runner{sys: sys, options: o, sim: simcontrol.New(sys)}
}

// begin starts the daemon for the first time. A non-nil endpoints is the directory of its
// endpoints.
func (d *runner) begin(endpoints *string) (err error) {
	if endpoints != nil {
		if d.claim, err = pipe.Claim(*endpoints); err != nil {
			return err
		}
		d.dir = *endpoints
	}
	return d.start()
}

// start serves the node in memory and, if requested, on sockets or pipes. After a start, start is a
// no-op.
func (d *runner) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.memory != nil {
		return nil
	}
	n, err := nodeops.New(d.sys, nodeops.Options(d.options))
	if err != nil {
		return err
	}
	d.node, d.memory = n, make(map[string]*bufconn.Listener)
	err = d.serve(func(name string) (net.Listener, error) {
		d.memory[name] = bufconn.Listen(bufferBytes)
		return d.memory[name], nil
	})
	if err == nil && d.claim != nil {
		err = d.serveSockets()
	}
	if err != nil {
		return errors.Join(err, d.stopLocked())
	}
	return nil
}

// serve serves all versions, and the control of the simulated node, on listeners made by listen.
func (d *runner) serve(listen func(name string) (net.Listener, error)) error {
	s, err := daemon.New(daemon.Config{
		Operations:  rpc.Operations(d.node.Operations),
		Control:     map[string]server.Service{simv1.EndpointName: d.sim},
		Listen:      listen,
		GracePeriod: gracePeriod,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	d.stops = append(d.stops, func() error {
		cancel()
		return <-ended
	})
	return nil
}

func (d *runner) serveSockets() error {
	return d.serve(func(name string) (net.Listener, error) {
		return d.claim.Listen(context.Background(), name)
	})
}

func (d *runner) stop() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopLocked()
}

func (d *runner) stopLocked() error {
	var errs []error
	for _, stop := range d.stops {
		errs = append(errs, stop())
	}
	d.stops, d.memory = nil, nil
	return errors.Join(errs...)
}

func (d *runner) operations() *node.Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	operations := d.node.Bounded()
	return (*node.Node)(&operations)
}

func (d *runner) dial(ctx context.Context, group, version string) (net.Conn, error) {
	name := api.EndpointName(group, version)
	d.mu.Lock()
	l, running := d.memory[name], d.memory != nil
	d.mu.Unlock()
	switch {
	case !running:
		return nil, fmt.Errorf("dial %s: CSI Proxy isn't running: %w", name, os.ErrNotExist)
	case l == nil:
		return nil, fmt.Errorf("dial %s: CSI Proxy has no such endpoint: %w", name, os.ErrNotExist)
	}
	return l.DialContext(ctx)
}

// endpointDir makes the directory of the sockets if missing, and the sockets unless the daemon is
// stopped. The test's temporary directory is unsuitable: its path may be too long for a socket.
func (d *runner) endpointDir() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.claim != nil {
		return d.dir, nil
	}
	dir, err := pipe.MkdirTemp("simnode")
	if err != nil {
		return "", err
	}
	if d.claim, err = pipe.Claim(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	d.dir, d.made = dir, true
	if d.memory == nil {
		return dir, nil
	}
	return dir, d.serveSockets()
}

// close stops the daemon and removes its endpoints.
func (d *runner) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.stopLocked()
	if d.claim != nil {
		err = errors.Join(err, d.claim.Close())
	}
	if d.made {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}
