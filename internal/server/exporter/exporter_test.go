// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/internal/server"
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
	e.Register(extra, Connections(func() map[string]server.Connections {
		return map[string]server.Connections{"csi-proxy-disk-v1": {Open: 2, Silent: 3, Evicted: 4, Closed: 5}}
	}), Calls(func() server.Calls {
		return server.Calls{Receiving: 1, Running: 2, Streams: 3, Bytes: 4, Oldest: 1500 * time.Millisecond,
			Refused: map[string]int{server.RefusedCalls: 6, server.RefusedBytes: 0}}
	}))
	for _, answer := range []error{nil, status.Error(codes.NotFound, "")} {
		info := &grpc.UnaryServerInfo{FullMethod: "/v1.Filesystem/CreateSymlink"}
		_, err := e.CountCalls()(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, answer })
		if status.Code(err) != status.Code(answer) {
			t.Errorf("the counted call gives %v, want %v", err, answer)
		}
	}

	url := serve(t, e)
	code, body := get(t, url+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	for _, line := range []string{
		`grpc_server_started_total{grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary"} 2`,
		`grpc_server_handled_total{grpc_code="NotFound",grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary"} 1`,
		`grpc_server_handling_seconds_bucket{grpc_method="CreateSymlink",grpc_service="v1.Filesystem",grpc_type="unary",le="+Inf"} 2`,
		`csi_proxy_build_info{commit="abc",goversion="go1",version="v1.2.3"} 1`,
		`csi_proxy_connections{endpoint="csi-proxy-disk-v1",state="open"} 2`,
		`csi_proxy_connections{endpoint="csi-proxy-disk-v1",state="silent"} 3`,
		`csi_proxy_silent_connections_evicted_total{endpoint="csi-proxy-disk-v1"} 4`,
		`csi_proxy_connections_closed_total{endpoint="csi-proxy-disk-v1"} 5`,
		`csi_proxy_calls{state="receiving"} 1`,
		`csi_proxy_calls{state="running"} 2`,
		`csi_proxy_calls{state="streams"} 3`,
		`csi_proxy_request_bytes 4`,
		`csi_proxy_oldest_call_seconds 1.5`,
		`csi_proxy_refused_calls_total{reason="calls"} 6`,
		`csi_proxy_refused_calls_total{reason="request_bytes"} 0`,
		`extra_total 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
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
