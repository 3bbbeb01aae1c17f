// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
)

// serve serves e until the test's end and returns the URL.
func serve(t *testing.T, e *Exporter) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestScrape(t *testing.T) {
	e := New(Build{Version: "v1.2.3", Commit: "abc", GoVersion: "go1"}, slog.New(slog.DiscardHandler))
	extra := prometheus.NewCounter(prometheus.CounterOpts{Name: "extra_total"})
	e.Register(extra, Connections(func() map[string]int { return map[string]int{"red": 5, "": 4} }), Calls(func() map[string]server.Calls {
		return map[string]server.Calls{"red": {Running: 2, Streams: 3, Limit: 7, Oldest: 1500 * time.Millisecond,
			Refused: map[string]int{server.RefusedCalls: 6, server.RefusedStreams: 0}}, "": {Limit: 8}}
	}), Versions(func() (map[string][]string, []string) {
		return map[string][]string{"disk": {"v2", "v1"}}, []string{"csi-proxy-disk-v1beta1"}
	}))
	red := e.CountCalls("red")
	for _, answer := range []error{nil, status.Error(codes.NotFound, "")} {
		red(server.Unary, "/v1.Filesystem/CreateSymlink")(answer)
	}
	e.CountCalls("")(server.Unary, "/v1.Disk/ListDiskIDs")(nil)
	for _, method := range []string{"/csiproxy.storage.v1alpha1.Storage/WatchDisks", "/v1.Any/Method"} { // the second isn't there
		red(server.Stream, method)(status.Error(codes.Unavailable, ""))
	}

	url := serve(t, e)
	code, body := get(t, url+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	for _, line := range []string{
		`grpc_server_started_total{driver="red",grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary"} 2`,
		`grpc_server_handled_total{driver="red",grpc_code="NotFound",grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary"} 1`,
		`grpc_server_handling_seconds_bucket{driver="red",grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary",le="+Inf"} 2`,
		`grpc_server_started_total{driver="red",grpc_method="WatchDisks",grpc_service="csiproxy.storage.v1alpha1.Storage",grpc_type="server_stream"} 1`,
		`grpc_server_handled_total{driver="red",grpc_code="Unavailable",grpc_method="WatchDisks",grpc_service="csiproxy.storage.v1alpha1.Storage",grpc_type="server_stream"} 1`,
		`csi_proxy_build_info{commit="abc",goversion="go1",version="v1.2.3"} 1`,
		`csi_proxy_connections{driver="red"} 5`,
		`csi_proxy_api_info{group="disk",versions="v2 v1"} 1`,
		`csi_proxy_missing_endpoint_info{endpoint="csi-proxy-disk-v1beta1"} 1`,
		`csi_proxy_calls_limit{driver="red"} 7`,
		`csi_proxy_calls{driver="red",state="running"} 2`,
		`csi_proxy_calls{driver="red",state="streams"} 3`,
		`csi_proxy_oldest_call_seconds{driver="red"} 1.5`,
		`csi_proxy_calls_refused_total{driver="red",reason="calls"} 6`,
		`csi_proxy_calls_refused_total{driver="red",reason="streams"} 0`,
		`extra_total 0`,
		// The published daemon's, to the letter.
		`grpc_server_started_total{grpc_method="ListDiskIDs",grpc_service="v1.Disk",grpc_type="unary"} 1`,
		`grpc_server_handled_total{grpc_code="OK",grpc_method="ListDiskIDs",grpc_service="v1.Disk",grpc_type="unary"} 1`,
		`grpc_server_handling_seconds_bucket{grpc_method="ListDiskIDs",grpc_service="v1.Disk",grpc_type="unary",le="+Inf"} 1`,
		`grpc_server_handling_seconds_count{grpc_method="ListDiskIDs",grpc_service="v1.Disk",grpc_type="unary"} 1`,
		`csi_proxy_connections 4`,
		`csi_proxy_calls_limit 8`,
		`csi_proxy_calls{state="running"} 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, part := range []string{`driver=""`, "v1.Any", `grpc_server_handling_seconds_count{grpc_method="WatchDisks"`} {
		if strings.Contains(body, part) {
			t.Errorf("there is a metric with %s", part)
		}
	}
	for _, name := range []string{"go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("no metric %s", name)
		}
	}
	if code, _ := get(t, url+"/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("another path gives status %d", code)
	}
}

func TestServeOnAClosedListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := New(Build{}, slog.New(slog.DiscardHandler)).Serve(t.Context(), l); err == nil {
		t.Error("serving on a closed listener succeeds")
	}
}

func TestPaths(t *testing.T) {
	e := New(Build{}, slog.New(slog.DiscardHandler))
	url := serve(t, e)
	want := func(path string, code int, text string) {
		t.Helper()
		if got, body := get(t, url+path); got != code || !strings.Contains(body, text) {
			t.Errorf("%s: status %d, want %d; %q in %s", path, got, code, text, body)
		}
	}
	want("/healthz", http.StatusOK, "ok")
	want("/readyz", http.StatusServiceUnavailable, "not ready")
	var why error
	missing := ""
	e.SetReadiness(func() (string, error) { return missing, why })
	want("/readyz", http.StatusOK, "ok\n")
	missing = "process 17 has an old one"
	want("/readyz", http.StatusOK, "ok, but process 17 has an old one\n")
	want("/metrics", http.StatusOK, "\ncsi_proxy_ready 1\n")
	why = errors.New("process 17 has the pipes")
	want("/readyz", http.StatusServiceUnavailable, "not ready: process 17 has the pipes")
	want("/metrics", http.StatusOK, "\ncsi_proxy_ready 0\n")
	want("/debug/pprof/", http.StatusNotFound, "")
	want("/debug/daemon", http.StatusNotFound, "")
	want("/nowhere", http.StatusNotFound, "")
}

// Administrators get what is nobody else's, too.
func TestAdmin(t *testing.T) {
	e := New(Build{}, slog.New(slog.DiscardHandler))
	e.SetReadiness(func() (string, error) { return "", nil })
	daemon := httptest.NewServer(e.Admin())
	defer daemon.Close()
	for page, want := range map[string]string{
		admin.Healthz: "ok", admin.Readyz: "ok", admin.Metrics: "csi_proxy_http_failures_total 0",
		admin.Debug: "exporter.handleDebug(",
	} {
		if code, body := get(t, daemon.URL+page); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d, without %q: %s", page, code, want, body)
		}
	}
}

// More goroutines than the first buffer has room for, and fewer than any room.
func TestGoroutineStacks(t *testing.T) {
	var waiting sync.WaitGroup
	done := make(chan struct{})
	defer waiting.Wait()
	defer close(done)
	const goroutines = 1000
	for range goroutines {
		waiting.Go(func() { <-done })
	}
	stacks := string(goroutineStacks(maxStacks))
	if n := strings.Count(stacks, "\ngoroutine "); n < goroutines || !strings.HasPrefix(stacks, "goroutine ") {
		t.Errorf("%d goroutines in %d bytes, want %d", n, len(stacks), goroutines)
	}
	for _, limit := range []int{100, 70 << 10} {
		if n := len(goroutineStacks(limit)); n != limit {
			t.Errorf("%d bytes, want %d", n, limit)
		}
	}
}

// broken is a collector that fails.
type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "Fails.", nil, nil), errors.New("broken collector"))
}

func TestScrapeFails(t *testing.T) {
	e := New(Build{}, slog.New(slog.DiscardHandler))
	url := serve(t, e) + "/metrics"
	for range maxScrapes {
		e.scrapes <- struct{}{}
	}
	if code, body := get(t, url); code != http.StatusServiceUnavailable {
		t.Errorf("a scrape beside %d others: %d, %s", maxScrapes, code, body)
	}
	for range maxScrapes {
		<-e.scrapes
	}
	for range 2 * maxScrapes {
		if code, body := get(t, url); code != http.StatusOK {
			t.Errorf("a scrape alone: %d, %s", code, body)
		}
	}
	e.Register(broken{})
	if code, body := get(t, url); code != http.StatusInternalServerError || !strings.Contains(body, "broken collector") {
		t.Errorf("a scrape of a collector that fails: %d, %s", code, body)
	}
}
