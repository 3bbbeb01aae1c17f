// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package exporter lets Prometheus see the daemon: its gRPC calls (grpc_server_*), its connections
// and build (csi_proxy_*), its process and Go runtime (process_*, go_*), and the metrics of further
// packages. docs/monitoring.md explains each metric.
package exporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/text/mask"
)

// callSeconds are the upper bounds of the buckets of a call's duration, few because each method has
// them. A lookup takes some milliseconds, a change a second, formatting a large disk a minute.
var callSeconds = []float64{0.01, 0.1, 1, 10, 60}

// Bounds of the HTTP server. A scrape is one short request.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	maxHeader    = 16 << 10 // bytes
	maxScrapes   = 4        // at the same time
	maxStacks    = 16 << 20 // bytes, of some ten thousand goroutines
)

// driverLabel names the owner of a driver's own endpoints. At the published endpoints the label is
// empty: see gather.
const driverLabel = "driver"

// Build has the labels of csi_proxy_build_info.
type Build struct {
	Version, Commit, GoVersion string
}

// Exporter has a registry of metrics and serves the registry over HTTP.
type Exporter struct {
	log      *slog.Logger
	registry *prometheus.Registry
	started  *prometheus.CounterVec
	handled  *prometheus.CounterVec
	handling *prometheus.HistogramVec
	unserved prometheus.Counter
	ready    atomic.Pointer[Readiness]
	scrapes  chan struct{} // has an element for each scrape under way
}

// New returns an exporter of the metrics of calls, build, process and Go runtime.
// The log gets the errors of scrapes.
func New(build Build, log *slog.Logger) *Exporter {
	method := []string{driverLabel, "grpc_type", "grpc_service", "grpc_method"}
	e := &Exporter{
		log:      log,
		registry: prometheus.NewRegistry(),
		scrapes:  make(chan struct{}, maxScrapes),
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
		unserved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_proxy_http_failures_total",
			Help: "Failed tries to serve metrics at their address, mostly since another process has the port.",
		}),
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
	e.SetReadiness(func() (string, error) { return "", errors.New("the daemon starts") })
	ready := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_proxy_ready",
		Help: "1 if drivers' calls are taken; 0 at the start and the stop, during a drain, and while another process has the pipes.",
	}, func() float64 {
		if _, err := (*e.ready.Load())(); err != nil {
			return 0
		}
		return 1
	})
	e.registry.MustRegister(
		e.started, e.handled, e.handling, e.unserved,
		buildInfo, ready,
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return e
}

// Register adds metrics. Duplicate names are a fault of the program, and panic.
func (e *Exporter) Register(collectors ...prometheus.Collector) {
	e.registry.MustRegister(collectors...)
}

// Readiness returns the reason for refusing drivers' calls, or nil if calls are taken. missing is
// the reason for a lesser problem: only versions of few drivers are unserved, or the daemon's next
// start would fail.
type Readiness func() (missing string, err error)

// SetReadiness sets the function behind /readyz. Until then, /readyz says that the daemon starts.
func (e *Exporter) SetReadiness(readiness Readiness) { e.ready.Store(&readiness) }

// CountUnserved counts a failed attempt to serve metrics at their address.
func (e *Exporter) CountUnserved() { e.unserved.Inc() }

// streams are the streaming methods to count. Reflection, and unknown methods with arbitrary names,
// are left uncounted.
var streams = []string{"/csiproxy.storage.v1alpha1.Storage/WatchDisks", "/grpc.health.v1.Health/Watch"}

// CountCalls returns the [server.Config.Count] for the endpoints of a driver, "" for the published
// endpoints. Only unary calls are timed: clients decide how long streaming calls last. Dashboards
// know the names of the metrics from github.com/grpc-ecosystem/go-grpc-middleware.
func (e *Exporter) CountCalls(driver string) func(callType, fullMethod string) (ended func(error)) {
	return func(callType, fullMethod string) func(error) {
		if callType == server.Stream && !slices.Contains(streams, fullMethod) {
			return func(error) {}
		}
		service, method := path.Split(fullMethod)
		labels := []string{driver, callType, strings.Trim(service, "/"), method}
		e.started.WithLabelValues(labels...).Inc()
		start := time.Now()
		return func(err error) {
			if callType == server.Unary {
				e.handling.WithLabelValues(labels...).Observe(time.Since(start).Seconds())
			}
			e.handled.WithLabelValues(append(labels, status.Code(err).String())...).Inc()
		}
	}
}

// Admin serves the pages of Serve, and the daemon's flags and goroutines, for the administrators'
// own endpoint.
func (e *Exporter) Admin() http.Handler {
	mux := e.pages()
	mux.HandleFunc("GET "+admin.Debug, handleDebug)
	return mux
}

func (e *Exporter) pages() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+admin.Metrics, e.handleMetrics)
	mux.HandleFunc("GET "+admin.Healthz, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET "+admin.Readyz, func(w http.ResponseWriter, _ *http.Request) {
		missing, err := (*e.ready.Load())()
		switch {
		case err != nil:
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		case missing != "":
			fmt.Fprintln(w, "ok, but "+missing)
		default:
			fmt.Fprintln(w, "ok")
		}
	})
	return mux
}

// handleMetrics serves the metrics in Prometheus' text format, readable by each scraper. Package
// promhttp would negotiate further formats and compression, for 250 kB of the program.
func (e *Exporter) handleMetrics(w http.ResponseWriter, _ *http.Request) {
	select {
	case e.scrapes <- struct{}{}:
		defer func() { <-e.scrapes }()
	default:
		http.Error(w, fmt.Sprintf("%d scrapes are under way; try again later", maxScrapes), http.StatusServiceUnavailable)
		return
	}
	families, err := e.gather()
	var text bytes.Buffer
	for _, family := range families {
		if err == nil {
			_, err = expfmt.MetricFamilyToText(&text, family)
		}
	}
	if err != nil {
		e.log.Warn("the metrics can't be collected", "err", err)
		http.Error(w, "collect the metrics: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	if _, err := text.WriteTo(w); err != nil {
		return // the client has left
	}
}

// gather returns the metrics of the registry, without empty driver labels. Prometheus treats an
// empty label as an absent label. But programs reading the text of published daemons expect exactly
// the published labels.
func (e *Exporter) gather() ([]*dto.MetricFamily, error) {
	families, err := e.registry.Gather()
	for _, family := range families {
		for _, metric := range family.Metric {
			// The registry shares the slice with the collector of the metric.
			metric.Label = slices.DeleteFunc(slices.Clone(metric.Label), func(label *dto.LabelPair) bool {
				return label.GetName() == driverLabel && label.GetValue() == ""
			})
		}
	}
	return families, err
}

// handleDebug serves the daemon's flags and goroutines. A dump stops the daemon for a moment, and
// shows memory addresses.
func handleDebug(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "flags: %q\n\n", mask.Flags(os.Args[1:]))
	if _, err := w.Write(goroutineStacks(maxStacks)); err != nil {
		return // the client has left
	}
}

// goroutineStacks returns the stacks of all goroutines, at most limit bytes. Package runtime/pprof
// would add 180 kB to the program.
func goroutineStacks(limit int) []byte {
	for size := min(64<<10, limit); ; size = min(2*size, limit) {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size || size == limit {
			return stacks[:n]
		}
	}
}

// Serve answers requests on l until ctx is done, and closes l.
func (e *Exporter) Serve(ctx context.Context, l net.Listener) error {
	httpServer := &http.Server{
		Handler:        e.pages(),
		ErrorLog:       slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
		ReadTimeout:    readTimeout,
		WriteTimeout:   writeTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
	}
	closed := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { closed <- httpServer.Close() })()
	if err := httpServer.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err), ignoreClosed(l.Close()))
	}
	return <-closed
}

// ignoreClosed returns the error of closing a listener, or nil for a listener already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// byDriver is a collector of metrics with the label driver, "" for the published endpoints.
type byDriver[T any] struct {
	descs   []*prometheus.Desc
	values  func() map[string]T
	collect func(driver string, value T, metrics chan<- prometheus.Metric)
}

func (c byDriver[T]) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		descs <- desc
	}
}

func (c byDriver[T]) Collect(metrics chan<- prometheus.Metric) {
	for driver, value := range c.values() {
		c.collect(driver, value, metrics)
	}
}

var connectionsDesc = prometheus.NewDesc("csi_proxy_connections",
	"Open connections of clients, at all endpoints of a driver together.", []string{driverLabel}, nil)

// Connections returns the collector of the open connections. count returns the number by driver.
func Connections(count func() map[string]int) prometheus.Collector {
	return byDriver[int]{[]*prometheus.Desc{connectionsDesc}, count,
		func(driver string, n int, metrics chan<- prometheus.Metric) {
			metrics <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(n), driver)
		}}
}

// Versions returns the collector of the API's served versions, by group, newest first, and of
// unserved endpoints.
func Versions(served func() (versions map[string][]string, missing []string)) prometheus.Collector {
	return versionsCollector(served)
}

type versionsCollector func() (versions map[string][]string, missing []string)

var (
	versionsDesc = prometheus.NewDesc("csi_proxy_api_info",
		"The versions of a group of the API that are served, the newest first, in the labels. The value is always 1.",
		[]string{"group", "versions"}, nil)
	missingDesc = prometheus.NewDesc("csi_proxy_missing_endpoint_info",
		"An endpoint that isn't served, since another process has it or one that drivers use with it. The value is always 1.",
		[]string{"endpoint"}, nil)
)

func (versionsCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- versionsDesc
	descs <- missingDesc
}

func (c versionsCollector) Collect(metrics chan<- prometheus.Metric) {
	served, missing := c()
	for group, versions := range served {
		metrics <- prometheus.MustNewConstMetric(versionsDesc, prometheus.GaugeValue, 1, group, strings.Join(versions, " "))
	}
	for _, endpoint := range missing {
		metrics <- prometheus.MustNewConstMetric(missingDesc, prometheus.GaugeValue, 1, endpoint)
	}
}

// Calls returns the collector of the calls in progress. calls returns them by driver.
func Calls(calls func() map[string]server.Calls) prometheus.Collector {
	return byDriver[server.Calls]{[]*prometheus.Desc{callsDesc, oldestDesc, limitDesc, refusedDesc}, calls, collectCalls}
}

var (
	callsDesc = prometheus.NewDesc("csi_proxy_calls",
		"Calls under way: running are those whose handler works or waits, streams are WatchDisks, health watches and "+
			"reflection.",
		[]string{driverLabel, "state"}, nil)
	oldestDesc = prometheus.NewDesc("csi_proxy_oldest_call_seconds",
		"Age of the oldest call under way, other than streams; 0 if there is none.", []string{driverLabel}, nil)
	limitDesc = prometheus.NewDesc("csi_proxy_calls_limit", "How many calls may be under way: -max-calls.",
		[]string{driverLabel}, nil)
	refusedDesc = prometheus.NewDesc("csi_proxy_calls_refused_total",
		"Calls that were refused: reason calls is -max-calls, streams are too many streaming calls.",
		[]string{driverLabel, "reason"}, nil)
)

func collectCalls(driver string, calls server.Calls, metrics chan<- prometheus.Metric) {
	for state, n := range map[string]int{"running": calls.Running, "streams": calls.Streams} {
		metrics <- prometheus.MustNewConstMetric(callsDesc, prometheus.GaugeValue, float64(n), driver, state)
	}
	metrics <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, calls.Oldest.Seconds(), driver)
	metrics <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(calls.Limit), driver)
	for reason, n := range calls.Refused {
		metrics <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), driver, reason)
	}
}
