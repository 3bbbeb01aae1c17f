// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admin serves the daemon's own endpoint, beside the drivers' endpoints. Only the node's
// administrators can open the endpoint. A container's probes ask here whether the daemon is ready,
// and so need no port. A preStop hook asks for a drain: the daemon takes no new calls and lets
// running calls finish, where the end of a container would give the daemon only a few seconds.
//
// A connection alone has no effect, so a process that connects only to identify the server disturbs
// nobody. The endpoint is HTTP, which bounds the size and the duration of requests.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// EndpointName is the name of the endpoint.
const EndpointName = "csi-proxy-admin"

// Driver stands for a driver in the names of the administrators' endpoints. Administrators use
// these endpoints for the whole node if the published names aren't served.
const Driver = "administrators"

const (
	// MaxWait is the longest time that a drain waits for calls.
	MaxWait = time.Hour
	// stopWithin extends a drain after its wait: time to stop the daemon.
	stopWithin = 30 * time.Second
	// requestTimeout bounds the arrival of a request.
	requestTimeout = 10 * time.Second
	// writeTimeout bounds the delivery of an answer.
	writeTimeout = 30 * time.Second
	// maxConnections limits concurrent clients; further clients wait. A node has its probes and now
	// and then an administrator. An answer may have a MiB.
	maxConnections = 16
	// maxPage bounds an answer.
	maxPage = 16 << 20
)

// The pages of Get, beside drains.
const (
	Healthz = "/healthz" // the process answers
	Readyz  = "/readyz"  // drivers' calls are taken
	Metrics = "/metrics"
	Debug   = "/debug/daemon" // flags and goroutines
)

const drainPath = "/drain"

// drained is the result of a drain.
type drained struct {
	Running int `json:"running"` // calls that still run
}

// Serve answers requests on l until ctx is done. drain refuses calls for the duration lasts, or
// until the process ends. drain returns when all calls have ended or its context is done, with the
// number of running calls. pages answers all further requests.
func Serve(ctx context.Context, l net.Listener, drain func(ctx context.Context, lasts time.Duration) int,
	pages http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("GET /", pages)
	mux.HandleFunc("POST "+drainPath, func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		if err != nil || wait < 0 || wait > MaxWait {
			http.Error(w, fmt.Sprintf("wait must be a time from 0s to %v", MaxWait), http.StatusBadRequest)
			return
		}
		// An error means a closed connection, and so do the errors below.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout))
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		// If the write fails, the client has gone, and the drain goes on.
		_ = json.NewEncoder(w).Encode(drained{drain(waiting, wait+stopWithin)})
	})
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mux.ServeHTTP(w, r)
			// Requests have no body, but the server would wait for an announced body.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		}),
		ReadHeaderTimeout: requestTimeout, WriteTimeout: writeTimeout, IdleTimeout: requestTimeout, MaxHeaderBytes: 4 << 10,
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		s.Close() // s.Serve returns before the connections are closed
	})
	err := s.Serve(netutil.LimitListener(l, maxConnections))
	if !stop() {
		<-closed // a pipe is free when its connections are closed, too
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", EndpointName, err)
	}
	return nil
}

// Drain drains the daemon whose endpoints are in dir, waits for its calls to end, for at most wait,
// and returns the number of running calls.
func Drain(ctx context.Context, dir string, wait time.Duration) (running int, err error) {
	body, err := ask(ctx, dir, http.MethodPost, drainPath+"?"+url.Values{"wait": {wait.String()}}.Encode())
	if err != nil {
		return 0, err
	}
	var result drained
	if err := json.Unmarshal(body, &result); err != nil {
		return 0, fmt.Errorf("drain: %w", err)
	}
	return result.Running, nil
}

// Get returns a page of the daemon whose endpoints are in dir. If the daemon isn't ready, Readyz
// fails with csiproxy.ErrUnavailable and the reason.
func Get(ctx context.Context, dir, page string) (string, error) {
	body, err := ask(ctx, dir, http.MethodGet, page)
	return string(body), err
}

func ask(ctx context.Context, dir, method, target string) ([]byte, error) {
	address := pipe.Address(dir, EndpointName)
	var dialErr error
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			c, dialErr = pipe.Dial(ctx, address)
			return c, dialErr
		}}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+EndpointName+target, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, fmt.Errorf("ask the daemon at %s: %w", address, err)
	case dialErr != nil:
		return nil, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "no daemon answers", Err: dialErr}
	case err != nil:
		return nil, ended(err)
	}
	defer response.Body.Close() // all of it was read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPage))
	if err != nil {
		return nil, ended(err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return body, nil
	case http.StatusServiceUnavailable:
		return nil, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: strings.TrimSpace(string(body))}
	}
	return nil, fmt.Errorf("ask the daemon at %s: %s: %s", address, response.Status, body)
}

func ended(err error) error {
	return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the daemon ended during the call", Err: err}
}
