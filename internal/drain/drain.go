// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain asks a daemon that is about to be stopped to refuse new calls and to let
// those under way finish. A container's preStop hook does so, by csi-proxyctl drain, where
// the container's end gives the daemon a few seconds only.
//
// It has an endpoint of its own, which isn't one of the drivers', and which the
// administrators of the node alone can open. A connection to it does nothing, so that who
// looks which process serves it stops nobody: a drain is a POST. It is HTTP, which bounds
// what a client may send, and how slowly.
package drain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pipe"
)

// EndpointName is the name of the endpoint.
const EndpointName = "csi-proxy-drain"

const (
	// MaxWait is the longest that a drain waits for calls.
	MaxWait = time.Hour
	// stopWithin is how long a drain goes on when it has waited: time to stop the daemon.
	stopWithin = 30 * time.Second
	// requestTimeout is how long a request may take to come.
	requestTimeout = 10 * time.Second
)

const path = "/drain"

// answer is what a drain came to.
type answer struct {
	Running int `json:"running"` // calls that still run
}

// Serve answers drains on l until ctx is done. drain refuses calls for as long as lasts, or
// until the process ends; it returns when no call runs or its context is done, with the
// number of calls that still run.
func Serve(ctx context.Context, l net.Listener, drain func(ctx context.Context, lasts time.Duration) int) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		if err != nil || wait < 0 || wait > MaxWait {
			http.Error(w, fmt.Sprintf("wait must be a time from 0s to %v", MaxWait), http.StatusBadRequest)
			return
		}
		waiting, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		// If it can't be written, the client has gone, and the drain goes on.
		_ = json.NewEncoder(w).Encode(answer{drain(waiting, wait+stopWithin)})
	})
	s := &http.Server{
		Handler: mux, ReadHeaderTimeout: requestTimeout, IdleTimeout: requestTimeout, MaxHeaderBytes: 4 << 10,
	}
	defer context.AfterFunc(ctx, func() { s.Close() })() // Serve returns then
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", EndpointName, err)
	}
	return nil
}

func ended(err error) error {
	return &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the daemon ended meanwhile", Err: err}
}

// Call drains the daemon whose endpoints are in dir, and waits that long for its calls to
// end. It returns how many still run.
func Call(ctx context.Context, dir string, wait time.Duration) (running int, err error) {
	address := pipe.Address(dir, EndpointName)
	var dialErr error
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
			c, dialErr = pipe.Dial(ctx, address)
			return c, dialErr
		}}
	target := "http://" + EndpointName + path + "?" + url.Values{"wait": {wait.String()}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := transport.RoundTrip(request)
	switch {
	case ctx.Err() != nil && err != nil:
		return 0, fmt.Errorf("drain by %s: %w", address, err)
	case dialErr != nil:
		return 0, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "no daemon that can be drained", Err: dialErr}
	case err != nil:
		return 0, ended(err)
	}
	defer response.Body.Close() // all of it was read
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return 0, ended(err)
	}
	var a answer
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("drain by %s: %s: %s", address, response.Status, body)
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return 0, fmt.Errorf("drain by %s: %w", address, err)
	}
	return a.Running, nil
}
