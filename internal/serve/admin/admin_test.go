// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// serve serves drains until the end of the test, and returns the endpoint directory.
func serve(t *testing.T, drain func(ctx context.Context, lasts time.Duration) int) (dir string) {
	t.Helper()
	if runtime.GOOS != "windows" {
		var err error
		if dir, err = pipe.MkdirTemp("admin"); err != nil { // t.TempDir may be too deep for a socket
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	claimed, err := pipe.Claim(dir)
	simtest.Must(t, err)
	// A pipe is free when the clients of the test before have closed it, too.
	var l net.Listener
	err = operation.Retry(t.Context(), time.Minute, time.Millisecond,
		func(err error) bool { return errors.Is(err, pipe.ErrInUse) },
		func() (err error) { l, err = claimed.Administrators().Listen(t.Context(), EndpointName); return err })
	simtest.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, drain, http.HandlerFunc(readiness)) }()
	t.Cleanup(func() {
		stop()
		simtest.Must(t, errors.Join(<-served, claimed.Close()))
	})
	return dir
}

func TestDrain(t *testing.T) {
	dir := serve(t, func(ctx context.Context, lasts time.Duration) int {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 20*time.Second {
			t.Errorf("the drain waits until %v", deadline)
		}
		if lasts != 20*time.Second+stopWithin {
			t.Errorf("the drain lasts for %v", lasts)
		}
		return 3
	})
	for range 2 {
		if running, err := Drain(t.Context(), dir, 20*time.Second); running != 3 || err != nil {
			t.Errorf("the drain gives %d, %v", running, err)
		}
	}
	if _, err := Drain(t.Context(), dir, MaxWait+1); err == nil {
		t.Error("a drain may wait for longer than MaxWait")
	}
}

// readiness is a daemon that has ended its start, but for one page.
func readiness(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case Healthz:
		fmt.Fprintln(w, "ok")
	case Readyz:
		http.Error(w, "another process has the pipes", http.StatusServiceUnavailable)
	default:
		http.NotFound(w, r)
	}
}

func TestGet(t *testing.T) {
	dir := serve(t, nil)
	if got, err := Get(t.Context(), dir, Healthz); got != "ok\n" || err != nil {
		t.Errorf("%s gives %q, %v", Healthz, got, err)
	}
	_, err := Get(t.Context(), dir, Readyz)
	if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), "another process has the pipes") {
		t.Errorf("%s gives %v", Readyz, err)
	}
	if _, err := Get(t.Context(), dir, Debug); err == nil || errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("a page that isn't there gives %v", err)
	}
}

func TestWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	if runtime.GOOS == "windows" {
		dir = ""
	}
	if _, err := Drain(t.Context(), dir, time.Second); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("without a daemon: %v", err)
	}
	if _, err := Get(t.Context(), dir, Healthz); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("without a daemon: %v", err)
	}
}

// Nothing but a POST with a time drains.
func TestNoDrain(t *testing.T) {
	dir := serve(t, func(context.Context, time.Duration) int {
		t.Error("the daemon is drained")
		return 0
	})
	if _, _, err := pipe.Server(t.Context(), pipe.Address(dir, EndpointName)); err != nil {
		t.Error(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address(dir, EndpointName))
		}}}
	for _, request := range [][2]string{
		{http.MethodGet, drainPath + "?wait=1s"}, {http.MethodPost, "/?wait=1s"}, {http.MethodPost, drainPath},
		{http.MethodPost, drainPath + "?wait=-1s"}, {http.MethodPost, drainPath + "?wait=1"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), request[0], "http://admin"+request[1], http.NoBody)
		simtest.Must(t, err)
		response, err := client.Do(r)
		simtest.Must(t, err)
		response.Body.Close()
		if response.StatusCode/100 != 4 {
			t.Errorf("%v gives %s", request, response.Status)
		}
	}
}

// oneConn is a listener to which one client connects.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// A drain may wait for much longer than a request may take to come.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirs, ours := net.Pipe() // it keeps deadlines, which bufconn doesn't
		l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
		l.conn <- ours
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- Serve(ctx, l, func(ctx context.Context, _ time.Duration) int {
				select {
				case <-time.After(20 * requestTimeout):
					return 0
				case <-ctx.Done():
					return 1
				}
			}, http.NotFoundHandler())
		}()
		dial := func(context.Context, string, string) (net.Conn, error) { return theirs, nil }
		transport := &http.Transport{DisableKeepAlives: true, DialContext: dial}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://admin"+drainPath+"?wait=1h", http.NoBody)
		simtest.Must(t, err)
		response, err := transport.RoundTrip(r)
		simtest.Must(t, err)
		body, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil || string(body) != "{\"running\":0}\n" {
			t.Errorf("the drain answers %q, %v", body, err)
		}
		stop()
		simtest.Must(t, <-served)
	})
}
