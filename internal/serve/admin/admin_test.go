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
	"sync"
	"sync/atomic"
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
	err = operation.Retry(t.Context(), time.Minute, time.Millisecond, nil, func() (err error) {
		l, err = claimed.Administrators().Listen(t.Context(), EndpointName)
		return err
	})
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

// conns is a listener to which clients in the process connect.
type conns struct {
	conn   chan net.Conn
	closed chan struct{}
	open   atomic.Int64 // accepted, and not closed
}

// openConn is a connection that the server has accepted.
type openConn struct {
	net.Conn
	close func() error
}

func (c openConn) Close() error { return c.close() }

func (l *conns) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		l.open.Add(1)
		return openConn{c, sync.OnceValue(func() error { l.open.Add(-1); return c.Close() })}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *conns) Close() error   { close(l.closed); return nil }
func (l *conns) Addr() net.Addr { return &net.UnixAddr{} }

// dial connects; the server may accept it later.
func (l *conns) dial() net.Conn {
	theirs, ours := net.Pipe() // it keeps deadlines, which bufconn doesn't
	l.conn <- ours
	return theirs
}

func (l *conns) get(ctx context.Context, page string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin"+page, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	return string(body), errors.Join(err, response.Body.Close())
}

// Clients that send nothing, announce what they never send, or read nothing, take few connections, and not
// for long.
func TestBadClients(t *testing.T) {
	const clients = 500
	for name, test := range map[string]struct {
		sends string
		until time.Duration
	}{
		"silent":      {"", requestTimeout},
		"half":        {"GET /page HTTP/1.1\r\n", requestTimeout},
		"reads none":  {"GET /page HTTP/1.1\r\nHost: a\r\n\r\n", writeTimeout},
		"sends less":  {"POST /page HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", requestTimeout},
		"reads error": {"POST /drain?wait=1 HTTP/1.1\r\nHost: a\r\n\r\n", writeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &conns{conn: make(chan net.Conn, clients+1), closed: make(chan struct{})}
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() {
					served <- Serve(ctx, l, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						io.WriteString(w, strings.Repeat("x", 1<<20))
					}))
				}()
				for range clients {
					c := l.dial()
					defer c.Close()
					go io.WriteString(c, test.sends)
					if name == "sends less" {
						go io.Copy(io.Discard, c)
					}
				}
				synctest.Wait()
				if open := l.open.Load(); open > maxConnections {
					t.Errorf("%d connections are open", open)
				}
				begun := time.Now()
				if body, err := l.get(t.Context(), "/page"); len(body) != 1<<20 || err != nil {
					t.Errorf("a good client gets %d bytes, %v", len(body), err)
				}
				if took := time.Since(begun); took > (clients/maxConnections+2)*test.until {
					t.Errorf("it has waited for %v", took)
				}
				stop()
				simtest.Must(t, <-served)
			})
		})
	}
}

// A drain may wait for much longer than a request may take to come.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &conns{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
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
		dial := func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }
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
