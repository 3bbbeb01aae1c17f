// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
)

// reconnect sets how failed connections are retried. Short pauses are fine: the daemon runs on the
// same node, and retries cannot overload it.
var reconnect = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay:  50 * time.Millisecond,
		Multiplier: 1.6,
		Jitter:     0.2,
		MaxDelay:   time.Second,
	},
	MinConnectTimeout: 5 * time.Second,
}

// group is an API group: the version in use, and the connections.
type group struct {
	ctx     context.Context // ends when the client is closed
	name    string
	options options

	// choosing is a lock, held by whoever has sent to the channel, for choosing a version. A wait
	// for the channel, unlike a wait for a mutex, can end with a context.
	choosing chan struct{}

	mu     sync.Mutex       // guards the fields below and the calls of links; held only briefly
	chosen string           // the version in use; empty before the choice, and when its endpoint is gone
	links  map[string]*link // by version
}

// link is a connection to the endpoint of a version.
//
// gRPC restores a lost connection automatically. But after a failed attempt, gRPC fails all calls
// during a pause. If the endpoint is unserved, as during an upgrade of the daemon, the link is
// dropped, and the next call makes a new link. A restored link of an older version is dropped too,
// because the daemon was restarted and may serve a newer version.
type link struct {
	conn   *grpc.ClientConn
	vacant atomic.Bool  // at the last dial, nobody served the endpoint
	made   atomic.Int32 // how often the connection was made
	calls  int          // under way
}

func newGroup(ctx context.Context, name string, o options) *group {
	return &group{ctx: ctx, name: name, options: o, choosing: make(chan struct{}, 1), links: make(map[string]*link)}
}

// version returns the version in use. If there is none, version chooses one.
func (g *group) version(ctx context.Context) (string, error) {
	if g.options.invalid != nil {
		return "", g.options.invalid
	}
	version, err := g.negotiate(ctx)
	if err != nil {
		return "", g.notConnected(err)
	}
	return version, nil
}

func (g *group) notConnected(err error) error {
	return &csiproxy.Error{Op: "connect", Object: "to the " + g.name + " API", Err: err}
}

// negotiate returns the chosen version. If there is none, negotiate chooses the newest version with
// a served endpoint.
func (g *group) negotiate(ctx context.Context) (string, error) {
	if version := g.current(); version != "" {
		return version, nil
	}
	ctx, cancel := g.withClose(ctx)
	defer cancel()
	select {
	case g.choosing <- struct{}{}:
		defer func() { <-g.choosing }()
	case <-ctx.Done():
	}
	if err := g.ended(ctx); err != nil {
		return "", err
	}
	if version := g.current(); version != "" {
		return version, nil
	}
	version, err := g.first(ctx, g.dial)
	if err == nil && version != g.newest() {
		// At startup a daemon makes its endpoints one by one, newest first: missing endpoints may
		// have come meanwhile.
		version, err = g.first(ctx, g.dial)
	}
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.chosen = version
	return version, nil
}

func (g *group) newest() string { return g.options.versions[g.name][0] }

func (g *group) current() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.chosen
}

// ended returns an error if the client is closed or the caller's context has ended.
func (g *group) ended(ctx context.Context) error {
	if g.ctx.Err() != nil {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "the client is closed")
	}
	return ctx.Err()
}

// withClose returns a context that also ends when the client is closed.
func (g *group) withClose(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// first returns the first version for which try succeeds. Any error of try ends the search, except
// for an unserved endpoint.
func (g *group) first(ctx context.Context, try func(ctx context.Context, version string) error) (string, error) {
	for _, version := range g.options.versions[g.name] {
		err := try(ctx, version)
		switch {
		case err == nil:
			return version, nil
		case g.ended(ctx) != nil:
			return "", g.ended(ctx)
		case errors.Is(err, fs.ErrPermission):
			return "", &csiproxy.Error{Kind: csiproxy.ErrPermissionDenied, Err: err}
		case !isVacant(err):
			return "", err
		}
	}
	return "", csiproxy.Errorf(csiproxy.ErrUnavailable,
		"no endpoint %s is served for any of the versions %s: CSI Proxy isn't running, is being restarted, or has its endpoints elsewhere",
		g.options.address(g.name, "<version>"), strings.Join(g.options.versions[g.name], ", "))
}

// dial returns nil if the endpoint of a version accepts a connection.
func (g *group) dial(ctx context.Context, version string) error {
	conn, err := g.options.dial(ctx, g.name, version)
	if err != nil {
		return err
	}
	_ = conn.Close() // nothing was sent that could get lost
	return nil
}

// isVacant reports whether an error of a dial means an unserved endpoint: the endpoint is missing,
// or a socket left behind by a killed daemon.
func isVacant(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// invoke calls a method of a version.
func (g *group) invoke(ctx context.Context, version, method string, request, response proto.Message) error {
	l, err := g.begin(ctx, version)
	if err != nil {
		return err
	}
	defer g.end(version, l)
	err = l.conn.Invoke(ctx, "/"+api.ServiceName(g.name, version)+"/"+method, request, response)
	return g.lostError(ctx, l, err)
}

// lostError returns the error of a call over a link. If all endpoints of the group are unserved, the
// error is the same as for a client that was never connected.
func (g *group) lostError(ctx context.Context, l *link, err error) error {
	if status.Code(err) != codes.Unavailable || !l.vacant.Load() {
		return err
	}
	if _, absent := g.first(ctx, g.dial); absent != nil {
		return g.notConnected(absent)
	}
	return err
}

// begin returns the link for a call.
func (g *group) begin(ctx context.Context, version string) (*link, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.ended(ctx); err != nil {
		return nil, err
	}
	l := g.links[version]
	if l == nil {
		l = new(link)
		var err error
		l.conn, err = newConn(g.name, version, func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := g.options.dial(ctx, g.name, version)
			l.vacant.Store(isVacant(err))
			if err == nil {
				l.made.Add(1)
			}
			return conn, err
		})
		if err != nil {
			return nil, err
		}
		g.links[version] = l
	}
	l.calls++
	return l, nil
}

// end gives the link back after a call. A dropped link is closed after its last call: a stopping
// daemon refuses connections, but completes its calls.
func (g *group) end(version string, l *link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.calls--
	restarted := l.made.Load() > 1 && version != g.newest() // the next daemon may serve a newer one
	if (l.vacant.Load() || restarted) && g.links[version] == l {
		delete(g.links, version)
		if g.chosen == version {
			g.chosen = "" // the next daemon may serve other versions
		}
	}
	if l.calls == 0 && g.links[version] != l {
		_ = l.conn.Close() // the only possible error: it is closed already
	}
}

// newConn returns a gRPC connection, which calls dial on first use.
func newConn(group, version string, dial func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+api.EndpointName(group, version),
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // it never leaves the node
		grpc.WithConnectParams(reconnect),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallSendMsgSize(wire.MaxRequestBytes),
			grpc.MaxCallRecvMsgSize(wire.MaxResponseBytes),
		),
	)
}

// close ends all links. The group's context has ended before, which prevents new links.
func (g *group) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, l := range g.links {
		errs = append(errs, l.conn.Close())
	}
	clear(g.links)
	g.chosen = ""
	return errors.Join(errs...)
}
