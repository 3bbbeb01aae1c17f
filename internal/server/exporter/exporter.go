// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exporter lets Prometheus see the daemon: its gRPC calls
// (grpc_server_*), its connections and build (csi_proxy_*), its process and Go
// runtime (process_*, go_*), and what other packages collect.
package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	grpcprometheus "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/internal/server"
)

// callSeconds are the upper bounds of the buckets of a call's duration. Looking
// something up takes a millisecond, formatting a large disk a minute.
var callSeconds = []float64{0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}

// Bounds of the HTTP server. A scrape is one short request.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	maxHeader    = 16 << 10 // bytes
	maxScrapes   = 4        // at the same time
)

// Build is what csi_proxy_build_info says.
type Build struct {
	Version, Commit, GoVersion string
}

// Exporter has a registry of metrics and shows it over HTTP.
type Exporter struct {
	log      *slog.Logger
	registry *prometheus.Registry
	calls    *grpcprometheus.ServerMetrics
}

// New returns an exporter of the metrics of calls, build, process and Go runtime.
// Trouble with a scrape goes to log.
func New(build Build, log *slog.Logger) *Exporter {
	e := &Exporter{
		log:      log,
		registry: prometheus.NewRegistry(),
		calls: grpcprometheus.NewServerMetrics(grpcprometheus.WithServerHandlingTimeHistogram(
			grpcprometheus.WithHistogramBuckets(callSeconds))),
	}
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "csi_proxy_build_info",
		Help: "The build of this daemon, in the labels. The value is always 1.",
		ConstLabels: prometheus.Labels{
			"version":   build.Version,
			"commit":    build.Commit,
			"goversion": build.GoVersion,
		},
	})
	buildInfo.Set(1)
	e.registry.MustRegister(
		e.calls,
		buildInfo,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return e
}

// Register adds metrics. It panics if two have the same name, which is a fault of
// the program.
func (e *Exporter) Register(collectors ...prometheus.Collector) {
	e.registry.MustRegister(collectors...)
}

// CountCalls returns the interceptor that counts and times calls. It is to see
// the statuses that clients get.
func (e *Exporter) CountCalls() grpc.UnaryServerInterceptor {
	return e.calls.UnaryServerInterceptor()
}

// Serve answers GET /metrics on l, until ctx is done. It closes l.
func (e *Exporter) Serve(ctx context.Context, l net.Listener) error {
	warnings := slog.NewLogLogger(e.log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{
		Registry:            e.registry,
		ErrorLog:            warnings,
		MaxRequestsInFlight: maxScrapes,
	}))
	httpServer := &http.Server{
		Handler:        mux,
		ErrorLog:       warnings,
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
	}
	closed := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { closed <- httpServer.Close() })()
	if err := httpServer.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %s: %w", l.Addr(), err)
	}
	return <-closed
}

// Connections returns the collector of what connections reports, by endpoint.
func Connections(connections func() map[string]server.Connections) prometheus.Collector {
	return connectionsCollector(connections)
}

type connectionsCollector func() map[string]server.Connections

var (
	connectionsDesc = prometheus.NewDesc("csi_proxy_connections",
		"Connections of clients. A silent one has never sent a byte.",
		[]string{"endpoint", "state"}, nil)
	evictedDesc = prometheus.NewDesc("csi_proxy_silent_connections_evicted_total",
		"Silent connections that were closed because there were too many.",
		[]string{"endpoint"}, nil)
	closedDesc = prometheus.NewDesc("csi_proxy_connections_closed_total",
		"Connections, other than silent ones, that were closed because there were too many.",
		[]string{"endpoint"}, nil)
)

func (connectionsCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- connectionsDesc
	descs <- evictedDesc
	descs <- closedDesc
}

func (c connectionsCollector) Collect(metrics chan<- prometheus.Metric) {
	for endpoint, n := range c() {
		metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(n.Open), endpoint, "open")
		metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(n.Silent), endpoint, "silent")
		metrics <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(n.Evicted), endpoint)
		metrics <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(n.Closed), endpoint)
	}
}

// Calls returns the collector of the calls under way, which calls reports.
func Calls(calls func() server.Calls) prometheus.Collector { return callsCollector(calls) }

type callsCollector func() server.Calls

var (
	callsDesc = prometheus.NewDesc("csi_proxy_calls",
		"Calls under way: receiving are those whose request hasn't come, running those whose handler works or waits, "+
			"streams are health watches and reflection.",
		[]string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("csi_proxy_oldest_call_seconds",
		"Age of the oldest call under way, other than streams; 0 if there is none.", nil, nil)
	requestBytesDesc = prometheus.NewDesc("csi_proxy_request_bytes",
		"Bytes that the requests of the calls under way hold. One that has not come counts with half of the most that it may have.", nil, nil)
	refusedDesc = prometheus.NewDesc("csi_proxy_refused_calls_total",
		"Calls that were refused before their request was read: reason calls is -max-calls, calls_per_client is "+
			"-max-calls-per-client, request_bytes are too many bytes of requests.",
		[]string{"reason"}, nil)
)

func (callsCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{callsDesc, oldestDesc, requestBytesDesc, refusedDesc} {
		descs <- desc
	}
}

func (c callsCollector) Collect(metrics chan<- prometheus.Metric) {
	now := c()
	for state, n := range map[string]int{"receiving": now.Receiving, "running": now.Running, "streams": now.Streams} {
		metrics <- prometheus.MustNewConstMetric(callsDesc, prometheus.GaugeValue, float64(n), state)
	}
	metrics <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, now.Oldest.Seconds())
	metrics <- prometheus.MustNewConstMetric(requestBytesDesc, prometheus.GaugeValue, float64(now.Bytes))
	for reason, n := range now.Refused {
		metrics <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), reason)
	}
}
