// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exporter lets Prometheus see the daemon: its gRPC calls
// (grpc_server_*), its connections and build (csi_proxy_*), its process and Go
// runtime (process_*, go_*), and what other packages collect. docs/metrics.md explains each
// metric.
package exporter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/internal/mask"
	"github.com/csi-proxy/csi-proxy/internal/server"
)

// callSeconds are the upper bounds of the buckets of a call's duration, few since each
// method has them. Looking something up takes some milliseconds, a change a second,
// formatting a large disk a minute.
var callSeconds = []float64{0.01, 0.1, 1, 10, 60}

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
	build    Build
	log      *slog.Logger
	registry *prometheus.Registry
	started  *prometheus.CounterVec
	handled  *prometheus.CounterVec
	handling *prometheus.HistogramVec
	ready    atomic.Bool
}

// New returns an exporter of the metrics of calls, build, process and Go runtime.
// Trouble with a scrape goes to log.
func New(build Build, log *slog.Logger) *Exporter {
	method := []string{"grpc_type", "grpc_service", "grpc_method"}
	e := &Exporter{
		build:    build,
		log:      log,
		registry: prometheus.NewRegistry(),
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_started_total",
			Help: "Calls that were begun, by service and method. Those that were refused at once aren't counted.",
		}, method),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_handled_total",
			Help: "Calls that have ended, by service, method and gRPC code.",
		}, append(method, "grpc_code")),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "grpc_server_handling_seconds",
			Help:    "How long calls took, by service and method.",
			Buckets: callSeconds,
		}, method),
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
		e.started, e.handled, e.handling,
		buildInfo,
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return e
}

// Register adds metrics. It panics if two have the same name, which is a fault of
// the program.
func (e *Exporter) Register(collectors ...prometheus.Collector) {
	e.registry.MustRegister(collectors...)
}

// SetReady says whether the endpoints take calls: what /readyz answers.
func (e *Exporter) SetReady(ready bool) { e.ready.Store(ready) }

// CountCalls returns the interceptor that counts and times calls. It is to see
// the statuses that clients get. The names are those that
// github.com/grpc-ecosystem/go-grpc-middleware has given them, which dashboards know.
func (e *Exporter) CountCalls() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		service, method := path.Split(info.FullMethod)
		labels := []string{"unary", strings.Trim(service, "/"), method}
		e.started.WithLabelValues(labels...).Inc()
		start := time.Now()
		resp, err := handler(ctx, req)
		e.handling.WithLabelValues(labels...).Observe(time.Since(start).Seconds())
		e.handled.WithLabelValues(append(labels, status.Code(err).String())...).Inc()
		return resp, err
	}
}

// CountStreams is CountCalls for calls with one request and a stream of responses. They
// aren't timed: they last as long as their clients like.
func (e *Exporter) CountStreams() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if info.IsClientStream { // reflection, and methods that there aren't, of any name
			return handler(srv, stream)
		}
		service, method := path.Split(info.FullMethod)
		labels := []string{"server_stream", strings.Trim(service, "/"), method}
		e.started.WithLabelValues(labels...).Inc()
		err := handler(srv, stream)
		e.handled.WithLabelValues(append(labels, status.Code(err).String())...).Inc()
		return err
	}
}

// Check returns an error for a web configuration file that can't be used. The file says
// how to do TLS and who may read the metrics: see
// https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md.
// Without a file, name is "".
func Check(name string) error {
	if err := web.Validate(name); err != nil {
		return fmt.Errorf("web configuration file %s, which has the format of Prometheus' exporters: %w", name, err)
	}
	return nil
}

// handler answers the paths of the daemon.
func (e *Exporter) handler(warnings *log.Logger) (http.Handler, error) {
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name:        "CSI Proxy",
		Description: "The storage operations of this Windows node, for CSI drivers",
		Version:     e.build.Version,
		Profiling:   "false", // there is none
		Links: []web.LandingLinks{
			{Address: "/metrics", Text: "Metrics"},
			{Address: "/healthz", Text: "Health", Description: "the process answers"},
			{Address: "/readyz", Text: "Readiness", Description: "drivers' calls are taken"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the page of the metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", landing)
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{
		Registry:            e.registry,
		ErrorLog:            warnings,
		MaxRequestsInFlight: maxScrapes,
	}))
	e.handleHealth(mux)
	return mux, nil
}

// handleHealth answers what probes ask.
func (e *Exporter) handleHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !e.ready.Load() {
			http.Error(w, "not ready: the endpoints take no calls; the daemon starts or stops", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /debug/daemon", handleDebug)
}

// handleDebug answers, to this machine only, with the daemon's flags and goroutines. A dump stops the
// daemon for a moment, and shows addresses in its memory.
func handleDebug(w http.ResponseWriter, r *http.Request) {
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
		http.Error(w, "only this machine may ask", http.StatusForbidden)
		return
	}
	fmt.Fprintf(w, "flags: %q\n\n", mask.Flags(os.Args[1:]))
	if err := pprof.Lookup("goroutine").WriteTo(w, 2); err != nil {
		return // the client has left
	}
}

// ServeHealth answers probes on l, without TLS and passwords, until ctx is done. It closes l.
func (e *Exporter) ServeHealth(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	e.handleHealth(mux)
	return e.serve(ctx, l, mux, "")
}

// Serve answers requests on l, until ctx is done. It closes l. webConfig is what Check
// takes; the file is read again when it changes.
func (e *Exporter) Serve(ctx context.Context, l net.Listener, webConfig string) error {
	handler, err := e.handler(slog.NewLogLogger(e.log.Handler(), slog.LevelWarn))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return e.serve(ctx, l, handler, webConfig)
}

func (e *Exporter) serve(ctx context.Context, l net.Listener, handler http.Handler, webConfig string) error {
	httpServer := &http.Server{
		Handler:        handler,
		ErrorLog:       slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		// No HTTP/2: a flood of its streams, reset at once, would take the drivers' processor time.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	closed := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { closed <- httpServer.Close() })()
	flags := &web.FlagConfig{WebConfigFile: &webConfig}
	// The toolkit says whether there is TLS; the daemon says that itself.
	err := web.Serve(l, httpServer, flags, slog.New(slog.DiscardHandler))
	if !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err), ignoreClosed(l.Close()))
	}
	return <-closed
}

// ignoreClosed returns the error of closing a listener that may be closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Connections returns the collector of what connections reports, of all endpoints together.
func Connections(connections func() map[string]server.Connections) prometheus.Collector {
	return connectionsCollector(connections)
}

type connectionsCollector func() map[string]server.Connections

var (
	connectionsDesc = prometheus.NewDesc("csi_proxy_connections",
		"Connections of clients. A silent one has never sent a byte.",
		[]string{"state"}, nil)
	closedDesc = prometheus.NewDesc("csi_proxy_connections_closed_total",
		"Connections that were closed because there were too many.",
		[]string{"state"}, nil)
)

func (connectionsCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- connectionsDesc
	descs <- closedDesc
}

func (c connectionsCollector) Collect(metrics chan<- prometheus.Metric) {
	var all server.Connections
	for _, n := range c() {
		all.Open += n.Open
		all.Silent += n.Silent
		all.Evicted += n.Evicted
		all.Closed += n.Closed
	}
	metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(all.Open), "open")
	metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(all.Silent), "silent")
	metrics <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(all.Closed), "open")
	metrics <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(all.Evicted), "silent")
}

// Versions returns the collector of the versions of the API that are served, by group, the
// newest first.
func Versions(served map[string][]string) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "csi_proxy_api_info",
		Help: "The versions of a group of the API that are served, the newest first, in the labels. The value is always 1.",
	}, []string{"group", "versions"})
	for group, versions := range served {
		info.WithLabelValues(group, strings.Join(versions, " ")).Set(1)
	}
	return info
}

// Calls returns the collector of the calls under way, which calls reports.
func Calls(calls func() server.Calls) prometheus.Collector { return callsCollector(calls) }

type callsCollector func() server.Calls

var (
	callsDesc = prometheus.NewDesc("csi_proxy_calls",
		"Calls under way: receiving are those whose request hasn't come, running those whose handler works or waits, "+
			"streams are WatchDisks, health watches and reflection.",
		[]string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("csi_proxy_oldest_call_seconds",
		"Age of the oldest call under way, other than streams; 0 if there is none.", nil, nil)
	requestBytesDesc = prometheus.NewDesc("csi_proxy_request_bytes",
		"Bytes that the requests of the calls under way hold. One that has not come counts with half of the most that it "+
			"may have.", nil, nil)
	limitDesc   = prometheus.NewDesc("csi_proxy_calls_limit", "How many calls may be under way: -max-calls.", nil, nil)
	refusedDesc = prometheus.NewDesc("csi_proxy_refused_calls_total",
		"Calls that were refused before their request was read: reason calls is -max-calls, calls_per_client is "+
			"-max-calls-per-client, request_bytes are too many bytes of requests, streams are too many streaming calls.",
		[]string{"reason"}, nil)
)

func (callsCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{callsDesc, oldestDesc, requestBytesDesc, limitDesc, refusedDesc} {
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
	metrics <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(now.Limit))
	for reason, n := range now.Refused {
		metrics <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), reason)
	}
}
