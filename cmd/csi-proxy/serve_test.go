// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/published"
)

// fakeFilesystem has one operation, through which a test sees calls arrive.
type fakeFilesystem struct {
	published.FilesystemOperations
	createSymlink func(ctx context.Context) error
}

func (f fakeFilesystem) CreateSymlink(ctx context.Context, _, _ string) error {
	return f.createSymlink(ctx)
}

// fakeNode opens a node that has only the filesystem group.
func fakeNode(createSymlink func(ctx context.Context) error) opener {
	return func(context.Context, options, *slog.Logger) (*openedNode, error) {
		return &openedNode{
			operations: rpc.Operations{Filesystem: fakeFilesystem{createSymlink: createSymlink}},
			collectors: []prometheus.Collector{
				prometheus.NewCounter(prometheus.CounterOpts{Name: "csi_proxy_of_the_node_total"}),
			},
			close: func() error { return nil },
		}, nil
	}
}

// endpointDir returns a directory for the endpoints of a test.
func endpointDir(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		return ""
	}
	return simtest.SocketDir(t)
}

func symlinkAt(t *testing.T, dir string) error {
	c := client.New(client.WithEndpointDir(dir), client.WithVersions("filesystem", "v1"))
	defer c.Close()
	return c.Filesystem.CreateSymlink(t.Context(), "", "")
}

// logLines are the lines that a daemon logs. The daemon never waits for who reads them.
type logLines struct {
	t *testing.T

	mu    sync.Mutex // guards the fields below
	more  sync.Cond  // on mu: there is another line, or the log has ended
	seen  []string
	ended bool
}

// readLog reads the log until its end.
func readLog(t *testing.T, log io.Reader) *logLines {
	l := &logLines{t: t}
	l.more.L = &l.mu
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			l.add(lines.Text(), false)
		}
		l.add("", true)
	}()
	return l
}

func (l *logLines) add(line string, isEnd bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended = isEnd; !isEnd {
		l.seen = append(l.seen, line)
	}
	l.more.Broadcast()
}

// await returns the first line that contains text. Lines of different goroutines have no order.
func (l *logLines) await(text string) string {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 0; ; i++ {
		for i == len(l.seen) && !l.ended {
			l.more.Wait()
		}
		if i == len(l.seen) {
			l.t.Fatalf("the log has no %q: %q", text, l.seen)
		}
		if strings.Contains(l.seen[i], text) {
			return l.seen[i]
		}
	}
}

// drain returns all lines, once the log has ended.
func (l *logLines) drain() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.ended {
		l.more.Wait()
	}
	return l.seen
}

// start runs serve in this process until stop is called, which returns what
// serve did.
func start(t *testing.T, o options, open opener) (log *logLines, stop func() error) {
	t.Helper()
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, o, slog.New(slog.NewTextHandler(writer, nil)), open, func() { fmt.Fprintln(writer, "ready") })
		writer.Close()
	}()
	log = readLog(t, reader)
	return log, func() error {
		cancel()
		log.drain()
		return <-served
	}
}

func testOptions(t *testing.T) options {
	return options{
		node:         nodeSimulated,
		endpointDir:  endpointDir(t),
		pipeSecurity: pipe.DefaultSecurityDescriptor,
		gracePeriod:  time.Minute,
	}
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}

func TestServe(t *testing.T) {
	o := testOptions(t)
	o.metricsAddress = "127.0.0.1:0"
	answers := []error{nil, csiproxy.ErrNotFound}
	log, stop := start(t, o, fakeNode(func(context.Context) error {
		if len(answers) == 0 {
			panic("no answer")
		}
		defer func() { answers = answers[1:] }()
		return answers[0]
	}))
	_, metrics, _ := strings.Cut(log.await("serving metrics"), "address=")
	line := log.await("group=filesystem")
	for _, part := range []string{"v2alpha1 v1 v1beta2", "csi-proxy-filesystem-<version>"} {
		if !strings.Contains(line, part) {
			t.Errorf("the line of the group is %q, want %q in it", line, part)
		}
	}
	log.await("ready")

	for _, want := range []error{nil, csiproxy.ErrNotFound, csiproxy.ErrInternal} {
		if err := symlinkAt(t, o.endpointDir); !errors.Is(err, want) {
			t.Errorf("CreateSymlink gives %v, want %v", err, want)
		}
	}
	body := scrape(t, metrics)
	for _, line := range []string{
		`grpc_server_handling_seconds_bucket{grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary",le="+Inf"} 3`,
		`grpc_server_handled_total{grpc_code="NotFound",grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary"} 1`,
		`grpc_server_handled_total{grpc_code="Internal",grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary"} 1`,
		`csi_proxy_calls_limit 1024`,
		`csi_proxy_of_the_node_total 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("the metrics have no line %s", line)
		}
	}

	if err := stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := symlinkAt(t, o.endpointDir); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("a call after the end gives %v", err)
	}
	if _, err := net.Dial("tcp", metrics); err == nil {
		t.Error("metrics are served after the end")
	}
}

// A port that another process has keeps nobody from the pipes. When it is free, it is served.
func TestServeWithTakenPort(t *testing.T) {
	defer func(before time.Duration) { listenInterval = before }(listenInterval)
	listenInterval = time.Millisecond
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	o := testOptions(t)
	o.metricsAddress = taken.Addr().String()
	log, stop := start(t, o, fakeNode(func(context.Context) error { return nil }))
	log.await("no HTTP at the address")
	log.await("serving administrators")
	if err := symlinkAt(t, o.endpointDir); err != nil {
		t.Errorf("CreateSymlink gives %v", err)
	}
	// So the probes hold.
	for _, page := range []string{admin.Healthz, admin.Readyz} {
		if answer, err := admin.Get(t.Context(), o.endpointDir, page); answer != "ok\n" || err != nil {
			t.Errorf("%s gives %q, %v", page, answer, err)
		}
	}
	must(t, taken.Close())
	log.await("serving metrics")
	body := scrape(t, o.metricsAddress)
	if !strings.Contains(body, "\ncsi_proxy_http_failures_total ") ||
		strings.Contains(body, "\ncsi_proxy_http_failures_total 0\n") {
		t.Error("the metrics don't count the tries")
	}
	if err := stop(); err != nil {
		t.Errorf("serve: %v", err)
	}
	if warned := strings.Count(strings.Join(log.drain(), ""), "no HTTP at the address"); warned != 1 {
		t.Errorf("%d warnings, want 1", warned)
	}
}

// While another process has one pipe, ours isn't ready, and says who has it.
func TestServeWithTakenPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the pipe may be a real daemon's")
	}
	o := testOptions(t)
	taken, err := net.Listen("unix", pipe.Address(o.endpointDir, api.EndpointName("filesystem", "v1")))
	must(t, err)
	log, stop := start(t, o, fakeNode(func(context.Context) error { return nil }))
	line := log.await("another process has published endpoints")
	log.await("ready")
	_, err = admin.Get(t.Context(), o.endpointDir, admin.Readyz)
	me := fmt.Sprintf("process %d", os.Getpid())
	if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), me) || !strings.Contains(line, me) {
		t.Errorf("readiness is %v, without %q; the log has %s", err, me, line)
	}
	must(t, stop())
	must(t, taken.Close())
}

// An obsolete pipe that another process has is no reason not to be ready. Who has it is said everywhere.
func TestServeWithTakenObsoletePipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the pipe may be a real daemon's")
	}
	o := testOptions(t)
	taken, err := net.Listen("unix", pipe.Address(o.endpointDir, api.EndpointName("filesystem", "v1beta1")))
	must(t, err)
	log, stop := start(t, o, fakeNode(func(context.Context) error { return nil }))
	line := log.await("another process has published endpoints")
	log.await("ready")
	ready, err := admin.Get(t.Context(), o.endpointDir, admin.Readyz)
	must(t, err)
	me := fmt.Sprintf("csi-proxy-filesystem-v1beta1.sock is in use by another process: process %d", os.Getpid())
	if !strings.HasPrefix(ready, "ok, but") || !strings.Contains(ready, me) || !strings.Contains(line, me) {
		t.Errorf("readiness is %q, without %q; the log has %s", ready, me, line)
	}
	metrics, err := admin.Get(t.Context(), o.endpointDir, admin.Metrics)
	must(t, err)
	for _, line := range []string{
		`csi_proxy_ready 1`,
		`csi_proxy_missing_endpoint_info{endpoint="csi-proxy-filesystem-v1beta1"} 1`,
		`csi_proxy_missing_endpoint_info{endpoint="csi-proxy-filesystem-v1alpha1"} 1`,
		`csi_proxy_api_info{group="filesystem",versions="v2alpha1 v1"} 1`,
	} {
		if !strings.Contains(metrics, "\n"+line+"\n") {
			t.Errorf("the metrics have no line %s", line)
		}
	}
	must(t, symlinkAt(t, o.endpointDir)) // by v1
	must(t, stop())
	must(t, taken.Close())
}

func TestServeFails(t *testing.T) {
	noNode := errors.New("no node")
	works := fakeNode(nil)

	for name, test := range map[string]struct {
		change func(*options)
		open   opener
		want   error // nil for any
		ready  bool
	}{
		"security descriptor": {
			change: func(o *options) { o.pipeSecurity = "SYSTEM" },
			open:   works,
		},
		"a file in the way": {
			change: func(o *options) {
				must(t, os.WriteFile(pipe.Address(o.endpointDir, api.EndpointName("filesystem", "v1beta1")), nil, 0o600))
			},
			open: works,
		},
		"node": {
			open: func(context.Context, options, *slog.Logger) (*openedNode, error) { return nil, noNode },
			want: noNode,
		},
		"closing the node": {
			open: func(ctx context.Context, o options, log *slog.Logger) (*openedNode, error) {
				n, err := works(ctx, o, log)
				n.close = func() error { return noNode }
				return n, err
			},
			want:  noNode,
			ready: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a file in the way" && runtime.GOOS == "windows" {
				t.Skip("a pipe has no file")
			}
			o := testOptions(t)
			if test.change != nil {
				test.change(&o)
			}
			ctx, stop := context.WithCancel(t.Context())
			stop() // what doesn't fail ends at once
			ready := false
			err := serve(ctx, o, slog.New(slog.DiscardHandler), test.open, func() { ready = true })
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("serve gives %v, want %v", err, test.want)
			}
			if ready != test.ready {
				t.Errorf("it is ready: %v, want %v", ready, test.ready)
			}
			wantNoEndpoints(t, o.endpointDir)
		})
	}
}

// wantNoEndpoints checks that no endpoint is left, and that the claim was given up.
func wantNoEndpoints(t *testing.T, dir string) {
	t.Helper()
	if runtime.GOOS != "windows" {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.Type() == fs.ModeSocket {
				t.Errorf("%s is left", e.Name())
			}
		}
	}
	claimed, err := pipe.Claim(dir)
	must(t, err)
	must(t, claimed.Close())
}

// A drain lets the running call finish and refuses the next one. The daemon reports that it is draining.
func TestDrain(t *testing.T) {
	o := testOptions(t)
	begun, release := make(chan struct{}), make(chan struct{})
	log, stop := start(t, o, fakeNode(func(context.Context) error {
		close(begun)
		<-release
		return nil
	}))
	log.await("ready")
	page := func(name string) string {
		t.Helper()
		body, err := admin.Get(t.Context(), o.endpointDir, name)
		if err != nil {
			return err.Error()
		}
		return body
	}
	if ready := page(admin.Readyz); ready != "ok\n" {
		t.Errorf("before the drain, %s says %s", admin.Readyz, ready)
	}
	slow := make(chan error, 1)
	go func() { slow <- symlinkAt(t, o.endpointDir) }()
	<-begun
	if running, err := admin.Drain(t.Context(), o.endpointDir, 0); running != 1 || err != nil {
		t.Errorf("a drain that doesn't wait gives %d, %v", running, err)
	}
	if ready, metrics := page(admin.Readyz), page(admin.Metrics); !strings.Contains(ready, "draining") ||
		!strings.Contains(metrics, "\ncsi_proxy_ready 0\n") {
		t.Errorf("a drained daemon says %s, and csi_proxy_ready isn't 0", ready)
	}
	if err := symlinkAt(t, o.endpointDir); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("a call during the drain gives %v", err)
	}
	close(release)
	if running, err := admin.Drain(t.Context(), o.endpointDir, time.Minute); running != 0 || err != nil {
		t.Errorf("a drain that waits gives %d, %v", running, err)
	}
	if err := <-slow; err != nil {
		t.Errorf("the call that ran gives %v", err)
	}
	must(t, stop())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
