// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admin is the daemon's own endpoint, beside those of the drivers. The administrators of the
// node alone can open it. A container's probes ask it whether the daemon is ready, so that they need no
// port. A preStop hook asks it for a drain: where the end of a container gives the daemon a few seconds
// only, it takes no new calls before that, and lets those under way finish.
//
// A connection to it does nothing, so a process that connects to find out who serves it disturbs nobody.
// The endpoint is HTTP, which bounds what a client may send, and how slowly.
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

// Driver stands for a driver in the names of the endpoints at which administrators reach the whole node where the
// published names aren't served.
const Driver = "administrators"

const (
	// MaxWait is the longest that a drain waits for calls.
	MaxWait = time.Hour
	// stopWithin is how long a drain goes on when it has waited: time to stop the daemon.
	stopWithin = 30 * time.Second
	// requestTimeout is how long a request may take to come.
	requestTimeout = 10 * time.Second
	// writeTimeout is how long an answer may take to be read.
	writeTimeout = 30 * time.Second
	// maxConnections is how many clients are served at one time; further ones wait. Those of a node are
	// its probes and now and then an administrator. An answer may have a MiB.
	maxConnections = 16
	// maxPage bounds an answer.
	maxPage = 16 << 20
)

// The pages that Get asks for, beside drains.
const (
	Healthz = "/healthz" // the process answers
	Readyz  = "/readyz"  // drivers' calls are taken
	Metrics = "/metrics"
	Debug   = "/debug/daemon" // flags and goroutines
)

const drainPath = "/drain"

// drained is what a drain came to.
type drained struct {
	Running int `json:"running"` // calls that still run
}

// Serve answers requests on l until ctx is done. drain refuses calls for as long as lasts, or
// until the process ends; it returns when no call runs or its context is done, with the
// number of calls that still run. pages answers the rest.
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
		// An error says that the connection is closed, as those below.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout))
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		// If it can't be written, the client has gone, and the drain goes on.
		_ = json.NewEncoder(w).Encode(drained{drain(waiting, wait+stopWithin)})
	})
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mux.ServeHTTP(w, r)
			// No request has a body, and the server waits for one that was announced.
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

// Drain drains the daemon whose endpoints are in dir, and waits that long for its calls to
// end. It returns how many still run.
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

// Get returns a page of the daemon whose endpoints are in dir. If the daemon isn't ready, Readyz gives
// csiproxy.ErrUnavailable with the reason.
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
	return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the daemon ended meanwhile", Err: err}
}
